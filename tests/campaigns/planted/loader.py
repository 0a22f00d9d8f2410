"""Bugs in the loader and its workers, and those of them that tests over threads alone must notice."""

from __future__ import annotations

from tests.campaigns.planting import Bug

LOADER = "tests/loading/test_loader.py"
CURSOR = "tests/loading/test_cursor_machine.py"
LOADERS = f"{LOADER} tests/loading/test_loader_states.py tests/loading/test_loader_workers.py"

AFFINITY = "tests/loading/test_file_affinity.py"

BUGS = [
    Bug(
        "the parts of a batch stand one after another",
        "joined",
        "np.argsort(np.concatenate([places for places, _ in there]))",
        "np.arange(sum(places.size for places, _ in there))",
        f"{AFFINITY}::test_each_file_is_read_by_one_worker_and_the_draws_stay",
    ),
    Bug(
        "a part goes to the worker whose turn it is",
        "AffineProcesses.shares_of",
        "(share.worker, share)",
        "(next(self._turn), share)",
        f"{AFFINITY}::test_each_file_is_read_by_one_worker_and_the_draws_stay",
    ),
    Bug(
        "a skipped sample is told by its place in its part",
        "joined",
        "share.place(one.place)",
        "one.place",
        f"{AFFINITY}::test_shares_put_together_are_the_batch",
    ),
    Bug(
        "a worker looks ahead from the beginning of the deal",
        "ShareRequest.upcoming",
        "batches(0, 1)",
        "batches(self.step, 1)",
        f"{AFFINITY}::test_shares_put_together_are_the_batch",
    ),
    Bug(
        "a copy of a loader is under way",
        "Iteration.__getstate__",
        "{**self.__dict__, 'is_open': False}",
        "self.__dict__",
        "tests/loading/test_copies.py",
    ),
    Bug(
        "a second iterator forgets the epoch that was set",
        "Cursor.upcoming",
        "at, beyond = self.at, self._beyond()",
        "at, beyond = self.at, None",
        CURSOR,
    ),
    Bug(
        "a break forgets the epoch that was set",
        "Cursor._beyond",
        "self.next_epoch is not None and self.next_epoch != at.epoch",
        "False",
        LOADERS,
    ),
    Bug(
        "the state at the end forgets the epoch that was set",
        "Cursor._end_of",
        "self.next_epoch is not None",
        "False",
        CURSOR,
    ),
    Bug(
        "close stays at the end of an epoch",
        "Loader.close",
        "self._cursor.end(self._cursor.at)",
        "self._cursor.at.is_open = False",
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
        "a batch counts too late",
        "Loader.iterate_on",
        "iteration.taken = step + 1",
        "iteration.taken = step",
        LOADERS,
    ),
    Bug(
        "what is prefetched counts",
        "Loader.state_dict",
        "self._cursor.state(step)",
        "self._cursor.state(step or self._cursor.at.taken + 2 * self.num_workers)",
        "tests/loading/test_loader_workers.py::test_a_resume_with_other_workers_goes_on_in_the_same_order",
    ),
    Bug(
        "a loaded state starts over",
        "RunCursor.restore",
        "self.load(state.place, Past.of(state))",
        "self.go_to(state.epoch)",
        CURSOR,
    ),
    Bug(
        "a second iterator leaves the first one open",
        "Cursor._move",
        "left.is_open = False",
        "pass",
        CURSOR,
    ),
    Bug(
        "set_epoch forgets a restored position",
        "Cursor.set_epoch",
        "epoch == at.epoch and not is_over and (at.is_spent or epoch != at.ended)",
        "False",
        LOADERS,
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
        'not _is_text(saved.get("checksum"), _checksum({"schema": schema, **values}))',
        'not saved.get("checksum")',
        LOADERS,
    ),
    Bug(
        "the epoch does not reach the dataset",
        "SampleReader._begin_epoch",
        "set_epoch(epoch)",
        "set_epoch(0)",
        LOADERS,
    ),
    Bug(
        "workers share their random state",
        "seed_worker",
        'struct.pack("<QQQQ", seed, epoch, rank, worker)',
        'struct.pack("<QQQQ", seed, epoch, rank, 0)',
        LOADERS,
    ),
    Bug(
        "ranks share their random state",
        "seed_worker",
        'struct.pack("<QQQQ", seed, epoch, rank, worker)',
        'struct.pack("<QQQQ", seed, epoch, 0, worker)',
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
    "the parts of a batch stand one after another": "threads share all files: none is a worker's own",
    "a part goes to the worker whose turn it is": "the same",
    "a skipped sample is told by its place in its part": "the same",
    "a worker looks ahead from the beginning of the deal": "the same",
    "workers share their random state": "a thread has no random state of its own: `seed_draws` is refused",
    "ranks share their random state": "the same",
    "a worker's error is swallowed": "threads hand the error itself over, elsewhere",
    "a second iterator leaves the first one open": "threads that were ended refuse the older iteration too",
}
"""What cannot go wrong over threads, and why."""

OVER_THREADS = [bug for bug in BUGS if bug.name not in {*PROCESSES_ONLY, "damage is not looked for"}]
"""Of what no worker has a part in, damage shows before anything is read."""
