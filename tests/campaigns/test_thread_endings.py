"""Threads as workers, ended at random: nothing is lost, nothing comes again, and nothing is left.

These are samples of `python -m tests.campaigns.thread_endings 2000`; jobs over threads are killed in
`tests/loading/test_jobs.py`.
"""

import pytest

from tests.campaigns.thread_endings import ENDS, ended_at_random
from tests.programs import run


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a signal during a close
def test_after_any_end_of_an_iteration_over_threads_the_rest_of_the_epoch_follows():
    results = [ended_at_random(seed) for seed in range(40)]
    assert [problem for _, problems in results for problem in problems] == []
    assert {end for end, _ in results} == {*ENDS}


@pytest.mark.campaign
def test_endings_over_threads_lose_repeat_and_leave_nothing():
    done = run(["-m", "tests.campaigns.thread_endings", "60"], seconds=280)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
