"""Bugs in threads as workers."""

from tests.campaigns.planting import Bug

THREADS = "tests/loading/test_worker_threads.py"
COPIES = "tests/loading/test_thread_turns.py"
LOADER_WORKERS = "tests/loading/test_loader_workers.py"

BUGS = [
    Bug(
        "a dataset receives an epoch while it is read for another one",
        "ThreadPool._next_task",
        "self._busy and maker.sets_epoch(task.request)",
        "False",
        f"{THREADS}::test_set_epoch_is_called_once_for_all_threads_and_never_during_a_read",
    ),
    Bug(
        "what was asked for last comes first",
        "BatchesInOrder._submit",
        "self._tasks.append(self._pool.submit(request))",
        "self._tasks.insert(0, self._pool.submit(request))",
        "tests/loading/test_loader_workers.py::test_a_resume_with_other_workers_continues_in_the_same_order",
    ),
    Bug(
        "threads share what asks for copies",
        "copy_by_thread",
        "clone = make()",
        "clone = dataset",
        f"{COPIES}::test_each_thread_reads_its_copy_of_a_dataset_that_needs_one_at_any_depth",
    ),
    Bug(
        "as many batches are under way as there are",
        "BatchesInOrder._submit",
        "len(self._tasks) < self._pool.ahead",
        "True",
        f"{THREADS}::test_batches_ahead_of_the_loop_are_bounded",
    ),
    Bug(
        "nobody ends the threads",
        "WorkerThreads.stop",
        "self.is_stopped = True",
        "pass",
        f"{LOADER_WORKERS}::test_closing_and_breaking_end_the_workers",
    ),
    Bug(
        "what is begun out of turn is a mistake",
        "Uses.begin",
        "islice(self._batches, MAX_OVERTAKEN)",
        "islice(self._batches, 1)",
        "tests/storage/files/test_reading_once.py",
    ),
]
