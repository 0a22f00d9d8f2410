"""Files that are opened, or are missing, and the batches without what is missing."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable, Iterable
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
