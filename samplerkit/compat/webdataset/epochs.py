"""Which epoch an iteration is: counted by a process together with the workers of its DataLoaders.

A DataLoader with workers never calls `__iter__` of the dataset in the main process: each worker has a copy,
and without `persistent_workers` these copies are gone after each epoch. So what was begun is noted in a file
without a name, which a process shares with its workers, and from which all read the same. It is opened when
a process first iterates, or is about to be forked or to spawn a worker: never when a dataset is made.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import tempfile
import weakref
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from multiprocessing import context, process, reduction
from typing import Any, final

from torch.utils.data import get_worker_info

from samplerkit.errors import WorkerError

MAIN = -1
"""Stands for the seed and the number of a worker where there is none: in the main process."""

SET = -2
"""Stands for the seed in a note that sets the epoch."""

UNSAID = -1
"""Stands for an epoch that follows from those before."""

_HINT = "let this process have more open files"

_NOTE = struct.Struct("<7q")


@dataclass(frozen=True)
class Note:
    """One line of a ledger.

    Args:
        seed: the base seed of the workers, which those that are started together share.
        start: how often workers with this seed were started before: a seed may come back.
        iteration: how often this process began to iterate before.
        worker: the number of the worker.
        birth: how many processes its parent had started before it, less that number: those that are started
            one after another share it.
        pid: its process.
        epoch: the epoch where it is said, else `UNSAID`.
    """

    seed: int
    start: int
    iteration: int
    worker: int
    birth: int
    pid: int
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
        self._start_at(first)

    def _start_at(self, first: int) -> None:
        self._first = first
        self._file: int | None = None
        self._owner = 0
        self._problem = ""
        self._said: int | None = None
        self._begun = (0, 0, 0)
        self._close: Callable[[], object] | None = None
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
        said, self._said = self._said, None
        epoch = said if epoch is None else epoch
        note = self._note(UNSAID if epoch is None else epoch)
        # First written, then read: whichever sibling was first, all find its note before their own. Nobody
        # has to wait for anybody, and there is no lock that a killed worker could leave behind.
        os.write(file, _NOTE.pack(*astuple(note)))
        return _replayed(self._notes(), self._first)[0][_key(note)]

    def set(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads: in a worker, the next one of that worker."""
        if get_worker_info() is not None:
            self._said = epoch
        else:
            os.write(self._opened(), _NOTE.pack(SET, 0, 0, MAIN, 0, os.getpid(), epoch))

    def share(self) -> None:
        """Makes the file, so that a worker that is about to be started finds it."""
        try:
            self._opened()
        except WorkerError as error:
            # This is no place to raise: the worker does.
            self._problem = error.problem

    def _opened(self) -> int:
        """Returns the file: of this process, and in a worker that of the process which made it."""
        is_mine = self._owner == os.getpid()
        # A process that was forked and is no worker goes its own way: it takes a file of its own below.
        if self._file is not None and (is_mine or get_worker_info() is not None):
            return self._file
        if self._problem and get_worker_info() is not None:
            raise WorkerError("epoch", self._problem, hint=_HINT)
        # Where the old file stood is where the new one begins, so what follows reads the old one first.
        first, file = self.next, _nameless_file()
        self._take(file, os.getpid())
        self._first, self._problem = first, ""
        return file

    def _take(self, file: int, owner: int) -> None:
        if self._close is not None:
            self._close()
        self._file, self._owner = file, owner
        self._close = weakref.finalize(self, os.close, file)

    def _note(self, epoch: int) -> Note:
        worker, pid = get_worker_info(), os.getpid()
        # torch draws one base seed for workers that start together, and adds to it the number of each.
        seed, number = (MAIN, MAIN) if worker is None else (worker.seed - worker.id, worker.id)
        birth = 0 if worker is None else process.current_process()._identity[-1] - number
        if self._begun[0] != pid:
            # Asked once a process: later notes of the same workers would look like an older start.
            start = 0 if worker is None else _start(self._notes(), seed, number, birth)
            self._begun = (pid, start, 0)
        _, start, iteration = self._begun
        self._begun = (pid, start, iteration + 1)
        return Note(seed, start, iteration, number, birth, pid, epoch)

    def _notes(self) -> list[Note]:
        if self._file is None:
            return []
        data = os.pread(self._file, os.fstat(self._file).st_size, 0)
        return [Note(*numbers) for numbers in _NOTE.iter_unpack(data)]

    def __getstate__(self) -> dict[str, Any]:
        if context.get_spawning_popen() is None or os.name != "posix":
            # A copy that goes its own way: a pickle, a deepcopy, or one on a system without file descriptors.
            return {"first": self.next}
        return {"first": self._first, "file": reduction.DupFd(self._opened()), "owner": self._owner}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._start_at(state["first"])
        if "file" in state:
            self._take(state["file"].detach(), state["owner"])


def _start(notes: Iterable[Note], seed: int, worker: int, birth: int) -> int:
    """Returns the number of the start, among those with its seed, with which a worker was started.

    Usually no seed comes back. Where torch is seeded before each epoch it does, and those who noted
    the last start are either our siblings, or of an epoch before. A worker of our number is no sibling. One
    that was started along with us is; where another thread started processes in between, one that lives is.
    """
    others = [note for note in notes if note.seed == seed]
    last = max((note.start for note in others), default=0)
    others = [note for note in others if note.start == last]
    if any(note.worker == worker for note in others):
        return last + 1
    are_siblings = any(note.birth == birth for note in others) or all(_is_alive(note.pid) for note in others)
    return last if are_siblings else last + 1


def _replayed(notes: Iterable[Note], following: int) -> tuple[dict[tuple[int, ...], int], int]:
    """Returns the epochs of all iterations that were begun, and the one that follows."""
    epochs: dict[tuple[int, ...], int] = {}
    for note in notes:
        if note.seed == SET:
            following = note.epoch
        elif _key(note) not in epochs:
            epochs[_key(note)] = following if note.epoch == UNSAID else note.epoch
            following = epochs[_key(note)] + 1
    return epochs, following


def _key(note: Note) -> tuple[int, ...]:
    """What the workers of one iteration share."""
    return note.seed, note.start, note.iteration


def _nameless_file() -> int:
    """Opens a file without a name; what is written to it is appended as a whole, whoever writes.

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


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True


_ledgers: weakref.WeakSet[EpochLedger] = weakref.WeakSet()


def _share_all() -> None:
    if get_worker_info() is None:
        for ledger in list(_ledgers):
            ledger.share()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_share_all)
