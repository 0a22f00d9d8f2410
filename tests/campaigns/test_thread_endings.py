"""Threads as workers, ended at random: nothing is lost, repeated or left behind.

These are samples of `python -m tests.campaigns.thread_endings 2000`; jobs over threads are killed in
`tests/loading/test_jobs.py`.
"""

from __future__ import annotations

import pytest

from tests.campaigns.thread_endings import ENDS, ended_at_random
from tests.programs import run


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a signal while one is closed
def test_after_any_end_of_an_iteration_over_threads_the_rest_of_the_epoch_follows():
    endings = [ended_at_random(seed) for seed in range(40)]
    assert [problem for _, wrong in endings for problem in wrong] == []
    assert {end for end, _ in endings} == {*ENDS}


@pytest.mark.campaign
def test_endings_over_threads_lose_repeat_and_leave_nothing():
    done = run(["-m", "tests.campaigns.thread_endings", "60"], seconds=280)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
