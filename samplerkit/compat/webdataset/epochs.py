"""Which epoch an iteration is: counted by a process together with the workers of its DataLoaders.

A DataLoader with workers never calls `__iter__` of the dataset in the main process: each worker has a copy,
and without `persistent_workers` these copies are gone after each epoch. So what was begun is noted in a file
without a name, which a process shares with its workers, and from which all read the same. It is opened when
a process first iterates, or is about to be forked or to spawn a worker: never when a dataset is made.
"""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
import weakref
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing import context, process, reduction
from typing import Any, NamedTuple, final

from torch.utils.data import get_worker_info

from samplerkit.errors import WorkerError

MAIN = -1
"""Stands for the seed and the number of a worker where there is none: in the main process."""

SET = -2
"""Stands for the seed in a note that sets the epoch."""

UNSAID = -1
"""Stands for an epoch that follows from those before."""

_HINT = "let this process have more open files"

_MOST_AT_ONCE = 8
"""Iterations with workers of one seed among which a worker looks for its siblings."""

_NOTE = struct.Struct("<6q")


class Note(NamedTuple):
    """One line of a ledger.

    Args:
        seed: the base seed of the workers, which those that are started together share.
        iteration: how often this process began to iterate before.
        worker: the number of the worker.
        workers: how many are started together.
        birth: how many processes its parent had started before it, less that number: those that are started
            one after another share it.
        epoch: the epoch where it is said, else `UNSAID`.
    """

    seed: int
    iteration: int
    worker: int
    workers: int
    birth: int
    epoch: int


@final
class EpochLedger:
    """Counts the epochs of a dataset over the iterations of this process and of its workers.

    All workers that are started together begin the same epoch, whichever of them is first. The processes that
    are no workers of a DataLoader count for themselves, from where the process stood that made them.

    Args:
        first: the first epoch.

    Example:
        >>> epochs = EpochLedger()
        >>> [epochs.begin(), epochs.begin()]
        [0, 1]
        >>> epochs.set(7)
        >>> [epochs.begin(), epochs.next]
        [7, 8]
    """

    def __init__(self, first: int = 0) -> None:
        self._first = first
        self._file: int | None = None
        self._owner = os.getpid()
        self._iterations = 0
        _ledgers.add(self)

    @property
    def next(self) -> int:
        """The epoch that the next iteration reads."""
        return self._first if self._file is None else _replayed(self._notes(), self._first)[1]

    def begin(self, epoch: int | None = None) -> int:
        """Begins an iteration in this process.

        Args:
            epoch: the epoch that it has to be, for a loaded state; None for the next one.

        Returns:
            Its epoch.

        Raises:
            WorkerError: the file that is shared with the workers could not be made.
        """
        file = self._opened()
        note = self._note(UNSAID if epoch is None else epoch)
        # First written, then read: whichever sibling was first, all find its note before their own. Nobody
        # has to wait for anybody, and there is no lock that a killed worker could leave behind.
        os.write(file, _NOTE.pack(*note))
        return _replayed(self._notes(), self._first)[0][note]

    def set(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads, also in a worker: those beside it begin the same."""
        os.write(self._opened(), _NOTE.pack(SET, 0, MAIN, 0, 0, epoch))

    def _opened(self) -> int:
        """Returns the file: of this process, and in a worker that of the process which made it."""
        is_mine, is_worker = self._owner == os.getpid(), get_worker_info() is not None
        # A process that was forked and is no worker goes its own way: it takes a file of its own below.
        if self._file is not None and (is_mine or is_worker):
            return self._file
        if is_worker and not is_mine:
            problem = "cannot be counted: the process that started this worker could open no file"
            raise WorkerError("epoch", problem, hint=_HINT)
        # Where the old file stood is where the new one begins, so what follows reads the old one first.
        first, file = self.next, _nameless_file()
        self._take(file, os.getpid())
        self._first = first
        return file

    def _take(self, file: int, owner: int) -> None:
        self._file, self._owner = file, owner
        # One that a fork has left behind is closed with it.
        weakref.finalize(self, os.close, file)

    def _note(self, epoch: int) -> Note:
        worker, iteration = get_worker_info(), self._iterations
        self._iterations += 1
        if worker is None:
            return Note(MAIN, iteration, MAIN, 0, 0, epoch)
        birth = process.current_process()._identity[-1] - worker.id
        # torch draws one base seed for workers that start together, and adds to it the number of each.
        return Note(worker.seed - worker.id, iteration, worker.id, worker.num_workers, birth, epoch)

    def _notes(self) -> list[Note]:
        if self._file is None:
            return []
        data = os.pread(self._file, os.fstat(self._file).st_size, 0)
        return [Note(*numbers) for numbers in _NOTE.iter_unpack(data)]

    def __getstate__(self) -> dict[str, Any]:
        if context.get_spawning_popen() is None:
            # A copy that goes its own way: a pickle or a deepcopy.
            return {"first": self.next}
        return {"first": self._first, "file": reduction.DupFd(self._opened()), "owner": self._owner}

    def __setstate__(self, state: dict[str, Any]) -> None:
        EpochLedger.__init__(self, state["first"])
        if "file" in state:
            self._take(state["file"].detach(), state["owner"])


def _replayed(notes: Iterable[Note], following: int) -> tuple[dict[Note, int], int]:
    """Returns the epochs of all iterations that were begun, and the one that follows.

    Siblings have one seed. Where torch is seeded before each epoch the same seed comes back, but workers of
    another epoch are born later by at least their number, and another thread that starts processes between
    siblings starts fewer.
    """
    epochs: dict[Note, int] = {}
    started: dict[tuple[int, int], list[list[Note]]] = {}
    for note in notes:
        if note.seed == SET:
            following = note.epoch
            continue
        groups = started.setdefault((note.seed, note.iteration), [])
        siblings = next((group for group in groups[:-_MOST_AT_ONCE:-1] if _is_of(note, group)), None)
        if siblings is None:
            groups.append([note])
            epochs[note] = following if note.epoch == UNSAID else note.epoch
            following = epochs[note] + 1
        else:
            epochs[note] = epochs[siblings[0]]
            siblings.append(note)
    return epochs, following


def _is_of(note: Note, group: list[Note]) -> bool:
    is_near = abs(group[0].birth - note.birth) < note.workers
    return is_near and all(other.worker != note.worker for other in group)


def _nameless_file() -> int:
    """Opens a file without a name; each write is appended as a whole, from any process.

    Raises:
        WorkerError: it cannot be opened.
    """
    try:
        if hasattr(os, "memfd_create"):
            file = os.memfd_create("samplerkit-epochs")
        else:
            with tempfile.TemporaryFile(prefix="samplerkit-epochs") as temporary:
                file = os.dup(temporary.fileno())
    except OSError as error:
        raise WorkerError("epoch", f"cannot be counted without a file ({error})", hint=_HINT) from error
    fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_APPEND)
    return file


_ledgers: weakref.WeakSet[EpochLedger] = weakref.WeakSet()


def _share_all() -> None:
    if get_worker_info() is None:
        for ledger in list(_ledgers):
            # This is no place to raise: the worker does, which finds no file.
            with suppress(WorkerError):
                ledger._opened()


os.register_at_fork(before=_share_all)
