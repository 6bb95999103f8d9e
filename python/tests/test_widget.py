"""What notebooks show: pictures, and widgets."""

import math
import subprocess
import sys
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import numpy as np
import pytest

import tightrope as tr
from tightrope import live, notebook
from tightrope.widget import PlanWidget

GPT2 = dict(preset="gpt2", batch=4, device="cpu", threads=2)
VIEW = "application/vnd.jupyter.widget-view+json"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def plan():
    return tr.plan(**GPT2)


@pytest.fixture
def used(monkeypatch):
    """A person at the cell."""
    monkeypatch.setattr(notebook, "is_used", lambda: True)


def floats(column):
    return np.frombuffer(column, np.float64)


def integers(column):
    return np.frombuffer(column, np.uint32)


def words(column):
    return np.array(column["words"])[integers(column["at"])]


def test_a_widget_has_the_columns_of_its_plan(plan):
    columns = plan._inner.widget_columns()
    tensors, told = columns["tensors"], plan.tensors()
    assert tensors["name"] == told["name"].tolist()
    assert (words(tensors["class"]) == told["class"]).all()
    for name, of in (("offset", "offset"), ("bytes", "bytes")):
        assert (floats(tensors[name]) == told[of]).all()
    for name, of in (("birth", "first"), ("death", "last")):
        assert (integers(tensors[name]) == told[of]).all()
    assert ((told["phase"] == "kept") == (integers(tensors["kept"]) == 1)).all()
    ops, all_ops = columns["ops"], plan.ops()
    assert ops["name"] == all_ops["name"].tolist() and (words(ops["phase"]) == all_ops["phase"]).all()
    assert (floats(ops["live"]) == plan.live_bytes()).all()
    assert (floats(ops["seconds"]) == all_ops["seconds"]).all()
    figures = columns["figures"]
    assert figures["peak_bytes"] == plan.peak_bytes and figures["by_class"] == plan.by_class
    assert figures["why"].startswith("at `") and figures["layers"][0]["weight"] > 0


def test_readers_are_ops_that_come_after_the_tensor_is_made():
    plan = tr.plan(preset="tiny", batch=8, micro_batch=2, device="cpu")
    tensors = plan._inner.widget_columns()["tensors"]
    ends = np.cumsum(integers(tensors["readers"]))
    assert ends[-1] == len(integers(tensors["read_by"]))
    readers = np.split(integers(tensors["read_by"]), ends[:-1])
    updates = np.flatnonzero(plan.ops()["phase"] == "update")
    moments = 0
    for name, birth, death, read_by in zip(tensors["name"], integers(tensors["birth"]), integers(tensors["death"]), readers):
        assert (np.diff(read_by) > 0).all() and (birth <= read_by).all() and birth <= death, name
        if ".exp_avg" in name:
            # Programs before the one of the update are counted.
            moments += 1
            assert len(read_by) and set(read_by) <= set(updates), name
    assert moments > 10


def test_the_slider_plans_as_the_library_does(plan):
    widget = PlanWidget(plan)
    smallest, fastest = widget.range
    assert smallest < fastest == tr.plan(**GPT2, memory="1TiB").peak_bytes
    for budget in (smallest, (smallest + fastest) // 2, fastest):
        widget.budget = budget
        known = tr.plan(**GPT2, memory=budget)
        assert widget.error == "" and widget.shown.peak_bytes == known.peak_bytes <= budget
        assert widget.shown.choices == known.choices
        assert widget.plan["figures"]["budget_bytes"] == budget
        assert widget.plan["figures"]["peak_bytes"] == known.peak_bytes
    shown = widget.plan
    widget.budget = smallest - 1
    assert "memory" in widget.error and widget.plan == shown
    widget.budget = fastest
    assert widget.error == ""


def test_a_plan_within_fewer_bytes_is_of_the_same_step(plan):
    less = plan.within(plan.peak_bytes * 3 // 4)
    assert less.peak_bytes <= plan.peak_bytes * 3 // 4 and less.by_class["weight"] == plan.by_class["weight"]
    with pytest.raises(tr.DoesNotFit):
        plan.within(1 << 20)


def test_the_plan_of_a_trainer_that_was_resumed_is_planned_again_as_it_trains(tiny, tmp_path):
    trainer = tr.Trainer(**tiny, steps=2, layers=3)
    trainer.step()
    trainer.save(tmp_path)
    resumed = tr.Trainer.resume(tmp_path, data=tiny["data"], device="cpu")
    assert resumed.plan.within(1 << 40).by_class["weight"] == trainer.plan.by_class["weight"]


def test_where_no_script_runs_a_plan_is_a_picture(plan):
    data, metadata = plan._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/svg+xml"} and metadata == {}
    assert data["text/plain"] == repr(plan)
    tree = ET.fromstring(data["image/svg+xml"])
    texts = [it.text for it in tree.iter(f"{SVG}text")]
    assert {"forward", "backward"} <= set(texts)
    named = [text.split()[0] for text in texts if text.split()[0] in plan.by_class]
    assert sorted(named) == sorted(name for name, size in plan.by_class.items() if size)
    (title,) = (it.text for it in tree.iter(f"{SVG}title") if "tensors" in it.text)
    rows = len(plan.tensors()["name"])
    assert title == f"{plan.peak_bytes} bytes at the peak; {rows} tensors, {len(plan.live_bytes())} ops"


def test_where_somebody_can_use_it_a_plan_is_a_widget_and_the_picture(plan, used):
    data, _ = plan._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/svg+xml", VIEW}
    assert data[VIEW]["model_id"] == plan.widget().model_id
    # A second cell shows the same one.
    assert plan._repr_mimebundle_()[0][VIEW] == data[VIEW]


def test_without_anywidget_the_picture_is_shown(plan, used, monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "tightrope.widget")
    again = tr.plan(**GPT2)
    assert set(again._repr_mimebundle_()[0]) == {"text/plain", "image/svg+xml"}
    with pytest.raises(ModuleNotFoundError):
        again.widget()


@pytest.mark.parametrize("content, expected", [({"allow_stdin": True}, True), ({"allow_stdin": False}, False), ({}, False)])
def test_who_takes_no_input_uses_no_widget(content, expected, monkeypatch):
    kernel = SimpleNamespace(get_parent=lambda: {"content": content})
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=kernel))
    assert notebook.is_used() is expected
    monkeypatch.setattr("IPython.get_ipython", lambda: None)
    assert notebook.is_used() is False


def test_importing_the_package_imports_nothing_of_notebooks():
    code = "import sys, tightrope; print([it for it in ('anywidget', 'IPython', 'traitlets') if it in sys.modules])"
    run = subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.strip() == "[]"


def test_two_plans_are_shown_side_by_side(plan, used):
    less = plan.within(plan.peak_bytes * 3 // 4)
    compared = tr.compare(plan, less, names=("fastest", "within 3/4"))
    data, _ = compared._repr_mimebundle_()
    assert VIEW in data
    texts = [it.text for it in ET.fromstring(data["image/svg+xml"]).iter(f"{SVG}text")]
    assert [it.split(":")[0] for it in texts if ": " in it] == ["fastest", "within 3/4"]
    widget = compared.widget()
    assert widget.first["figures"]["peak_bytes"] == plan.peak_bytes
    assert widget.second["figures"]["peak_bytes"] == less.peak_bytes
    assert "3/4" in repr(compared)


def test_a_curve_is_drawn_without_losses_that_are_not_finite():
    figures = {"step": 3, "loss": 2.0, "planned_bytes": 10, "measured_bytes": 10}
    losses = [(1, 4.0), (2, math.inf), (3, 2.0)]
    tree = ET.fromstring(live.svg(losses, [(3, 2.5)], figures))
    curve, heldout = (line.get("points").split() for line in tree.iter(f"{SVG}polyline"))
    assert len(curve) == 2 and len(heldout) == 1
    # The larger loss is higher, and the later step further to the right.
    (x, y), (later, lower) = (map(float, point.split(",")) for point in curve)
    assert x < later and y < lower
    texts = [it.text for it in tree.iter(f"{SVG}text")]
    assert texts[0] == "step 3: loss 2.0000; 10 bytes planned, 10 measured"
    assert {"4.000", "2.000", "step 1", "step 3"} <= set(texts)
    assert not list(ET.fromstring(live.svg([], [], {**figures, "loss": None})).iter(f"{SVG}polyline"))
