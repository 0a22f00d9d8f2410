"""Bugs in the loader and its workers, and those of them that tests over threads alone must notice."""

from tests.campaigns.planting import Bug

LOADER = "tests/loading/test_loader.py"
CURSOR = "tests/loading/test_cursor_machine.py"
LOADERS = f"{LOADER} tests/loading/test_loader_states.py tests/loading/test_loader_workers.py"

AFFINITY = "tests/loading/test_file_affinity.py"

BUGS = [
    Bug(
        "a part goes to the worker whose turn it is",
        "AffineProcesses.shares_of",
        "self._affinity.shares_of(request)",
        "[(request.step % self._number, share) for _, share in self._affinity.shares_of(request)]",
        f"{AFFINITY}::test_each_file_is_read_by_one_worker_and_the_draws_stay",
    ),
    Bug(
        "a skipped sample is told by its place in its part",
        "joined",
        "share.place(one.place)",
        "one.place",
        f"{AFFINITY}::test_joined_shares_are_the_batch",
    ),
    Bug(
        "a second iterator forgets the epoch that was set",
        "Cursor.upcoming",
        "current, following = self.current, self._following()",
        "current, following = self.current, None",
        CURSOR,
    ),
    Bug(
        "a break forgets the epoch that was set",
        "Cursor._following",
        "self.next_epoch is not None and self.next_epoch != now.epoch",
        "False",
        LOADERS,
    ),
    Bug(
        "a batch counts before it is handed out",
        "Loader.iterate_on",
        "iteration.taken = step + 1",
        "iteration.taken = step + 2",
        LOADERS,
    ),
    Bug(
        "what is prefetched counts",
        "Loader.state_dict",
        "self._cursor.state(step)",
        "self._cursor.state(step or self._cursor.current.taken + 2 * self.num_workers)",
        "tests/loading/test_loader_workers.py::test_a_resume_with_other_workers_continues_in_the_same_order",
    ),
    Bug(
        "a loaded state starts over",
        "RunCursor.restore",
        "self.load(state.place, past)",
        "self.go_to(state.epoch)",
        CURSOR,
    ),
    Bug(
        "an epoch never ends",
        "Cursor._end_of",
        "epoch + (self._advances or self.was_set)",
        "epoch",
        LOADERS,
    ),
    Bug(
        "damage is not looked for",
        "State.from_dict",
        'not _is_text(checksum, _checksum({"schema": schema, **values}))',
        'not saved.get("checksum")',
        LOADERS,
    ),
    Bug(
        "the epoch does not reach the dataset",
        "BatchMaker.begin",
        "set_epoch(request.epoch)",
        "set_epoch(0)",
        LOADERS,
    ),
    Bug(
        "a worker's error is swallowed",
        "WorkerProcesses._answer",
        "answer.reraise()",
        "return Answer([])",
        "tests/loading/test_sending.py",
    ),
]


PROCESSES_ONLY = {
    "a part goes to the worker whose turn it is": "threads share all files: none is a worker's own",
    "a skipped sample is told by its place in its part": "the same",
    "a worker's error is swallowed": "threads hand the error itself over, elsewhere",
}
"""What cannot go wrong over threads, and why."""

OVER_THREADS = [bug for bug in BUGS if bug.name not in {*PROCESSES_ONLY, "damage is not looked for"}]
"""Of what no worker has a part in, damage shows before anything is read."""
