"""What the wrong calls of docs/test_error_messages.py tell is written down: places, and values of errors."""

from __future__ import annotations

from tests.values_in_messages import OTHERS, TOLD


def test_all_wrong_calls_are_written_down():
    """Where this fails: `python -m tests.values_in_messages`, and look at what changed."""
    assert OTHERS.keys() == TOLD.keys()
