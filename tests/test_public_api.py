"""The public API is recorded with all arguments, so that a change of it is seen."""

from __future__ import annotations

import difflib
import re

from samplerkit import names
from tests.write_public_api import FILE, public_api


def changes(before: str, now: str) -> list[str]:
    """The removed and the new lines."""
    lines = difflib.unified_diff(before.splitlines(), now.splitlines(), n=0, lineterm="")
    return [line for line in lines if line[0] in "+-" and line[:3] not in {"+++", "---"}]


def test_the_public_api_is_the_recorded_one():
    assert changes(FILE.read_text(encoding="utf-8"), public_api()) == [], (
        "if it is intended: python -m tests.write_public_api, and CHANGELOG.md"
    )


def test_each_public_name_has_its_place_in_the_reference():
    written = re.findall(r"^(?:class )?(?:\w+\.)*(\w+)\(", FILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(names.PUBLIC) <= set(written)
