"""What all tests share: a run that takes a moment."""

import os

import pytest

#: A model of a moment.
TINY = dict(preset="tiny", context=16, batch=4, device="cpu", threads=1)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("to be or not to be, that is the question. " * 60)
    return path


@pytest.fixture
def tiny(text):
    return dict(TINY, data=text)


@pytest.fixture(scope="session")
def tightrope():
    """The command, where it was built: `TIGHTROPE` names it."""
    named = os.environ.get("TIGHTROPE")
    assert named, "build the command, and name its path in TIGHTROPE"
    return named
