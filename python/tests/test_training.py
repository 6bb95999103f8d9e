"""Runs: as the command's, interrupted, saved, gone on from."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import tightrope as tr


def losses(trainer, count=None):
    return [step.loss for _, step in zip(range(count or 10**6), trainer)]


def test_losses_are_the_commands_bit_for_bit(tightrope, tiny, tmp_path):
    out = tmp_path / "command"
    words = [it for key, value in tiny.items() for it in (f"--{key}", str(value))]
    command = [tightrope, "train", *words, "--steps", "6", "--set", "run.log_every=1", "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    expected = [line["loss"] for line in lines if "loss" in line]
    found = losses(tr.Trainer(**tiny, steps=6))
    assert [np.float32(loss) for loss in found] == [np.float32(loss) for loss in expected]


def test_allocated_as_planned(tiny):
    trainer = tr.Trainer(**tiny, steps=2)
    assert trainer.measured_peak_bytes == trainer.plan.peak_bytes
    step = trainer.step()
    assert step.step == 1 and step.tokens == 64 and step.updated and step.grad_norm > 0 and step.tokens_per_s > 0
    trainer.step()
    with pytest.raises(tr.Error, match="all steps are done"):
        trainer.step()
    assert trainer.steps_done == 2


def test_budgets_change_no_loss(tiny):
    whole = tr.Trainer(**tiny, steps=4, recompute="none")
    less = tr.Trainer(**tiny, steps=4, memory=int(whole.plan.peak_bytes * 0.97))
    assert less.measured_peak_bytes < whole.measured_peak_bytes
    np.testing.assert_allclose(losses(less), losses(whole), atol=1e-5)


def test_a_model_is_exported_for_other_libraries(tiny, tmp_path):
    trainer = tr.Trainer(**tiny, steps=2)
    trainer.step()
    path = trainer.export(tmp_path / "model")
    assert {it.name for it in path.iterdir()} >= {"model.safetensors", "config.json"}
    assert not (path / "optimizer.safetensors").exists() and list(tmp_path.glob(".export*")) == []
    assert json.loads((path / "config.json").read_text())["model_type"] == "gpt2"
    begun = tr.Trainer(**{**tiny, "preset": None}, init=path, steps=2)
    for name, values in trainer.weights.items():
        np.testing.assert_array_equal(begun.weights[name], values)
    with pytest.raises(FileExistsError):
        trainer.export(path)


def test_saved_and_gone_on_from_bit_for_bit(tiny, tmp_path):
    whole = losses(tr.Trainer(**tiny, steps=6))
    first = tr.Trainer(**tiny, steps=6)
    begun = losses(first, 3)
    path = first.save(tmp_path / "kept")
    assert path.name == "step-3" and (path / "model.safetensors").exists()
    rest = losses(tr.Trainer.resume(tmp_path / "kept", data=tiny["data"]))
    assert begun + rest == whole
    with pytest.raises(tr.SettingError, match="seed"):
        tr.Trainer.resume(path, data=tiny["data"], seed=3)


def test_train_keeps_a_run(tiny, tmp_path):
    seen = []
    result = tr.train(**tiny, steps=3, out=tmp_path / "run", on_step=seen.append)
    assert [step.step for step in seen] == [1, 2, 3] and result["steps"] == 3
    assert result["heldout"].loss > 0 and result["heldout"].perplexity > 1 and result["sample"]
    assert result["measured_peak_bytes"] == result["predicted_peak_bytes"]
    assert {"run.toml", "metrics.jsonl", "plan.json", "checkpoints"} <= {it.name for it in result["run"].iterdir()}
    more = tr.train(resume=tmp_path / "run", steps=5, on_step=seen.append)
    assert [step.step for step in seen] == [1, 2, 3, 4, 5] and more["steps"] == 5


def test_text_is_generated(tiny):
    trainer = tr.Trainer(**tiny, steps=1)
    trainer.step()
    text = trainer.generate("to be", max_tokens=8, temperature=0)
    assert isinstance(text, str) and text == trainer.generate("to be", max_tokens=8, temperature=0)


def test_weights_are_arrays(tiny, tmp_path):
    trainer = tr.Trainer(**tiny, steps=1)
    weights = trainer.weights
    name = next(name for name in weights if weights[name].ndim == 2)
    before = weights[name]
    trainer.step()
    assert before.dtype == np.float32 and not np.array_equal(before, trainer.weights[name])
    with pytest.raises(KeyError):
        weights["no such weight"]


def test_the_interpreter_is_free_while_a_step_runs(text):
    trainer = tr.Trainer(preset="small", batch=4, context=64, data=text, device="cpu", threads=1, steps=3)
    counted, going = [0], [True]

    def count():
        while going[0]:
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    trainer.step()
    before, start = counted[0], time.perf_counter()
    trainer.step()
    seconds, during = time.perf_counter() - start, counted[0] - before
    going[0] = False
    thread.join()
    # Another thread would hardly get a turn if a step kept the interpreter.
    assert during >= 100 * seconds, (during, seconds)


INTERRUPTED = """
import os, signal, sys, threading, time
import tightrope as tr
signal.signal(signal.SIGINT, signal.default_int_handler)  # a script that runs the tests in the background has it ignored
trainer = tr.Trainer(preset="gpt2", layers=2, context=256, batch=8, micro_batch=8, device="cpu", threads=1, data=sys.argv[1],
                     vocab=512, steps=100)
trainer.step()
before = trainer.steps_done
threading.Timer(0.4, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
asked = time.monotonic() + 0.4
try:
    for step in trainer:
        pass
except KeyboardInterrupt:
    print("took", time.monotonic() - asked)
else:
    sys.exit("nothing was interrupted")
done = trainer.steps_done
print("then", trainer.step().step - done)
"""


def test_ctrl_c_is_answered_at_once_and_the_trainer_goes_on(text):
    found = subprocess.run([sys.executable, "-c", INTERRUPTED, str(text)], capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
    took, then = (line.split()[1] for line in found.stdout.splitlines())
    assert float(took) < 0.1 and then == "1", found.stdout


KEPT = """
import os, signal, sys, threading
import tightrope as tr
signal.signal(signal.SIGINT, signal.default_int_handler)

def on_step(step):
    if step.step == 3:
        os.kill(os.getpid(), signal.SIGINT)

try:
    tr.train(preset="tiny", context=16, batch=4, device="cpu", threads=1, data=sys.argv[1], steps=50, out=sys.argv[2], on_step=on_step)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_keeps_what_train_had_done(text, tmp_path):
    words = [sys.executable, "-c", KEPT, str(text), str(tmp_path / "run")]
    found = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert found.stdout == "interrupted\n", found.stderr
    kept = [it.name for it in (tmp_path / "run" / "checkpoints").iterdir() if it.name.startswith("step-")]
    assert kept == ["step-3"]
    result = tr.train(resume=tmp_path / "run", steps=5, on_step=lambda step: None)
    assert result["steps"] == 5


TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
SRUN = {
    **{"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2"},
    **{"SLURM_NODEID": "0", "SLURM_LOCALID": "2", "SLURM_STEP_TASKS_PER_NODE": "4"},
}


@pytest.mark.parametrize(("launched", "place"), [(TORCHRUN, "rank 1 of 2"), (SRUN, "rank 2 of 4")])
def test_one_of_several_processes_trains_by_itself_only_where_that_is_said(text, launched, place):
    trained = (
        "import sys, tightrope as tr; "
        "trainer = tr.Trainer(preset='tiny', context=16, batch=4, device='cpu', threads=1, data=sys.argv[1], steps=2{}); "
        "print(trainer.step().step)"
    )

    def run(said):
        words = [sys.executable, "-c", trained.format(said), str(text)]
        return subprocess.run(words, env=os.environ | launched, capture_output=True, text=True, timeout=120)

    refused = run("")
    assert refused.returncode != 0 and place in refused.stderr and "run.ranks = 1" in refused.stderr, refused.stderr
    alone = run(", settings={'run.ranks': 1}")
    assert alone.stdout == "1\n", alone.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_raises_and_does_not_hang(tiny):
    trainer = tr.Trainer(**tiny, steps=2)
    child = os.fork()
    if child == 0:
        try:
            trainer.step()
        except RuntimeError as error:
            os._exit(0 if "forked" in str(error) else 3)
        os._exit(4)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        pytest.fail("the fork hangs")
    assert os.waitstatus_to_exitcode(status) == 0
    # The parent goes on.
    assert trainer.step().step == 1


def test_a_device_that_is_not_there(tiny):
    with pytest.raises(tr.Error):
        tr.Trainer(**dict(tiny, device="cuda:7"))


def test_a_missing_file_is_named_once(tiny, tmp_path):
    with pytest.raises(tr.Error) as caught:
        tr.Trainer(**dict(tiny, data=tmp_path / "none.txt"))
    assert str(caught.value).count("No such file") == 1 and "none.txt" in str(caught.value)


def test_importing_takes_a_moment():
    timed = "import time; import numpy; start = time.perf_counter(); import tightrope; print(time.perf_counter() - start)"
    found = min(float(subprocess.check_output([sys.executable, "-c", timed])) for _ in range(3))
    assert found < 0.3
