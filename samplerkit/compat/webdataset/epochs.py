"""Counts the epochs of iterations, in a process together with the workers of its DataLoaders.

A DataLoader with workers never calls `__iter__` of the dataset in the main process: each worker has a copy,
and without `persistent_workers` these copies are gone after each epoch. So each iteration that begins is
noted in a nameless file that a process shares with its workers, and from which all compute the same epochs.
The file is opened when a process first iterates, or before it forks or spawns a worker; never when a dataset
is made.
"""

import fcntl
import os
import struct
import tempfile
import weakref
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing import context, process, reduction
from typing import Any, NamedTuple

from torch.utils.data import get_worker_info

from samplerkit.errors import WorkerError

MAIN = -1
"""The worker seed and worker number of the main process."""

SET = -2
"""The seed of a note that sets the epoch."""

UNSET = -1
"""The epoch of a note whose epoch follows from the notes before."""

_HINT = "raise the limit of open files of this process"

_MAX_CONCURRENT = 8
"""How many iterations with the same seed are searched for the siblings of a worker."""

_NOTE = struct.Struct("<6q")


class Note(NamedTuple):
    """One line of a ledger.

    Args:
        seed: the base seed, which workers that are started together share.
        iteration: how many iterations this process began before.
        worker: the number of the worker.
        workers: how many workers are started together.
        birth: how many processes its parent had started before it, minus `worker`: equal for workers that are
            started one after another.
        epoch: the epoch if it is given, else `UNSET`.
    """

    seed: int
    iteration: int
    worker: int
    workers: int
    birth: int
    epoch: int


class EpochLedger:
    """Counts the epochs of a dataset over the iterations of this process and of its workers.

    All workers that are started together begin the same epoch, whichever of them is first. Child processes
    that are not workers of a DataLoader count separately, beginning at the epoch of their parent.

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
        return self._first if self._file is None else _replay(self._notes(), self._first)[1]

    def begin(self, epoch: int | None = None) -> int:
        """Begins an iteration in this process.

        Args:
            epoch: the epoch of a loaded state; None for the next epoch.

        Returns:
            The epoch of the iteration.

        Raises:
            WorkerError: the file that is shared with the workers could not be opened.
        """
        file = self._open()
        note = self._note(UNSET if epoch is None else epoch)
        # First written, then read: all siblings find the note of the first one before their own. No process
        # waits for another, and there is no lock that a killed worker could leave locked.
        os.write(file, _NOTE.pack(*note))
        return _replay(self._notes(), self._first)[0][note]

    def set(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads; in a worker, its siblings begin it too."""
        os.write(self._open(), _NOTE.pack(SET, 0, MAIN, 0, 0, epoch))

    def _open(self) -> int:
        """Returns the file of this process, or in a worker the file of its parent process."""
        is_own, is_worker = self._owner == os.getpid(), get_worker_info() is not None
        # A forked process that is not a worker counts separately: it opens its own file below.
        if self._file is not None and (is_own or is_worker):
            return self._file
        if is_worker and not is_own:
            problem = "cannot be counted: the process that started this worker could open no file"
            raise WorkerError("epoch", problem, hint=_HINT)
        # The new file begins at the epoch of the old one, so `next` is read from the old one first.
        first, file = self.next, _nameless_file()
        self._set_file(file, os.getpid())
        self._first = first
        return file

    def _set_file(self, file: int, owner: int) -> None:
        self._file, self._owner = file, owner
        # A file that was inherited by a fork is closed with this object.
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
            # A copy that counts separately: a pickle or a deepcopy.
            return {"first": self.next}
        return {"first": self._first, "file": reduction.DupFd(self._open()), "owner": self._owner}

    def __setstate__(self, state: dict[str, Any]) -> None:
        EpochLedger.__init__(self, state["first"])
        if "file" in state:
            self._set_file(state["file"].detach(), state["owner"])


def _replay(notes: Iterable[Note], following: int) -> tuple[dict[Note, int], int]:
    """Returns the epochs of all iterations that were begun, and the next epoch.

    Siblings have the same seed. If torch is seeded before each epoch, seeds repeat; but workers of another
    epoch then have a `birth` that is larger by at least their number, and another thread that starts
    processes between siblings starts fewer.
    """
    epochs: dict[Note, int] = {}
    started: dict[tuple[int, int], list[list[Note]]] = {}
    for note in notes:
        if note.seed == SET:
            following = note.epoch
            continue
        groups = started.setdefault((note.seed, note.iteration), [])
        siblings = next((group for group in groups[:-_MAX_CONCURRENT:-1] if _is_sibling(note, group)), None)
        if siblings is None:
            groups.append([note])
            epochs[note] = following if note.epoch == UNSET else note.epoch
            following = epochs[note] + 1
        else:
            epochs[note] = epochs[siblings[0]]
            siblings.append(note)
    return epochs, following


def _is_sibling(note: Note, group: list[Note]) -> bool:
    is_near = abs(group[0].birth - note.birth) < note.workers
    return is_near and all(other.worker != note.worker for other in group)


def _nameless_file() -> int:
    """Opens a file without a name; each write is appended atomically, by any process.

    Raises:
        WorkerError: the file cannot be opened.
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
    for ledger in list(_ledgers):
        # An error here would be lost: the worker, which finds no file, raises it.
        with suppress(WorkerError):
            ledger._open()


os.register_at_fork(before=_share_all)
