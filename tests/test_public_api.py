"""What is public is written down to the last argument: who changes it sees that, and so does who reads on."""

from __future__ import annotations

import difflib
import re
import shutil
from pathlib import Path

from samplerkit import names
from tests.write_public_api import FILE, ROOT, public_api


def changes(now: str) -> list[str]:
    """The lines that are gone, and those that are new."""
    lines = difflib.unified_diff(
        FILE.read_text(encoding="utf-8").splitlines(), now.splitlines(), n=0, lineterm=""
    )
    return [line for line in lines if line[0] in "+-" and line[:3] not in {"+++", "---"}]


def test_the_public_api_is_the_one_that_is_written_down():
    assert changes(public_api()) == [], "if it is meant: python -m tests.write_public_api, and CHANGELOG.md"


def test_each_public_name_has_its_place_in_the_reference():
    written = re.findall(r"^(?:class )?(?:\w+\.)*(\w+)\(", FILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(names.PUBLIC) <= set(written)


def test_an_argument_a_default_and_a_method_that_change_are_seen(tmp_path):
    for folder in ("samplerkit", "docs/reference"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    change(tmp_path / "samplerkit/loading/loader.py", "num_workers: int = 0", "num_workers: int = 1")
    change(
        tmp_path / "samplerkit/loading/loader.py", "def set_epoch(self, epoch", "def set_epoch(self, number"
    )
    change(tmp_path / "samplerkit/loading/steps.py", "def tokens(", "def letters(")
    seen = changes(public_api(tmp_path))
    assert [line[0] for line in seen].count("-") == 3
    assert {"-    num_workers: int = 0 (by name)", "+    num_workers: int = 1 (by name)"} <= set(seen)


def change(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1, before
    path.write_text(text.replace(before, after), encoding="utf-8")
