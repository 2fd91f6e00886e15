"""The examples run as their docstrings say."""

import pathlib
import re
import shlex
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
FOLDER = ROOT / "examples" / "before_after"


def run_as_written(script):
    """What the command in the script's docstring prints."""
    text = (FOLDER / script).read_text()
    line = re.search(r"^python .*$", text, re.MULTILINE).group()
    command = [sys.executable if word == "python" else word for word in shlex.split(line)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.process
@pytest.mark.parametrize("script", ["before.py", "after.py"])
def test_script_reaches_its_accuracy(script):
    accuracy = float(re.search(r"Held-out accuracy ([\d.]+)", run_as_written(script)).group(1))
    assert 0.965 < accuracy < 0.98


def test_scripts_differ_in_a_few_lines():
    before, after = ((FOLDER / script).read_text().split('"""')[2].splitlines() for script in ("before.py", "after.py"))
    new = [line for line in after if line.strip() and line not in before]
    gone = [line for line in before if line not in after]
    assert len(new) <= 6
    assert gone == ["model = build()"]
