"""Parts of files, here or elsewhere: each as long as was asked for, of files that stay what they are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, final

from samplerkit.errors import DatasetError
from samplerkit.storage.progress import all_in_threads
from samplerkit.storage.remote.attempt import Span
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.tar.index.archive import Archive, Handle, Handles, open_for_reading
from samplerkit.storage.urls import is_remote, shown

_ASKED_AT_A_TIME = 16

WantedBytes = tuple[int, int, Any]
"""The number of a file, the byte where the part begins, and the buffer that it is to fill."""


@final
@dataclass(frozen=True)
class _Opener:
    """Opens files by number; of remote ones the copy, which is fetched if there is none."""

    urls: tuple[str, ...]
    archives: tuple[Archive, ...]
    storage: RemoteStorage | None

    def __call__(self, number: int) -> Handle:
        archive = self.archives[number]
        if self.storage is None or not archive.is_remote:
            return Handle(open_for_reading(archive.url, archive.url))
        # Once it is open, it may be evicted.
        with self.storage.fetch(self.urls[number]) as local:
            return Handle(open_for_reading(local.path, archive.url), is_copy=True)


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

    def __init__(self, urls: Sequence[str], storage: RemoteStorage | None, *, whole: bool = False) -> None:
        self._urls: Final = tuple(urls)
        self._storage: Final = storage
        self._whole: Final = whole
        self.archives: Final = _looked_at(self._urls, storage)
        self._handles: Final = Handles(_Opener(self._urls, self.archives, storage))

    def size(self, number: int) -> int:
        """Returns how many bytes a file has."""
        return self.archives[number].size

    def name(self, number: int) -> str:
        """Returns what errors call a file."""
        return self.archives[number].url

    def peek(self, number: int, begin: int, length: int) -> bytes:
        """Reads a small part; a remote file is not fetched for it, though others of its parts may need it."""
        if self._storage is not None and self.archives[number].is_remote:
            return self._storage.read([Span(self._urls[number], begin, length)])[0]
        return self.read(number, begin, length)

    def read(self, number: int, begin: int, length: int) -> bytes:
        """Reads a part.

        Raises:
            DatasetError: the file ends before, or was written to.
        """
        if self._whole or not self.archives[number].is_remote:
            handle = self._handles.get(number)
            with suppress(OSError):  # what is wrong is said below
                found = os.pread(handle.descriptor, length, begin)
                if len(found) == length:
                    self._check(number, handle, begin)
                    return found
        data = bytearray(length)
        self.fill([(number, begin, memoryview(data))])
        return bytes(data)

    def fill(self, parts: Iterable[WantedBytes]) -> None:
        """Reads parts straight into buffers; those of a file should stand together.

        Raises:
            DatasetError: a file ends before, or was written to.
        """
        far: list[WantedBytes] = []
        by_ranges = self._storage is not None and not self._whole
        current, begin, descriptor = -1, 0, -1
        handle: Handle | None = None
        preadv = os.preadv
        for number, begin, buffer in parts:
            if number != current:
                if handle is not None:
                    self._check(current, handle, begin)
                is_far = by_ranges and self.archives[number].is_remote
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
        if far:
            self._fill_by_requests(far)

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
        archive, status = self.archives[number], os.fstat(handle.descriptor)
        if archive.is_same(status):
            return
        if status.st_size < archive.size:
            raise self._ended(number, status.st_size, archive.size)
        what = f"grew from {archive.size} to {status.st_size} bytes" if status.st_size > archive.size else ""
        problem = f"{what or 'was written to'} while it was in use, as was seen at byte {begin}"
        raise DatasetError(archive.url, problem, hint="make the dataset again when nobody writes to it")

    def _ended(self, number: int, end: int, wanted: int) -> DatasetError:
        archive = self.archives[number]
        problem = f"ends at byte {end}, was {archive.size} bytes long, and is needed up to byte {wanted}"
        return DatasetError(archive.url, problem, hint="it was cut meanwhile: fetch or make it again")

    def _fill_by_requests(self, parts: list[WantedBytes]) -> None:
        """Asks for parts."""
        assert self._storage is not None  # noqa: S101  # for mypy: only then a file is remote
        spans = [Span(self._urls[number], begin, buffer.nbytes) for number, begin, buffer in parts]
        for (_, _, buffer), data in zip(parts, self._storage.read(spans), strict=True):
            memoryview(buffer).cast("B")[:] = data


def _looked_at(urls: tuple[str, ...], storage: RemoteStorage | None) -> tuple[Archive, ...]:
    if not any(map(is_remote, urls)):
        return tuple(map(Archive.of, urls))

    def look(number: int) -> Archive:
        url = urls[number]
        if storage is None or not is_remote(url):
            return Archive.of(url)
        archive = Archive.remote(url, storage.version(url))
        if archive.size < 0:
            raise DatasetError(shown(urls[number]), "does not tell its size")
        return archive

    return tuple(all_in_threads(look, len(urls), _ASKED_AT_A_TIME, "samplerkit-version"))
