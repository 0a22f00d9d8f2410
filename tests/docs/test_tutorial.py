"""The tutorial, followed word for word: its files are saved, its commands run, and print what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.followed import follow, lasting

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")

CRASHES = "CRASH_AT"
"""A command with it ends as a killed rank does."""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Runs all blocks in their order, as a reader does."""
    return follow(PAGE, tmp_path_factory.mktemp("my_first_order"))


def accuracies(text):
    return [float(found) for found in re.findall(r"accuracy (\d\.\d\d)", text)]


def test_every_command_prints_what_the_page_says(told):
    assert len(told) > 8
    for one in told:
        assert one.code == (1 if CRASHES in one.command else 0), one.errors
        assert lasting(one.printed) == lasting(one.expected), one.command
        assert accuracies(one.printed) == pytest.approx(accuracies(one.expected), abs=0.04)


def test_the_rank_is_really_killed_and_the_others_continue_without_a_loss(told):
    (killed,) = [one for one in told if CRASHES in one.command]
    assert "Signal 9 (SIGKILL)" in killed.errors
    (resumed,) = [one for one in told if "--nproc-per-node 3" in one.command]
    assert "20 steps to go" in resumed.printed
    assert re.findall(r"seen (\d) to (\d) times", resumed.printed) == [("1", "1"), ("2", "2"), ("3", "3")]
