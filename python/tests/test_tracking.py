"""Steps that are logged to Weights & Biases and MLflow, without a network."""

import json
import struct
import subprocess
import sys
import time

import numpy as np
import pytest
from curve import CPU, INPUTS, Curve

import tightrope as tr


class Kept:
    """A tracker that keeps what it's told."""

    def __init__(self):
        self.config, self.logged, self.ended = None, [], []

    def begin(self, config):
        self.config = config

    def log(self, figures, step):
        self.logged.append((step, figures))

    def end(self, completed):
        self.ended.append(completed)

    def curve(self, name):
        return [(step, figures[name]) for step, figures in self.logged if name in figures]


def test_each_step_and_evaluation_is_logged(tiny):
    kept = Kept()
    trainer = tr.Trainer(**tiny, steps=3, settings={"train.beta2": 0.9}, log_to=kept)
    assert kept.config["preset"] == "tiny" and kept.config["train.beta2"] == 0.9 and kept.config["data"] == str(tiny["data"])
    assert kept.config["measured_peak_bytes"] == trainer.measured_peak_bytes
    steps = list(trainer)
    for name in ("loss", "lr", "grad_norm", "tokens_per_s"):
        assert kept.curve(f"train/{name}") == [(step.step, getattr(step, name)) for step in steps]
    found = trainer.evaluate()
    assert kept.curve("eval/loss")[-1] == (3, found.loss) and kept.ended == []
    del trainer
    assert kept.ended == [True]


def test_an_own_model_logs_its_metrics():
    kept, other = Kept(), Kept()
    trainer = tr.Trainer(Curve(), inputs=INPUTS, batch=4, log_to=[kept, other], **CPU)
    batch = dict(x=np.ones((4, 3), np.float32), y=np.ones((4, 1), np.float32))
    losses = [trainer.step(**batch).loss for _ in range(2)]
    assert kept.curve("train/loss") == other.curve("train/loss") == [(1, losses[0]), (2, losses[1])]
    assert trainer.evaluate(**batch).loss == kept.curve("eval/loss")[0][1]


def test_a_run_ends_what_it_logs(tiny, tmp_path):
    kept = Kept()
    end = tr.train(**tiny, steps=4, out=tmp_path / "run", eval_every=2, log_to=kept, on_step=lambda step: None)
    assert [step for step, _ in kept.curve("train/loss")] == [1, 2, 3, 4]
    assert {step for step, _ in kept.curve("eval/loss")} == {2, 4}
    assert kept.curve("eval/loss")[-1] == (4, end["heldout"].loss) and kept.ended == [True]

    def broken(step):
        raise KeyError("broken")

    failed = Kept()
    with pytest.raises(KeyError):
        tr.train(**tiny, steps=4, out=tmp_path / "other", log_to=failed, on_step=broken)
    assert failed.ended == [False]


def test_trackers_that_are_none_are_refused(tiny):
    with pytest.raises(tr.SettingError, match="has TensorBoard's events already; trackers are wandb and mlflow"):
        tr.Trainer(**tiny, steps=1, log_to="tensorboard")
    with pytest.raises(tr.SettingError, match='log_to="comet"; trackers are'):
        tr.train(**tiny, steps=1, log_to="comet")
    with pytest.raises(TypeError, match=r"has the methods begin\(config\), log\(figures, step\) and end\(completed\)"):
        tr.Trainer(**tiny, steps=1, log_to=3)


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_package_that_is_missing_is_named_with_its_command(name):
    program = f"""
import sys
sys.modules.pop({name!r}, None)
class Missing:
    def find_spec(self, found, path=None, target=None):
        if found == {name!r}:
            raise ModuleNotFoundError(f"No module named {{found!r}}", name=found)
sys.meta_path.insert(0, Missing())
import tightrope as tr
try:
    tr.Trainer(preset="tiny", device="cpu", steps=1, log_to={name!r})
except ImportError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.strip() == f'log_to="{name}" needs the package {name}: pip install {name}'


def test_weights_and_biases_has_each_step_offline(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.delenv("WANDB_SERVICE", raising=False)
    trainer = tr.Trainer(**tiny, steps=3, log_to="wandb")
    losses = [step.loss for step in trainer]
    del trainer
    [file] = tmp_path.glob("wandb/offline-run-*/*.wandb")
    config, rows = offline(file)
    assert config["preset"] == "tiny" and config["steps"] == "3"
    assert [(row["_step"], row["train/loss"]) for row in rows] == [(at + 1, loss) for at, loss in enumerate(losses)]


def offline(file):
    """Configuration and rows of a run that Weights & Biases wrote offline, once its service has written the end, at most a minute later."""
    from wandb.proto import wandb_internal_pb2

    deadline = time.monotonic() + 60
    found = []
    while not any(record.HasField("exit") for record in found):
        assert time.monotonic() < deadline, f"{file} has no end, but {len(found)} records"
        time.sleep(0.05)
        found = [wandb_internal_pb2.Record.FromString(data) for data in records(file.read_bytes())]
    config, rows = {}, []
    for record in found:
        for update in (*record.run.config.update, *record.config.update):
            config[update.key] = update.value_json.strip('"')
        if record.HasField("history"):
            items = {it.key or "/".join(it.nested_key): json.loads(it.value_json) for it in record.history.item}
            rows.append({"_step": record.history.step.num, **items})
    return config, rows


def records(data):
    """Records of a log in LevelDB's format, behind a header of seven bytes: in blocks, pieces of checksum, length and kind."""
    at, record = 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        if at + 7 + length > len(data):
            return
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


def test_mlflow_has_each_step_in_a_store_of_files(tiny, tmp_path, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    first, second = (tr.Trainer(**tiny, steps=3, seed=seed, log_to="mlflow") for seed in (1, 2))
    losses = [[step.loss for step in trainer] for trainer in (first, second)]
    del first, second
    client = mlflow.MlflowClient()
    runs = {run.data.params["seed"]: run for run in client.search_runs(["0"])}
    assert set(runs) == {"1", "2"} and {run.info.status for run in runs.values()} == {"FINISHED"}
    for seed, expected in zip(("1", "2"), losses):
        found = client.get_metric_history(runs[seed].info.run_id, "train/loss")
        assert [(it.step, it.value) for it in found] == [(at + 1, loss) for at, loss in enumerate(expected)]
        assert runs[seed].data.params["preset"] == "tiny"
    with mlflow.start_run() as own:
        trainer = tr.Trainer(**tiny, steps=1, log_to="mlflow")
        loss = trainer.step().loss
        del trainer
        assert mlflow.active_run().info.run_id == own.info.run_id
        assert client.get_run(own.info.run_id).data.metrics["train/loss"] == loss
