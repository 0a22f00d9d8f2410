"""A test run that leaves files in the temporary folder fails, and names them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_files_that_a_test_leaves_in_the_temporary_folder_fail_the_run(tmp_path):
    test = tmp_path / "test_one.py"
    test.write_text("import tempfile\n\n\ndef test_one():\n    tempfile.mkdtemp(prefix='left-here-')\n")
    (tmp_path / "now.py").write_text("from tests import conftest\n\nconftest.SECONDS_TO_CLEAN_UP = 0\n")
    options = [option for plugin in ("xdist", "tests.conftest", "now") for option in ("-p", plugin)]
    options += ["-c", os.devnull, "--rootdir", tmp_path, "-n", "1"]
    here = {"TMPDIR": str(tmp_path), "PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, test],
        cwd=ROOT,
        env={**os.environ, **here},
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1, ended.stdout
    assert "1 passed" in ended.stdout
    assert "left-here-" in ended.stdout
    assert not any(tmp_path.glob("tests-*"))
