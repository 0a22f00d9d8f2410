"""`FileCatalogue`: sizes, versions and numbers of samples of many files, as arrays with a row per file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np

from samplerkit.errors import ArgumentValueError, DatasetError
from samplerkit.order.caching import cached_property
from samplerkit.order.intervals import edges_of
from samplerkit.order.typing import Ids
from samplerkit.storage.arrays import Array
from samplerkit.storage.files.stored import Stored
from samplerkit.storage.remote.access import RemoteAccess, Version
from samplerkit.storage.urls import is_remote, shown


def encoded(text: str) -> bytes:
    """Encodes a string like names of files, in UTF-8 with surrogate escapes."""
    return text.encode("utf-8", "surrogateescape")


Kind = Literal["tar", "parquet", "files"]
"""The kind of files: tar shards, Parquet files, or files with a reader."""

DIGEST_BYTES: Final = 16
"""Bytes of the digest of a Parquet footer."""

REMAKE: Final = "make the catalogue again with `samplerkit catalogue`"


@dataclass(frozen=True, eq=False)
class FileCatalogue:
    """Sizes, versions and numbers of samples of many files, sorted by the bytes of their paths.

    Args:
        kind: the kind of the files.
        files: the path or URL of each file.
        sizes: the size of each file in bytes, shape (files,).
        versions: bytes that change with the content of each file, shape (files,): for local files the
            modification time in nanoseconds, for remote ones the tag that the server sends, or nothing. An
            array takes a fifth of the memory of as many strings.
        chunks: the number of chunks of each file, shape (files,): row groups of Parquet, otherwise 1.
        samples: the number of samples in each chunk of all files, shape (chunks,).
        columns: for Parquet, the names and types of columns.
        footers: for Parquet, the size of each footer in bytes, shape (files,); otherwise shape (0,).
        digests: for Parquet, the concatenated digests of the footers.

    Example:
        >>> shards = [
        ...     FileCatalogue.of_file("tar", f"/data/{name}.tar", 10240, "1700000000", [number])
        ...     for number, name in enumerate("ba")
        ... ]
        >>> known = joined(shards)
        >>> known.files, known.folder, known.lengths
        (('/data/a.tar', '/data/b.tar'), '/data', array([1, 0]))
    """

    kind: Kind
    files: tuple[str, ...]
    sizes: Ids
    versions: Array
    chunks: Ids
    samples: Ids
    columns: tuple[tuple[str, str], ...]
    footers: Ids
    digests: bytes

    @classmethod
    def of_file(
        cls,
        kind: Kind,
        path: str,
        size: int,
        version: str,
        samples: Sequence[int],
        columns: tuple[tuple[str, str], ...] = (),
        footers: Sequence[int] = (),
        digest: bytes = b"",
    ) -> FileCatalogue:
        """Makes the catalogue of one file.

        Raises:
            ArgumentValueError: the path is not absolute, or is a URL with a query or credentials.
        """
        if shown(path) != path:
            problem = "has a query or credentials, which the catalogue would contain"
            raise ArgumentValueError("files", problem, shown(path), hint="name it without them")
        if "\0" in path + version or "/" not in path:
            raise ArgumentValueError("files", "must have absolute paths", path)
        values = {"sizes": [size], "chunks": [len(samples)], "samples": samples, "footers": footers}
        numbers = {name: np.array(value, dtype=np.int64) for name, value in values.items()}
        versions = np.array([encoded(version)])
        return cls(kind, (path,), versions=versions, columns=columns, digests=digest, **numbers)

    @property
    def num_files(self) -> int:
        """The number of files."""
        return len(self.files)

    @property
    def is_remote(self) -> bool:
        """Whether the files are remote."""
        return is_remote(self.files[0])

    @property
    def folder(self) -> str:
        """The common folder of all files, without the slash at its end."""
        # That of the first and the last one, since they are sorted; `commonpath` does not support URLs.
        return os.path.commonprefix([self.files[0], self.files[-1]]).rpartition("/")[0]  # noqa: RUF071

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The path of each file below the common folder."""
        length = len(self.folder) + 1
        return tuple(file[length:] for file in self.files)

    @cached_property
    def starts(self) -> Ids:
        """The first chunk of each file, and at the end the number of chunks: shape (files + 1,)."""
        return edges_of(self.chunks)

    @property
    def lengths(self) -> Ids:
        """The number of samples of each file, shape (files,)."""
        return np.diff(edges_of(self.samples)[self.starts])

    def stored(self, number: int, storage: RemoteAccess | None) -> Stored:
        """Returns a file in the version of the catalogue, without looking it up.

        Args:
            number: the number of the file.
            storage: the storage that fetches the file, which receives the version; None if it is not fetched.

        Raises:
            DatasetError: the storage knows another version of a remote file.
        """
        path, size = self.files[number], int(self.sizes[number])
        if not is_remote(path):
            return Stored(path, size, int(self.versions[number]))
        if storage is not None:
            storage.set_version(path, Version(size, self.versions[number].decode("utf-8", "surrogateescape")))
        return Stored(path, size, 0, storage)


def joined(parts: Sequence[FileCatalogue]) -> FileCatalogue:
    """Joins catalogues of one kind.

    Raises:
        ArgumentValueError: there are no parts, they are of several kinds, a file is in two of them, or some
            files are local and others remote.
        DatasetError: Parquet files have different columns.
    """
    if not parts:
        raise ArgumentValueError("files", "must not be empty", [])
    first = parts[0]
    for part in parts:
        path = shown(part.files[0])
        if part.kind != first.kind:
            raise ArgumentValueError("files", "are of several kinds", f"{first.kind} and {part.kind}")
        if part.is_remote != first.is_remote:
            raise ArgumentValueError("files", "are local in part and remote in part", path)
        if part.columns != first.columns:
            problem = f"has other columns than {shown(first.files[0])}, {list(first.columns)}"
            raise DatasetError(path, problem, list(part.columns))
    paths = [path for part in parts for path in part.files]
    order = sorted(range(len(paths)), key=[*map(encoded, paths)].__getitem__)
    files = tuple(paths[number] for number in order)
    for one, other in pairwise(files):
        if one == other:
            raise ArgumentValueError("files", "must not name a file twice", one)

    def column(name: str) -> Array:
        return np.concatenate([getattr(part, name) for part in parts])

    names = ["sizes", "versions", "chunks"]
    digests = b"".join(part.digests for part in parts)
    if digests:  # of Parquet files
        names.append("footers")
        digests = np.frombuffer(digests, np.uint8).reshape(-1, DIGEST_BYTES)[order].tobytes()
    by_file: dict[str, Any] = {name: column(name)[order] for name in names}
    # The chunks of each file in the new order.
    starts, chunks = edges_of(column("chunks")), by_file["chunks"]
    places = np.repeat(starts[order] - edges_of(chunks)[:-1], chunks)
    samples = column("samples")[places + np.arange(places.size)]
    return replace(first, files=files, samples=samples, digests=digests, **by_file)
