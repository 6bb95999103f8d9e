"""Types of the course: the notebooks' sources and the modules beside them, as strictly as mypy can, and by pyright."""

import json
import subprocess
import sys

import build

SOURCES = [*map(str, build.sources()), *map(str, build.FOLDER.glob("*.py")), *map(str, build.FOLDER.glob("exercises/*.py"))]


def found_by(*words):
    """Output of a program of Python's, run in the folder of the notebooks."""
    return subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, cwd=build.FOLDER)


def test_mypy_finds_nothing_wrong(tmp_path):
    found = found_by("mypy", "--strict", "--config-file", "mypy.ini", "--cache-dir", str(tmp_path), *SOURCES)
    assert found.returncode == 0 and f"no issues found in {len(SOURCES)} source files" in found.stdout, found.stdout


def test_pyright_finds_nothing_wrong():
    found = found_by("pyright", "--outputjson", "--pythonpath", sys.executable)
    report = json.loads(found.stdout)
    assert report["summary"]["filesAnalyzed"] == len(SOURCES), found.stderr
    errors = [it for it in report["generalDiagnostics"] if it["severity"] == "error"]
    assert not errors, [f"{it['file']}:{it['range']['start']['line'] + 1}: {it['message']}" for it in errors]
