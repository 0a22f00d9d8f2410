"""Tests over a copy of a package in a fork see that copy, whatever was imported, and leave nothing behind."""

from __future__ import annotations

import pytest

from tests.jobs import ended

PROGRAM = """
import os, sys
from pathlib import Path
from tests.campaigns.forked import failing, replace

folder = Path(sys.argv[1])
(folder / "samplerkit").mkdir()
(folder / "pyproject.toml").write_text("[tool.pytest.ini_options]")
test = '''
import subprocess, sys, time
import samplerkit

def test_one():
    assert samplerkit.value < 3

def test_other():
    start = "import samplerkit, time; time.sleep(60 * (samplerkit.value == 2))"
    subprocess.run([sys.executable, "-c", start], check=True, start_new_session=True)
'''
(folder / "tests").mkdir()
(folder / "tests/test_value.py").write_text(test)
names = [f"tests/test_value.py::{name}" for name in ("test_gone", "test_other", "test_one")]
for value in ("1", "2", "3", "("):
    replace(folder / "samplerkit/__init__.py", f"value = {value}")
    print(failing(folder, names, 5), "samplerkit" in sys.modules)
    print(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
"""


@pytest.mark.campaign
def test_a_fork_tests_the_copy_that_it_is_given_and_ends_what_it_started(tmp_path):
    code, printed, errors = ended("-c", PROGRAM, str(tmp_path), seconds=120)
    assert code == 0, errors
    assert printed.splitlines() == [
        *("None False", "[]"),  # all pass
        *("time False", "[]"),
        *("tests/test_value.py::test_one False", "[]"),
        *("tests/test_value.py False", "[]"),  # which cannot be imported
    ]
