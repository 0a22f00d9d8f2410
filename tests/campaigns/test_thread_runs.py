"""Threads as workers, ended at random: nothing is lost, nothing comes again, and nothing is left.

These are samples; `python -m tests.campaigns.thread_runs` ends 2,000 iterations and kills 200 jobs.
"""

from __future__ import annotations

import re

import pytest

from tests.campaigns.thread_runs.endings import ENDS, ended_at_random
from tests.programs import run


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a signal while one is closed
def test_whatever_ends_an_iteration_over_threads_the_rest_of_the_epoch_follows():
    found = [ended_at_random(seed) for seed in range(40)]
    assert [what for _, wrong in found for what in wrong] == []
    assert {end for end, _ in found} == {*ENDS}


@pytest.mark.campaign
def test_kills_and_endings_over_threads_lose_repeat_and_leave_nothing():
    asked = ("--kills", "20", "--endings", "150")
    done = run(["-m", "tests.campaigns.thread_runs", *asked], seconds=280)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    assert "0 samples lost, 0 repeated" in done.stdout
    (grown,) = re.findall(r"grown by them: threads (-?\d+), descriptors (-?\d+),", done.stdout)
    assert all(int(number) <= 0 for number in grown), done.stdout
