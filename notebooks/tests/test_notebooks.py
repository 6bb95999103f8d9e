"""Runs the notebooks from their sources, and holds what they found.

A run tries a third of the notebooks, drawn by the date; with `TIGHTROPE_DRAW=all` all of them. Checks of exercises, and whether notebooks
are those of their sources, are always tried.
"""

import datetime
import os
import zlib

import nbformat
import pytest
from answers import ANSWERS, answer

import build
import checks

SOURCES = build.sources()
#: What is drawn by: the date, or other words that draw the same whenever they are given.
WORDS = os.environ.get("TIGHTROPE_DRAW") or datetime.date.today().isoformat()
DRAWN = [
    source for index, source in enumerate(SOURCES) if WORDS == "all" or index % 3 == zlib.crc32(WORDS.encode()) % 3
]

#: What some notebooks must have found besides that what was measured is what was predicted.
HOLDS = {
    "01": lambda it: it["weights_by_hand"] == it["weights_planned"] == 3_369_984 and 5.4 < it["first_loss"] < 5.8,
    "02": lambda it: it["bound_bytes"] <= it["plan_bytes"] <= it["first_fit_bytes"] and it["plan_above_bound"] <= 0.01,
    "03": lambda it: it["largest_difference_of_losses"] < 1e-4 and it["times_less_memory"] > 2,
    "04": lambda it: it["best_segment"] < 4 and it["same_losses"] and max(it["planner_over_bound"]) <= 1.01,
    "05": lambda it: (
        it["f32_kept"] // it["parameters"] == it["bf16_kept"] // it["parameters"] == 12
        and it["f16_kept"] // it["parameters"] == 14
    ),
    "06": lambda it: it["times_smaller"] == 1024 and 1.8 < it["activations_double_by"] < 2.2,
    "07": lambda it: it["muon_state"] < it["adamw_state"] and 4 * it["adamw_8_bit_state"] < 2 * it["adamw_state"],
    "08": lambda it: it["gradients_equal_bit_for_bit"] and it["overlapped_at_0_9"] < it["in_turn_at_0_9"],
    "09": lambda it: it["times_less"] > 20 and it["largest_difference_of_exact_rungs"] < 1e-4,
    "10": lambda it: it["times_less"] > 4 and it["lora_bytes"] <= 4 << 30,
    "11": lambda it: min(it["mlp"], it["cnn"]) >= 0.97 and it["same_losses"],
    "12": lambda it: it["block_by_hand"] == it["block_planned"] and it["engine_grew_by"] == 0,
    "13": lambda it: it["same_bits_as_one_process"] and it["llama_8b_bytes"] < 24 << 30,
}


def figures(notebook):
    """The figures of a notebook's cells, in their order."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if checks.FIGURES in output.get("data", {}):
                yield output["data"][checks.FIGURES]


def held(number, notebook):
    """Asserts what a notebook found: every prediction to the byte, and what is said of it above."""
    found, predictions = {}, 0
    for cell in figures(notebook):
        if "predicted_bytes" in cell:
            predictions += 1
            assert cell["predicted_bytes"] == cell["measured_bytes"] > 0, cell
        found |= cell
    assert predictions > 0, f"notebook {number} measures nothing"
    assert HOLDS[number](found), found


def processor_s():
    """Seconds of the processor that kernels which have ended took."""
    times = os.times()
    return times.children_user + times.children_system


def test_thirteen_notebooks():
    assert [source.name[:2] for source in SOURCES] == [f"{number:02}" for number in range(1, 14)] == sorted(HOLDS)


@pytest.mark.parametrize("source", DRAWN, ids=lambda source: source.stem)
def test_runs_and_finds_what_it_predicts(source, record_property):
    start = processor_s()
    notebook = build.run(build.read(source))
    seconds = processor_s() - start
    record_property("seconds", round(seconds, 1))
    print(f"{source.stem}: {seconds:.1f} s")
    held(source.name[:2], notebook)
    assert seconds <= build.LIMIT_S


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_notebook_is_that_of_its_source(source):
    kept, fresh = nbformat.read(build.made(source), 4), build.read(source)
    again = f"python notebooks/build.py {source.name[:2]}"
    assert [(cell.id, cell.source) for cell in kept.cells] == [(cell.id, cell.source) for cell in fresh.cells], again
    code = [cell for cell in kept.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code), again
    assert not any(output.output_type == "error" for cell in code for output in cell.outputs)
    held(source.name[:2], kept)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_links_lead_somewhere(source):
    for cell in build.read(source).cells:
        if cell.cell_type == "markdown":
            for part in cell.source.split("](")[1:]:
                target = part.split(")")[0].split("#")[0]
                assert target.startswith("http") or (build.FOLDER / target).exists(), target


def test_every_exercise_has_an_answer():
    assert checks.numbers() == sorted(ANSWERS)
    text = "\n".join(source.read_text() for source in SOURCES)
    assert all(f'checks.check("{number}"' in text and f"**{number.lstrip('0')}**" in text for number in ANSWERS)
    assert all(2 <= sum(number.startswith(source.name[:2]) for number in ANSWERS) <= 4 for source in SOURCES)


@pytest.mark.parametrize("number", sorted(ANSWERS))
def test_exercise_takes_the_right_answer_and_refuses_others(number):
    right, wrong = ANSWERS[number]
    verdict = checks.check(number, answer(right))
    assert verdict, repr(verdict)
    assert len(wrong) >= 3
    for value in wrong:
        verdict = checks.check(number, answer(value))
        assert not verdict and "Hint: " in repr(verdict) and len(repr(verdict)) > 40, (value, verdict)
    assert not checks.check(number, ...)
