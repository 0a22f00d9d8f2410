"""What is public is written down to the last argument: who changes it sees that, and so does who reads on."""

from __future__ import annotations

import difflib
import re

import pytest

from samplerkit import names
from tests.write_public_api import FILE, public_api


def changes(before: str, now: str) -> list[str]:
    """The lines that are gone, and those that are new."""
    lines = difflib.unified_diff(before.splitlines(), now.splitlines(), n=0, lineterm="")
    return [line for line in lines if line[0] in "+-" and line[:3] not in {"+++", "---"}]


def test_the_public_api_is_the_one_that_is_written_down():
    assert changes(FILE.read_text(encoding="utf-8"), public_api()) == [], (
        "if it is meant: python -m tests.write_public_api, and CHANGELOG.md"
    )


def test_each_public_name_has_its_place_in_the_reference():
    written = re.findall(r"^(?:class )?(?:\w+\.)*(\w+)\(", FILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(names.PUBLIC) <= set(written)


SOURCE = """
class Base:
    def close(self) -> None: ...

class Loader(Base):
    def __init__(self, data: list[int], *, workers: int = 0) -> None:
        self.data = data
    def epoch(self, number: int) -> int: ...
"""


@pytest.mark.parametrize(
    ("before", "after", "gone"),
    [
        ("workers: int = 0", "workers: int = 1", "-    workers: int = 0 (by name)"),
        ("def close(", "def _close(", "-  .close() -> None"),
        ("data: list[int]", "data: list[str]", "-    data: list[int]"),
    ],
)
def test_an_argument_a_default_a_type_and_a_method_that_change_are_seen(before, after, gone, tmp_path):
    (tmp_path / "samplerkit").mkdir()
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    (tmp_path / "docs" / "reference" / "loading.md").write_text("::: samplerkit.Loader\n", encoding="utf-8")
    told = []
    for text in (SOURCE, SOURCE.replace(before, after)):
        (tmp_path / "samplerkit" / "__init__.py").write_text(text, encoding="utf-8")
        told.append(public_api(tmp_path))
    seen = changes(*told)
    assert gone in seen
    assert [line[0] for line in seen].count("-") == 1
