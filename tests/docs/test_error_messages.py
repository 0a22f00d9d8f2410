"""Each message on the page of error messages is what really happens, word for word."""

import re
from pathlib import Path

import pytest

from tests.docs.raised import CALLS, LOGGED
from tests.values_in_messages import OTHERS, RECORDED, raised, values_of

PAGE = (Path(__file__).parents[2] / "docs" / "error-messages.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^- `(.+)`$", PAGE, re.MULTILINE)


def pattern(message):
    """What the message may be: any values, and after it what to do."""
    return ".+".join(map(re.escape, message.split("..."))) + r"(; .+)?"


RAISED = [message for message in MESSAGES if not message.startswith(tuple(LOGGED))]


def test_the_page_has_the_messages_that_are_raised_here_and_those_of_the_log():
    assert len(RAISED) == len(CALLS) == len(MESSAGES) - len(LOGGED)


def test_the_values_of_all_messages_are_written_down():
    """Where this fails: `python -m tests.values_in_messages`, and look at what changed."""
    assert OTHERS.keys() == RECORDED.keys()


@pytest.mark.parametrize("message", RAISED, ids=lambda message: re.sub(r"\W+", "-", message)[:60].strip("-"))
def test_a_message_is_word_for_word_what_is_raised_with_its_place_and_values(message):
    (name,) = [beginning for beginning in CALLS if message.startswith(beginning)]
    error, folder = raised(CALLS[name])
    assert re.fullmatch(pattern(message), str(error), re.DOTALL), str(error)
    if name in OTHERS:
        assert values_of(error, folder) == RECORDED[name]


@pytest.mark.parametrize("beginning", LOGGED)
def test_a_message_of_the_log_is_what_is_logged(caplog, beginning, tmp_path):
    (message,) = [message for message in MESSAGES if message.startswith(beginning)]
    LOGGED[beginning](tmp_path)
    assert re.match(pattern(message), caplog.messages[0])
