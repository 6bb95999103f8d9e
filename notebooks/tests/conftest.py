"""Lets tests import what the notebooks import."""

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(FOLDER), str(FOLDER / "tests")]
