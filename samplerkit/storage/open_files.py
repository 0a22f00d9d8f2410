"""Opening files and keeping them open; missing files, and batches without missing samples."""

import errno
import logging
import os
import resource
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.caching import Latest
from samplerkit.order.draws import in_draws
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids

MISSING_ERRNOS = {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE}
"""Error numbers that mean that a file is missing or unreadable, and not that the process is at fault."""


class AbsentError(DatasetError):
    """A file is missing or may not be read, or lacks a sample that it should have."""

    @property
    def absent_from(self) -> str:
        """The file; skipping its samples is logged once per file."""
        return self.place


def file_error(name: str, problem: str, error: OSError) -> DatasetError:
    """Returns the error for a file that cannot be opened: an `AbsentError` if it is missing."""
    kind = AbsentError if error.errno in MISSING_ERRNOS else DatasetError
    hint = MISSING if error.errno == errno.ENOENT else ""
    return kind(name, f"{problem} ({error.strerror})", hint=hint)


def cache_error(folder: Path, error: OSError) -> DatasetError:
    """Returns the error for a cache folder that cannot be written to or locked."""
    if isinstance(error, FileNotFoundError):
        hint = "do not change it while it is in use, and start again"
        return DatasetError("cache", "was emptied while it was in use", str(folder), hint=hint)
    problem = f"cannot be written to or locked ({error.strerror})"
    return DatasetError("cache", problem, str(folder), hint="use cache=FOLDER, on a disk of this machine")


def open_regular(path: str) -> BinaryIO:
    """Opens a file for reading; all readers of this package call it.

    Raises:
        DatasetError: the file is a pipe or a device, for which reading might block forever.
    """
    file = open(path, "rb", opener=open_nonblocking)  # noqa: SIM115  # Path.open takes no opener
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise DatasetError(path, "is not a regular file", hint="give the files themselves")
    return file


def open_nonblocking(path: str, flags: int) -> int:
    """Opens a file without blocking, as `opener` of `open`: it may be a pipe that has no writer."""
    return os.open(path, flags | os.O_NONBLOCK)


MAX_OPEN = 256
"""Files that a dataset holds open in a process by default, if the system allows as many."""


class Handle:
    """An open file that is closed when it is garbage collected, since a thread may still read it.

    Args:
        descriptor: the file descriptor.
        is_copy: whether the file is a copy in the cache, which may be evicted meanwhile.
    """

    __slots__ = ("_is_copy", "descriptor")

    def __init__(self, descriptor: int, *, is_copy: bool = False) -> None:
        self.descriptor = descriptor
        self._is_copy = is_copy

    @property
    def is_evicted(self) -> bool:
        """Whether it is a copy that was evicted from the cache, but takes disk space while it is open."""
        return self._is_copy and os.fstat(self.descriptor).st_nlink == 0

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # At exit, the interpreter may clear this module before it deletes the last handles.
        close(self.descriptor)


def read_part(descriptor: int, offset: int, length: int) -> bytes:
    """Reads a part of an open file; returns fewer bytes if the file ends earlier."""
    data = os.pread(descriptor, length, offset)
    if len(data) == length:
        return data
    pieces, size = [data], len(data)  # Linux reads at most 2 GiB per call
    while size < length and pieces[-1]:
        pieces.append(os.pread(descriptor, length - size, offset + size))
        size += len(pieces[-1])
    return b"".join(pieces)


class Handles:
    """Opens files by number, and keeps those open that were opened last.

    It is thread-safe; pickled copies are empty. A forked process may use the descriptors that it inherits,
    since reading at an offset does not move them.

    Args:
        open_file: opens the file of a number.
        max_open: the most open files; None for 256, or a quarter of what the system allows if that is less.
    """

    def __init__(self, open_file: Callable[[int], Handle], max_open: int | None = None) -> None:
        self._open_file = open_file
        self._latest = Latest[Handle](max_open or open_at_most(MAX_OPEN, 0.25))

    def get(self, number: int) -> Handle:
        """Returns the open file of a number. The caller must keep the handle while reading.

        Raises:
            DatasetError: the file cannot be opened, or was changed.
        """
        return self._latest.get(number, partial(self._opened, number))

    def close(self) -> None:
        """Drops all handles."""
        self._latest.clear()

    def _opened(self, number: int) -> Handle:
        if any(handle.is_evicted for _, handle in self._latest.items()):
            self.close()  # else the copy would take space on the disk
        return self._open_file(number)


def open_at_most(limit: int, share: float) -> int:
    """Returns the smaller of `limit` and a share of the files that the process may still open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return limit
    with suppress(OSError):  # systems without /dev/fd
        soft -= len([*Path("/dev/fd").iterdir()])
    return max(1, min(limit, int(share * soft)))


def open_for_reading(path: str, shown: str) -> Handle:
    """Opens a file.

    Args:
        path: the path of the file, or of its copy in the cache.
        shown: the name of the file in errors.

    Raises:
        AbsentError: the file is missing or may not be read.
        DatasetError: the file cannot be opened, or the cache with its copy was emptied.
    """
    try:
        return Handle(open_nonblocking(path, os.O_RDONLY), is_copy=path != shown)
    except OSError as error:
        if path != shown and isinstance(error, FileNotFoundError):
            # The copy is missing, not the archive, so its samples must not be skipped.
            raise cache_error(Path(path).parent, error) from error
        raise file_error(shown, "cannot be opened", error) from error


def plain_file(path: str) -> os.stat_result:
    """Returns the status of a regular file.

    Raises:
        AbsentError: the file is missing, may not be read, or is not a regular file.
        DatasetError: its status cannot be read.
    """
    try:
        status = os.stat(path)  # noqa: PTH116  # Path's own is slow
    except OSError as error:
        raise file_error(path, "cannot be read", error) from error
    except ValueError as error:  # a null byte
        raise AbsentError(path, f"cannot be the path of a file ({error})") from error
    if not stat.S_ISREG(status.st_mode):
        raise AbsentError(path, "is not a regular file", hint="give the files themselves")
    return status


_LOGGER = logging.getLogger(__name__)

MAX_TRIED = 64
"""Shards that are searched for a sample to replace a batch whose samples are all missing."""


class Samples(list[Any]):
    """The samples of a batch without the missing ones.

    Attributes:
        missing: for each missing sample its position in the batch, the shard, and the problem as text.
        substitute: the id of the only sample in the list, which replaces a batch that is missing completely,
            since a step needs a batch and ranks need equal numbers of steps; otherwise None.
    """

    def __init__(self, samples: Iterable[Any]) -> None:
        super().__init__()
        self.missing: list[tuple[int, str, str]] = []
        self.substitute: int | None = None
        for place, sample in enumerate(samples):
            if isinstance(sample, AbsentError):
                self.missing.append((place, sample.place, str(sample)))
            else:
                self.append(sample)

    def fill(self, ids: Ids, layout: Layout, sample_of: Callable[[int], Any]) -> None:
        """Adds a sample if all are missing: the first one of the shard of the first id, or of a later shard.

        Raises:
            DatasetError: the first samples of many consecutive shards are missing, so the storage is broken.
        """
        if self or not self.missing:
            return
        shards = np.flatnonzero(layout.sizes)
        at = np.searchsorted(shards, layout.file_of(ids[:1])[0])
        tried = layout.starts[np.roll(shards, -at)[:MAX_TRIED]].tolist()
        for first in tried:
            (sample,) = in_draws(sample_of, [first], [0], ids.size)
            if not isinstance(sample, AbsentError):
                self.append(sample)
                self.substitute = first
                return
        _, place, text = self.missing[0]
        reason = text.removeprefix(f"{place}: ")
        problem = f"{reason}. None of {len(tried)} shards has a sample to make a batch of"
        raise DatasetError(place, problem, hint="check that the shards can be read")


def log_missing(missing: Iterable[tuple[int, str, str]], logged: set[str]) -> None:
    """Logs missing samples, once per shard.

    Args:
        missing: as in `Samples`.
        logged: the shards that were logged already; new ones are added.
    """
    for _, shard, text in missing:
        if shard not in logged:
            logged.add(shard)
            _LOGGER.warning("left out: %s", text)


REWRITE = "fetch or write the file again"
MISSING = "restore it, or leave it out of the dataset"
