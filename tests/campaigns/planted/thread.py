"""Bugs in threads as workers."""

from __future__ import annotations

from tests.campaigns.planting import Bug

THREADS = "tests/loading/test_worker_threads.py"
COPIES = "tests/loading/test_thread_copies.py"
LOADER_WORKERS = "tests/loading/test_loader_workers.py"

BUGS = [
    Bug(
        "a dataset receives an epoch while it is read for another one",
        "ThreadPool._next_task",
        "self._busy and reader.sets_epoch(task.request)",
        "False",
        f"{THREADS}::test_a_dataset_is_told_once_for_all_threads_and_never_while_it_is_read",
    ),
    Bug(
        "what was asked for last comes first",
        "BatchesInOrder._submit",
        "self._tasks.append(self._pool.submit(request))",
        "self._tasks.insert(0, self._pool.submit(request))",
        "tests/loading/test_loader_workers.py::test_a_resume_with_other_workers_goes_on_in_the_same_order",
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
        "BatchesInOrder._submit",
        "len(self._tasks) < self._pool.ahead",
        "True",
        f"{THREADS}::test_batches_that_the_loop_has_not_asked_for_are_bounded",
    ),
    Bug(
        "nobody ends the threads",
        "ThreadPool.stop",
        "self._is_stopped = True",
        "pass",
        f"{LOADER_WORKERS}::test_closing_and_breaking_end_the_workers",
    ),
    Bug(
        "what is begun out of turn is a mistake",
        "Uses.begin",
        "islice(self._batches, MOST_OVERTAKEN)",
        "islice(self._batches, 1)",
        "tests/storage/files/test_reading_once.py",
    ),
]
