"""What the wrong calls of docs/test_error_messages.py tell is written down: places, and values of errors."""

from __future__ import annotations

import samplerkit as sk
from tests.values_in_messages import OTHERS, TOLD, told


def test_all_wrong_calls_are_written_down():
    """Where this fails: `python -m tests.values_in_messages`, and look at what changed."""
    assert OTHERS.keys() == TOLD.keys()


def test_another_value_is_found():
    nine, ten = (
        told(sk.ArgumentRangeError("lanes", "must be at most 8", number, hint="say 'auto'"))
        for number in (9, 10)
    )
    assert nine == ["lanes", "8", "9", "'auto'"]
    assert ten != nine
