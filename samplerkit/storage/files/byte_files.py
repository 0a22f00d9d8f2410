"""Many files, open, and parts of them: each as long as was asked for, of files that stay the same."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, final

from samplerkit.storage.files.stored import ByteSpan, Stored
from samplerkit.storage.opening import Handle, Handles, unopened
from samplerkit.storage.remote.access import RemoteAccess, Span

WantedBytes = tuple[int, int, Any]
"""The number of a file, the byte where the part begins, and the buffer that it is to fill."""


@final
class ByteFiles:
    """Reads parts of files, by `pread`, or by requests where a file is remote; nothing is mapped.

    A file that was written to since it was looked at is an error, whatever of it is read. This may be used by
    several threads, and travels to other processes without what is open.

    Args:
        files: as they were when they were looked at.
        storage: is asked for parts of remote files; None fetches these whole, into the cache of this machine.
    """

    def __init__(self, files: Sequence[Stored], storage: RemoteAccess | None) -> None:
        self._storage: Final = storage
        self.files: Final = files
        self._handles: Final = Handles(partial(_opened, files))

    def read(self, number: int, spans: Sequence[ByteSpan]) -> list[bytes]:
        """Reads parts of a file that is here; of a remote one the copy.

        Raises:
            DatasetError: the file was written to.
        """
        return self.files[number].read_from(self._handles.get(number), spans)

    def fill(self, parts: Iterable[WantedBytes]) -> None:
        """Reads parts straight into buffers; those of a file should stand together.

        Raises:
            DatasetError: a file was written to.
        """
        far: list[WantedBytes] = []
        by_ranges, files = self._storage is not None, self.files
        current, descriptor = -1, -1
        handle: Handle | None = None
        preadv = os.preadv
        for number, begin, buffer in parts:
            if number != current:
                if handle is not None:
                    files[current].require_open(handle)
                is_far = by_ranges and files[number].storage is not None
                handle, current = None if is_far else self._handles.get(number), number
                descriptor = -1 if handle is None else handle.descriptor
            if handle is None:
                far.append((number, begin, buffer))
                continue
            try:
                got = preadv(descriptor, (buffer,), begin)
            except OSError as error:
                raise unopened(files[number].name, f"cannot be read at byte {begin}", error) from error
            if got != buffer.nbytes:  # Linux reads at most 2 GiB by one call
                (data,) = files[number].read_from(handle, [(begin, buffer.nbytes)])
                memoryview(buffer).cast("B")[:] = data
        # Behind the reading: what was read is of the file as it was.
        if handle is not None:
            files[current].require_open(handle)
        if far and self._storage is not None:
            spans = [Span(files[number].path, begin, buffer.nbytes) for number, begin, buffer in far]
            for (_, _, buffer), data in zip(far, self._storage.read(spans), strict=True):
                memoryview(buffer).cast("B")[:] = data

    def close(self) -> None:
        """Lets go of what is open; it is opened again when it is needed."""
        self._handles.close()


def _opened(files: Sequence[Stored], number: int) -> Handle:
    """Opens a file; no method, for what is open would hold its dataset."""
    return files[number].open()
