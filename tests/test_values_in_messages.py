"""What an error names is what was wrong: its place, and the values in its message."""

from __future__ import annotations

import json

import pytest

import samplerkit as sk
from tests.values_in_messages import FILE, OTHERS, raised, told

TOLD = json.loads(FILE.read_text(encoding="utf-8"))


def test_all_wrong_calls_are_written_down():
    """Where this fails: `python -m tests.values_in_messages`, and look at what changed."""
    assert OTHERS.keys() == TOLD.keys()


@pytest.mark.parametrize("name", TOLD)
def test_an_error_tells_its_place_and_the_values(name):
    assert told(*raised(OTHERS[name])) == TOLD[name]


def test_another_value_is_found():
    nine, ten = (
        told(sk.ArgumentRangeError("lanes", "must be at most 8", number, hint="say 'auto'"))
        for number in (9, 10)
    )
    assert nine == ["lanes", "8", "9", "'auto'"]
    assert ten != nine
