"""The files that CI runs on other versions exist: pytest with xdist ignores a missing one."""

from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_file_that_runs_on_other_versions_exists():
    names = (ROOT / ".ci" / "core_tests").read_text().split()
    assert names
    assert [name for name in names if not (ROOT / name).exists()] == []
