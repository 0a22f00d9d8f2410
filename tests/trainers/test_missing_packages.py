"""A trainer that is not installed is named: in a skip, or in a failure where it must be there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = 'NEEDS = ("pytest", "no-such-trainer")\n\ndef test_something():\n    pass\n'


@pytest.mark.parametrize(
    ("excused", "says"),
    [
        pytest.param(None, "1 skipped", id="variable not set"),
        pytest.param("no-such-trainer", "1 skipped", id="excused"),
        pytest.param("", "1 error", id="nothing excused"),
        pytest.param("ray,other", "1 error", id="others excused"),
    ],
)
def test_it_is_skipped_or_fails(tmp_path, excused, says):
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_trainer.py").write_text(MODULE)
    environment = {name: value for name, value in os.environ.items() if name != "SAMPLERKIT_NOT_INSTALLABLE"}
    environment |= {} if excused is None else {"SAMPLERKIT_NOT_INSTALLABLE": excused}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-rs",
        "--rootdir",
        tmp_path,
        tmp_path,
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert says in done.stdout
    assert "not run: no-such-trainer is not installed" in done.stdout
    assert done.returncode == (1 if "error" in says else 0)
