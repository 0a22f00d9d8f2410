"""Files of tokens, opened, and parts of them: each as long as was asked for, of files that stay the same."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, final

from samplerkit.errors import DatasetError
from samplerkit.storage.files.stored import Stored, looked_at
from samplerkit.storage.opening import Handle, Handles, open_for_reading
from samplerkit.storage.remote.access import RemoteAccess, Span

WantedBytes = tuple[int, int, Any]
"""The number of a file, the byte where the part begins, and the buffer that it is to fill."""


@final
class ByteFiles:
    """Reads parts of files, by `pread`, or by requests where a file is remote; nothing is mapped.

    Files are looked at when this is made. One that is written to later is an error, whatever of it is read.
    It may be used by several threads, and travels to other processes without what is open.

    Args:
        urls: paths and URLs.
        storage: fetches remote files.
        whole: whether remote files are fetched into the cache of this machine; else parts are asked for.

    Raises:
        DatasetError: a file is not there, or is no plain file.
    """

    def __init__(self, urls: Sequence[str], storage: RemoteAccess | None, *, whole: bool = False) -> None:
        self._storage: Final = None if whole else storage
        self.files: Final = looked_at(urls, storage)
        self._handles: Final = Handles(partial(_opened, self.files))

    def name(self, number: int) -> str:
        """Returns what errors call a file."""
        return self.files[number].name

    def peek(self, number: int, begin: int, length: int) -> bytes:
        """Reads a small part; a remote file is not fetched for it, though others of its parts may need it."""
        file = self.files[number]
        is_here = file.storage is None
        return self.read(number, begin, length) if is_here else file.read([(begin, length)])[0]

    def read(self, number: int, begin: int, length: int) -> bytes:
        """Reads a part.

        Raises:
            DatasetError: the file ends before, or was written to.
        """
        data = bytearray(length)
        self.fill([(number, begin, memoryview(data))])
        return bytes(data)

    def fill(self, parts: Iterable[WantedBytes]) -> None:
        """Reads parts straight into buffers; those of a file should stand together.

        Raises:
            DatasetError: a file ends before, or was written to.
        """
        far: list[WantedBytes] = []
        by_ranges, files = self._storage is not None, self.files
        current, begin, descriptor = -1, 0, -1
        handle: Handle | None = None
        preadv = os.preadv
        for number, begin, buffer in parts:
            if number != current:
                if handle is not None:
                    self._check(current, handle, begin)
                is_far = by_ranges and files[number].storage is not None
                handle, current = None if is_far else self._handles.get(number), number
                descriptor = -1 if handle is None else handle.descriptor
            if handle is None:
                far.append((number, begin, buffer))
                continue
            try:
                got = preadv(descriptor, (buffer,), begin)
            except OSError as error:
                problem = f"cannot be read at byte {begin} ({error.strerror})"
                raise DatasetError(self.name(number), problem) from error
            if got != buffer.nbytes:
                self._fill_slowly(number, descriptor, begin, buffer)
        # Behind the reading: what was read is of the file as it was.
        if handle is not None:
            self._check(current, handle, begin)
        if far and self._storage is not None:
            spans = [Span(files[number].path, begin, buffer.nbytes) for number, begin, buffer in far]
            for (_, _, buffer), data in zip(far, self._storage.read(spans), strict=True):
                memoryview(buffer).cast("B")[:] = data

    def close(self) -> None:
        """Lets go of what is open; it is opened again when it is needed."""
        self._handles.close()

    def _fill_slowly(self, number: int, descriptor: int, begin: int, buffer: Any) -> None:
        """Fills a buffer from the beginning; a signal may have cut the first attempt short."""
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view):
            got = os.preadv(descriptor, (view[done:],), begin + done)
            if not got:
                raise self._ended(number, os.fstat(descriptor).st_size, begin + len(view))
            done += got

    def _check(self, number: int, handle: Handle, begin: int) -> None:
        """Makes certain that an open file is still what it was."""
        file, status = self.files[number], os.fstat(handle.descriptor)
        if file.is_same(status):
            return
        if status.st_size < file.size:
            raise self._ended(number, status.st_size, file.size)
        what = f"grew from {file.size} to {status.st_size} bytes" if status.st_size > file.size else ""
        problem = f"{what or 'was written to'} while it was in use, as was seen at byte {begin}"
        raise DatasetError(file.name, problem, hint="make the dataset again when nobody writes to it")

    def _ended(self, number: int, end: int, wanted: int) -> DatasetError:
        file = self.files[number]
        problem = f"ends at byte {end}, was {file.size} bytes long, and is needed up to byte {wanted}"
        return DatasetError(file.name, problem, hint="it was cut meanwhile: fetch or make it again")


def _opened(files: Sequence[Stored], number: int) -> Handle:
    """Opens a file; of a remote one the copy, which is fetched if there is none."""
    file = files[number]
    if file.storage is None:
        return Handle(open_for_reading(file.path, file.path))
    # Once it is open, it may be evicted.
    with file.storage.fetch(file.path) as local:
        return Handle(open_for_reading(local.path, file.name), is_copy=True)
