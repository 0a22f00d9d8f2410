"""Files that are opened and held open, or are missing, and the batches without what is missing."""

from __future__ import annotations

import errno
import logging
import os
import resource
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, final

from samplerkit.errors import DatasetError
from samplerkit.order.draws import in_draws
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids

ERRNOS = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EACCES,
        errno.EPERM,
        errno.EIO,
        errno.ESTALE,
        errno.ELOOP,
        errno.ENAMETOOLONG,
    }
)
"""What a system says of a file that is not there or cannot be read, and that is no fault of the process."""


class AbsentError(DatasetError):
    """A file is not there or may not be read, or a sample that was listed for one is not in it."""

    @property
    def absent_from(self) -> str:
        """The file: who leaves its samples out says so once for all of them."""
        return self.place


def unopened(name: str, what: str, error: OSError) -> DatasetError:
    """Returns the error for a file that cannot be opened, which is absent or not."""
    kind = AbsentError if error.errno in ERRNOS else DatasetError
    hint = "put it there again, or leave it out of the dataset" if error.errno == errno.ENOENT else ""
    return kind(name, f"{what} ({error.strerror})", hint=hint)


def unwritable(folder: Path, error: OSError) -> DatasetError:
    """Gives the error for a cache folder that cannot be written to."""
    if isinstance(error, FileNotFoundError):
        hint = "leave it alone while it is in use, and start again"
        return DatasetError("cache", "was emptied while it was in use", str(folder), hint=hint)
    return DatasetError(
        "cache", f"cannot be written to ({error.strerror})", str(folder), hint="say cache=FOLDER"
    )


def opened(path: str) -> BinaryIO:
    """Opens a file for reading: what all readers of this package go through.

    Raises:
        DatasetError: it is a pipe or a device, which might be waited for without end.
    """
    file = open(path, "rb", opener=without_waiting)  # noqa: SIM115  # Path.open takes no opener
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise DatasetError(path, "is no plain file", hint="give the files themselves")
    return file


def without_waiting(path: str, flags: int) -> int:
    """Opens a file for `open`, at once: a pipe of its name may have no writer."""
    return os.open(path, flags | os.O_NONBLOCK)


MOST_OPEN = 256
"""Open files of a dataset in a process, unless said otherwise and if the system allows as many."""


@final
class Handle:
    """An open file, closed when it is no longer held: a thread may still read what was dropped.

    Args:
        descriptor: the file descriptor.
        is_copy: whether it is of a copy in the cache, which may be evicted meanwhile.
    """

    __slots__ = ("_is_copy", "descriptor")

    def __init__(self, descriptor: int, *, is_copy: bool = False) -> None:
        self.descriptor = descriptor
        self._is_copy = is_copy

    @property
    def is_evicted(self) -> bool:
        """Whether it holds room on the disk of a copy that is not in the cache any more."""
        return self._is_copy and os.fstat(self.descriptor).st_nlink == 0

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # The interpreter's end may clear this module before it lets go of the last files.
        close(self.descriptor)


def read_part(descriptor: int, offset: int, length: int) -> bytes:
    """Reads a part of an open file; less of it where the file ends before."""
    data = os.pread(descriptor, length, offset)
    if len(data) == length:
        return data
    pieces, have = [data], len(data)  # Linux reads at most 2 GiB by one call
    while have < length and pieces[-1]:
        pieces.append(os.pread(descriptor, length - have, offset + have))
        have += len(pieces[-1])
    return b"".join(pieces)


@final
class Handles:
    """Opens files by number, and keeps at most so many open.

    It can be used by several threads, and is copied to other processes empty. A forked process may use the
    descriptors that it inherits, for reading at a given place does not move them.

    Args:
        open_file: opens the file of a number.
        most: how many stay open; None for 256, or a quarter of what the system allows if that is less.
    """

    def __init__(self, open_file: Callable[[int], Handle], most: int | None = None) -> None:
        self._open_file = open_file
        self._most = most
        self._limit = most
        self._held: OrderedDict[int, Handle] = OrderedDict()
        self._lock = threading.Lock()
        self._process = os.getpid()

    def get(self, number: int) -> Handle:
        """Returns the open file of a number; hold the handle while reading.

        Raises:
            DatasetError: the file cannot be opened, or was changed.
        """
        if self._process != os.getpid():
            # Another thread of the parent may have held the lock at the fork.
            self._lock, self._process = threading.Lock(), os.getpid()
        with self._lock:
            handle = self._held.get(number)
            if handle is not None:
                self._held.move_to_end(number)
                return handle
            if self._limit is None:
                self._limit = open_at_most(MOST_OPEN, 0.25)
            while len(self._held) >= self._limit:
                self._held.popitem(last=False)
            for other in [other for other, held in self._held.items() if held.is_evicted]:
                del self._held[other]
            handle = self._held[number] = self._open_file(number)
            return handle

    def close(self) -> None:
        """Drops all handles."""
        self._held = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def __reduce__(self) -> tuple[Any, ...]:
        return Handles, (self._open_file, self._most)


def open_at_most(most: int, share: float) -> int:
    """Returns how many files may stay open: so many, or a share of those that still may if that is less."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return most
    with suppress(OSError):  # where nothing says what is open
        soft -= len([*Path("/dev/fd").iterdir()])
    return max(1, min(most, int(share * soft)))


def open_for_reading(path: str, shown: str) -> int:
    """Opens a file.

    Raises:
        AbsentError: it is not there, or may not be read; `shown` is its name there.
        DatasetError: it cannot be opened, or is a copy, and the cache was emptied.
    """
    try:
        # Without waiting: a pipe of its name may have no writer.
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if path != shown and isinstance(error, FileNotFoundError):
            # The copy is gone and not the archive: nobody is to leave its samples out.
            raise unwritable(Path(path).parent, error) from error
        raise unopened(shown, "cannot be opened", error) from error


def plain_file(path: str, name: str | None = None) -> os.stat_result:
    """Looks at a file.

    Args:
        path: where it is.
        name: what errors call it; None for the path.

    Raises:
        AbsentError: it is not there, may not be read, or is no plain file.
        DatasetError: it cannot be looked at.
    """
    try:
        status = os.stat(path)  # noqa: PTH116  # Path's own is slow
    except OSError as error:
        raise unopened(name or path, "cannot be read", error) from error
    except ValueError as error:  # a null byte
        raise AbsentError(name or path, f"cannot be the path of a file ({error})") from error
    if not stat.S_ISREG(status.st_mode):
        raise AbsentError(name or path, "is no plain file", hint="give the files themselves")
    return status


_LOGGER = logging.getLogger(__name__)

MOST_TRIED = 64
"""Shards in which a sample is looked for that replaces a batch of which nothing is there."""


@final
class Present(list[Any]):
    """The samples of a batch that are there.

    Attributes:
        missing: of each other one its place in the batch, the shard, and what is wrong, in words.
        stand_in: the id of the only sample here, where all of the batch is missing: a step needs a batch, and
            ranks need equal numbers of steps; else None.
    """

    def __init__(self, samples: Iterable[Any]) -> None:
        super().__init__()
        self.missing: list[tuple[int, str, str]] = []
        self.stand_in: int | None = None
        for place, sample in enumerate(samples):
            if isinstance(sample, AbsentError):
                self.missing.append((place, sample.place, str(sample)))
            else:
                self.append(sample)

    def fill(self, ids: Ids, layout: Layout, sample_of: Callable[[int], Any]) -> None:
        """Takes a sample if there is none: the first one of the first id's shard, or of the next that has it.

        Raises:
            DatasetError: many shards one after another lack theirs: then something larger is broken.
        """
        if self or not self.missing:
            return
        shard = int(layout.file_of(ids[:1])[0])
        tried = 0
        for number in (*range(shard, layout.num_files), *range(shard)):
            if layout.sizes[number]:
                first = int(layout.starts[number])
                (sample,) = in_draws(sample_of, [first], [0], ids.size)
                if not isinstance(sample, AbsentError):
                    self.append(sample)
                    self.stand_in = first
                    return
                tried += 1
                if tried == MOST_TRIED:
                    break
        _, place, text = self.missing[0]
        problem = f"{text.removeprefix(f'{place}: ')}. None of {tried} shards has a sample to make a batch of"
        raise DatasetError(place, problem, hint="see whether the shards can be reached")


def log_missing(missing: Iterable[tuple[int, str, str]], told: set[str]) -> None:
    """Logs what is missing, once a shard.

    Args:
        missing: as in `Present`.
        told: the shards that were logged before; it grows.
    """
    for _, shard, text in missing:
        if shard not in told:
            told.add(shard)
            _LOGGER.warning("left out: %s", text)


REWRITE = "fetch or write the file again"
