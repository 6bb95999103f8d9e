"""Types: models of users are checked as strictly as mypy can, and by pyright."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tightrope

MODEL = '''
from __future__ import annotations

import numpy as np

import tightrope as tr
from tightrope import Tensor, nn


class Digits(tr.Model):
    def __init__(self, width: int = 128) -> None:
        self.up, self.down = nn.Linear(64, width), nn.Linear(width, 10)
        self.mask = np.ones((64,), np.float32)
        self.rest = nn.Sequential(nn.Dropout(0.1), nn.gelu, lambda x: x * 2.0)

    def predict(self, x: Tensor) -> Tensor:
        batch, pixels = x.shape
        rows = x.reshape(batch * 2, pixels // 2).reshape(-1, pixels)
        masked = self.mask * rows + np.float32(1) * x - 2 / (abs(x) + 1.0)
        hidden = self.rest(self.up(tr.where(x > 0.5, masked, -rows)))
        return tr.log_softmax(self.down(hidden), -1)[:, :10]

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        scores = self.predict(x)
        return nn.cross_entropy(scores, y) + 1e-3 * (scores**2).mean() + tr.maximum(scores.max(-1), 0.0).sum((0,))


inputs: dict[str, tuple[str, tuple[int, ...]]] = {"x": ("f32", (64,)), "y": ("i32", ())}
trainer = tr.Trainer(Digits(), inputs=inputs, batch=4, lr=1e-3)
step = trainer.step(x=np.zeros((4, 64)), y=np.zeros(4, int))
loss: float = step.loss
scores = trainer.predict(x=np.zeros((4, 64))).argmax(-1)
plan: tr.Plan = tr.plan(Digits(), inputs=inputs)
peak: int = plan.peak_bytes + sum(plan.by_class.values())
table = plan.tensors()["name"]
trainer.weights["up.weight"] = np.zeros((128, 64))
missing: list[str] = trainer.load_state_dict({"up.bias": np.zeros(128)}, strict=False).missing_keys
trainer.freeze("up.*")
small = tr.Settings(preset="tiny", context=np.int64(32), offload=["optimizer"])
settings = tr.Settings(settings={"train.beta2": 0.9}, **small)
peaks: list[int] = [tr.plan(batch=batch, **settings).peak_bytes for batch in (1, 2)]
found = trainer.evaluate(x=np.zeros((4, 64)), y=np.zeros(4, int))
if found is not None:
    print(found.perplexity, trainer.weights["up.weight"].shape, scores.shape, table.shape)
'''


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """mypy as of Python 3.10: its exit code and what it says."""
    folder = tmp_path_factory.mktemp("types")

    def run(*words, text=""):
        (folder / "model.py").write_text(text)
        words = ["--python-version", "3.10", "--cache-dir", "cache", *words]
        found = subprocess.run([sys.executable, "-m", "mypy", *words], capture_output=True, text=True, cwd=folder)
        return found.returncode, found.stdout + found.stderr

    return run


def test_a_model_of_a_user_is_checked(mypy):
    code, text = mypy("--strict", "model.py", text=MODEL)
    assert code == 0, text


def test_wrong_types_are_found(mypy):
    code, text = mypy("--strict", "model.py", text=MODEL.replace("self.down(hidden)", "self.down(3)"))
    assert code == 1 and 'incompatible type "int"; expected "Tensor"' in text, text


@pytest.mark.parametrize("call", ["plan", "train", "Trainer", "Settings"])
def test_wrong_settings_are_found(mypy, call):
    code, text = mypy("--strict", "model.py", text=f"import tightrope as tr\ntr.{call}(bathc=3)\ntr.{call}(batch='x')\n")
    assert code == 1 and 'did you mean "batch"?' in text and 'incompatible type "str"' in text, text


def test_the_package_is_checked(mypy):
    """Names that a later Python brought are found, too."""
    code, text = mypy("--strict", "-p", "tightrope")
    assert code == 0, text


@pytest.fixture
def pyright(tmp_path):
    """pyright as of Python 3.10: the errors that it finds in these files."""

    def run(*files):
        words = [sys.executable, "-m", "pyright", "--outputjson", "--pythonversion", "3.10", "--pythonpath", sys.executable]
        found = subprocess.run([*words, *map(str, files)], capture_output=True, text=True, cwd=tmp_path)
        report = json.loads(found.stdout)
        assert report["summary"]["filesAnalyzed"] >= len(files), found.stderr
        errors = [it for it in report["generalDiagnostics"] if it["severity"] == "error"]
        return [f"{it['file']}:{it['range']['start']['line'] + 1}: {it['message']}" for it in errors]

    return run


def test_pyright_finds_what_is_wrong_and_nothing_else(pyright, tmp_path):
    """Language servers of editors are pyright's."""
    for name, text in (("right.py", MODEL), ("wrong.py", MODEL.replace("self.down(hidden)", "self.down(3)"))):
        (tmp_path / name).write_text(text)
    found = pyright(Path(tightrope.__file__).parent, tmp_path / "right.py", tmp_path / "wrong.py")
    assert len(found) == 1 and "wrong.py" in found[0] and '"Tensor"' in found[0], found
