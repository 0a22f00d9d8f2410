"""A trainer that is not installed is named: in a skip, or in a failure where it must be there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.jobs import ended

MODULE = 'NEEDS = ("pytest", "no-such-trainer")\n\ndef test_something():\n    pass\n'
VARIABLE = "SAMPLERKIT_NOT_INSTALLABLE"


@pytest.mark.parametrize(
    ("excused", "says"),
    [
        pytest.param({}, "1 skipped", id="variable not set"),
        pytest.param({VARIABLE: "no-such-trainer"}, "1 skipped", id="excused"),
        pytest.param({VARIABLE: ""}, "1 error", id="nothing excused"),
        pytest.param({VARIABLE: "ray,other"}, "1 error", id="others excused"),
    ],
)
def test_it_is_skipped_or_fails(tmp_path, monkeypatch, excused, says):
    monkeypatch.delenv(VARIABLE, raising=False)
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_trainer.py").write_text(MODULE)
    command = ["-m", "pytest", "-p", "no:cacheprovider", "-rs", "--rootdir", str(tmp_path), str(tmp_path)]
    code, printed, _ = ended(*command, seconds=120, folder=tmp_path, **excused)
    assert says in printed
    assert "not run: no-such-trainer is not installed" in printed
    assert code == (1 if "error" in says else 0)
