"""Whether the tests would notice: bugs in threads as workers, planted one at a time.

Run it with `pytest -m campaign tests/campaigns/test_planted_thread_bugs.py`.
"""

from __future__ import annotations

import pytest

from tests.campaigns.planting import Bug, notices

pytestmark = pytest.mark.campaign

THREADS = "tests/loading/test_worker_threads.py"
COPIES = "tests/loading/test_thread_copies.py"
ENDINGS = "tests/loading/test_thread_endings.py"

BUGS = [
    Bug(
        "a dataset is told an epoch while it is read for another one",
        "_Desk._next",
        "self._idle.wait_for(lambda: not self._under_way)",
        "pass",
        f"{THREADS}::test_a_dataset_is_told_once_for_all_threads_and_never_while_it_is_read",
    ),
    Bug(
        "what was asked for last comes first",
        "ThreadedBatches._ask",
        "self._slots.append(slot)",
        "self._slots.appendleft(slot)",
        f"{THREADS}::test_draws_repeat_in_threads_and_a_thread_is_no_worker_of_torch",
    ),
    Bug(
        "threads share what asks for copies",
        "copied_by_thread",
        "made = make()",
        "made = dataset",
        f"{COPIES}::test_each_thread_reads_a_copy_of_a_dataset_that_asks_for_it_wherever_that_lies",
    ),
    Bug(
        "as many batches are under way as there are",
        "ThreadedBatches._ask",
        "len(self._slots) < self._ahead",
        "True",
        f"{THREADS}::test_batches_that_the_loop_has_not_asked_for_are_bounded",
    ),
    Bug(
        "nobody ends the threads",
        "end_together",
        "threads.stop()",
        "pass",
        f"{ENDINGS}::test_closing_and_breaking_end_the_threads",
    ),
    Bug(
        "one thread more than its turn makes a batch",
        "_Desk._taken",
        "self._under_way < self._plan.turns.at_once",
        "self._under_way <= self._plan.turns.at_once",
        "tests/loading/test_thread_turns.py::test_threads_that_hinder_one_another_take_turns_and_the_next_epoch_knows_it",
    ),
    Bug(
        "what is begun out of turn is a mistake",
        "Uses.begin",
        "islice(self._batches, MOST_OVERTAKEN)",
        "islice(self._batches, 1)",
        "tests/storage/files/test_uses_of_threads.py",
    ),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_noticed(bug):
    assert notices(bug)
