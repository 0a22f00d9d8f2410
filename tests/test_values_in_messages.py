"""What an error names is what was wrong: its place, and the values in its message."""

from __future__ import annotations

import json

import pytest

import samplerkit as sk
from tests.values_in_messages import FILE, calls, told

CALLS, TOLD = calls(), json.loads(FILE.read_text(encoding="utf-8"))


def test_all_wrong_calls_are_written_down():
    """Where this fails: `python -m tests.values_in_messages`, and look at what changed."""
    assert CALLS.keys() == TOLD.keys()
    assert sum(len(values) > 1 for values in TOLD.values()) > 150


@pytest.mark.parametrize("name", TOLD)
def test_an_error_tells_its_place_and_the_values(name):
    assert told(CALLS[name]) == TOLD[name]


def test_another_value_is_found():
    def wrong(number):
        def call(_):
            raise sk.ArgumentRangeError("lanes", "must be at most 8", number, hint="say 'auto'")

        return call

    assert told(wrong(9)) == ["lanes", "8", "9", "'auto'"]
    assert told(wrong(9)) != told(wrong(10))
