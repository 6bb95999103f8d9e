"""Plans and their views."""

import json
import subprocess
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import tightrope as tr

GPT2 = dict(preset="gpt2", batch=4, device="cpu", threads=2)


@pytest.fixture(scope="module")
def plan():
    return tr.plan(**GPT2)


def test_a_gpu_that_is_not_here_is_planned_for():
    plan = tr.plan(preset="gpt2-xl", batch=8, precision="bf16", gpu="h100")
    assert plan.peak_bytes < plan.budget_bytes < 80 << 30
    assert plan.to_dict()["rates"] == "published"
    with pytest.raises(tr.SettingError, match="rtx-9090"):
        tr.plan(preset="gpt2", gpu="rtx-9090")


def test_a_setting_that_a_plan_does_not_read_is_refused():
    with pytest.raises(tr.SettingError, match="`plan` doesn't read `out=`"):
        tr.plan(preset="tiny", out="runs/a")
    with pytest.raises(tr.SettingError, match="`plan` doesn't read `weight_bits=`"):
        tr.plan(preset="tiny", settings={"memory.weight_bits": 4})


def test_the_peak_is_made_of_its_classes(plan):
    assert plan.lower_bound_bytes <= plan.peak_bytes
    assert sum(plan.by_class.values()) == plan.peak_bytes and plan.by_class["gaps"] >= 0
    # 124 M parameters in f32, twice that of AdamW's state.
    assert plan.by_class["weight"] >= 124_439_808 * 4
    assert plan.by_class["optimizer"] >= 2 * 124_439_808 * 4
    assert 0 < plan.predicted_step_s < 1000
    assert plan.choices["micro_batch"] * plan.choices["accumulation"] == 4


def test_tensors_lie_within_the_peak_and_never_overlap(plan):
    columns = plan.tensors()
    assert set(columns) == {"name", "class", "phase", "offset", "bytes", "first", "last"}
    rows = len(columns["name"])
    assert all(len(column) == rows for column in columns.values()) and rows > 300
    offset, end = columns["offset"], columns["offset"] + columns["bytes"]
    assert end.max() <= plan.peak_bytes
    first, last = columns["first"], columns["last"]
    assert (first <= last).all() and last.max() < len(plan.live_bytes())
    # Two that are alive at once have no byte in common. Tensors that follow each other in place share an offset and not a moment.
    order = np.argsort(columns["bytes"])[::-1][:200]
    for i in order:
        together = (first < last[i]) & (first[i] < last)
        overlap = together & (offset < end[i]) & (offset[i] < end)
        overlap[i] = False
        assert not overlap.any(), (columns["name"][i], columns["name"][overlap])


def test_live_bytes_reach_the_lower_bound(plan):
    live = plan.live_bytes()
    assert live.dtype == np.uint64 and live.max() <= plan.peak_bytes
    assert live.max() == plan.lower_bound_bytes
    ops = plan.ops()
    assert len(ops["op"]) == len(live) and ops["seconds"].sum() > 0 and "matmul" in set(ops["op"])


def test_a_budget_is_met_and_costs_time(plan):
    less = tr.plan(**GPT2, memory=plan.peak_bytes * 3 // 4)
    assert less.peak_bytes <= plan.peak_bytes * 3 // 4
    assert less.predicted_step_s >= plan.predicted_step_s
    assert less.budget_bytes == plan.peak_bytes * 3 // 4


def test_what_does_not_fit_says_what_would():
    with pytest.raises(tr.DoesNotFit) as caught:
        tr.plan(**GPT2, memory="100MiB")
    error = caught.value
    assert isinstance(error, MemoryError)
    assert error.budget == 100 << 20 and error.needed > error.budget
    assert error.suggestion in str(error)


def test_a_wrong_setting_names_the_nearest():
    with pytest.raises(tr.SettingError, match="did you mean `batch`?"):
        tr.plan(preset="tiny", bacth=8)
    with pytest.raises(tr.SettingError, match="did you mean `train.beta1`?"):
        tr.plan(preset="tiny", settings={"train.beta3": 0.5})
    with pytest.raises(ValueError, match="must be"):
        tr.plan(preset="tiny", batch="many")


def test_keywords_are_the_flags_of_the_command():
    known = tr.settings()
    assert {"preset", "batch", "memory", "lr", "train.beta2"} <= set(known)
    assert "[default: " in known["lr"]


def test_the_frontier_goes_from_fast_to_small():
    points = tr.plan(preset="tiny", batch=8, device="cpu").frontier()
    assert len(points) > 1
    assert all(a[0] > b[0] and a[1] <= b[1] for a, b in zip(points, points[1:]))


def test_pictures(plan):
    less = tr.plan(**GPT2, memory=plan.peak_bytes * 3 // 4)
    tree = ET.fromstring(plan.to_svg("all kept", beside={"within 3/4": less}))
    # 1,028 pixels were cut off where a cell has fewer.
    assert tree.get("style") == "max-width:100%;height:auto" and tree.get("viewBox").split()[2] == tree.get("width")
    words = [it.text for it in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert any(it.startswith("all kept: ") for it in words) and any(it.startswith("within 3/4: ") for it in words)
    assert plan.to_html().startswith("<!")
    assert "peak" in str(plan) and repr(plan).startswith("<Plan: ")


def test_advice_and_figures(plan):
    assert plan.to_dict()["peak_bytes"] == plan.peak_bytes
    assert isinstance(plan.advice(), dict)
    techniques = plan.techniques()
    assert techniques["exact"]["peak_bytes"] < techniques["base"]["peak_bytes"]


def test_the_command_plans_the_same(tightrope):
    words = ["plan", "--preset", "gpt2", "--batch", "4", "--device", "cpu", "--threads", "2", "--json"]
    said = json.loads(subprocess.run([tightrope, *words], check=True, capture_output=True).stdout)
    plan = tr.plan(**GPT2)
    assert plan.peak_bytes == said["peak_bytes"] and plan.by_class == said["by_class"]
