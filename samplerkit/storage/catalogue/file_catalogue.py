"""`FileCatalogue`: sizes, versions and numbers of samples of many files, as arrays with a row per file."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, final

import numpy as np

from samplerkit.errors import ArgumentValueError, DatasetError
from samplerkit.order.caching import cached_property
from samplerkit.order.intervals import edges_of
from samplerkit.order.typing import Ids
from samplerkit.storage.arrays import Array
from samplerkit.storage.files.stored import Stored
from samplerkit.storage.remote.access import RemoteAccess
from samplerkit.storage.remote.version import Version
from samplerkit.storage.urls import is_remote, shown

_END: Final = b"\0"


@final
class Texts:
    """A compact sequence of strings without zero bytes; each Python string is created when it is accessed.

    A million Python strings take 90 MB or more; here each takes its bytes and 9 more.

    Args:
        data: the strings in UTF-8, each followed by a zero byte.

    Example:
        >>> names = Texts.of([b"a.tar", b"b.tar"])
        >>> len(names), names[1], list(names)
        (2, 'b.tar', ['a.tar', 'b.tar'])
    """

    def __init__(self, data: bytes) -> None:
        self.data: Final = data
        self._ends: Final = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 0)

    @classmethod
    def of(cls, texts: Iterable[bytes]) -> Texts:
        """Makes the sequence from encoded strings, none of which has a zero byte."""
        return cls(b"".join(text + _END for text in texts))

    @classmethod
    def unpacked(cls, packed: Array, size: int) -> Texts:
        """Decompresses the result of `packed`.

        Args:
            packed: the compressed bytes.
            size: the expected number of decompressed bytes; more are never allocated.

        Raises:
            ValueError: the bytes are damaged, or decompress to another size.
        """
        inflating = zlib.decompressobj()
        try:
            data = inflating.decompress(packed.tobytes(), size + 1)
        except zlib.error as error:
            raise ValueError(str(error)) from error
        if len(data) != size or not inflating.eof or (data and data[-1:] != _END):
            raise ValueError(f"they are not {size} bytes of texts")
        return cls(data)

    def packed(self) -> Array:
        """Returns the strings compressed by zlib: similar names and times take a few bytes each."""
        return np.frombuffer(zlib.compress(self.data), dtype=np.uint8)

    def as_bytes(self) -> list[bytes]:
        """Returns all strings as bytes."""
        return self.data.split(_END)[:-1]

    def __len__(self) -> int:
        return self._ends.size

    def __getitem__(self, number: int) -> str:
        start = int(self._ends[number - 1]) + 1 if number else 0
        return decoded(self.data[start : int(self._ends[number])])

    def __iter__(self) -> Iterator[str]:
        return iter(decoded(self.data).split("\0")[:-1])


def decoded(text: bytes) -> str:
    """Decodes bytes like names of files, in UTF-8 with surrogate escapes."""
    return text.decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """Encodes a string like names of files, in UTF-8 with surrogate escapes."""
    return text.encode("utf-8", "surrogateescape")


Kind = Literal["tar", "parquet", "files"]
"""The kind of files: tar shards, Parquet files, or files with a reader."""

DIGEST_BYTES: Final = 16
"""Bytes of the digest of a Parquet footer."""

REMAKE: Final = "make the catalogue again with `samplerkit catalogue`"


@final
@dataclass(frozen=True, eq=False)
class FileCatalogue:
    """Sizes, versions and numbers of samples of many files, sorted by the bytes of their paths.

    Args:
        kind: the kind of the files.
        folder: the common folder of all paths, without the slash at its end.
        names: the rest of each path.
        sizes: the size of each file in bytes, shape (files,).
        versions: a string that changes with the content of each file: for local files the modification time
            in nanoseconds, for remote ones the tag that the server sends, or "".
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
    folder: str
    names: Texts
    sizes: Ids
    versions: Texts
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
            problem = "has a query or credentials, which a catalogue would give away"
            raise ArgumentValueError("files", problem, shown(path), hint="name it without them")
        if "\0" in path + version or "/" not in path:
            raise ArgumentValueError("files", "must have absolute paths", path)
        folder, _, name = path.rpartition("/")
        return cls(
            kind,
            folder,
            Texts.of([encoded(name)]),
            np.array([size]),
            Texts.of([encoded(version)]),
            np.array([len(samples)]),
            np.array(samples, dtype=np.int64),
            columns,
            np.array(footers, dtype=np.int64),
            digest,
        )

    @property
    def num_files(self) -> int:
        """The number of files."""
        return self.sizes.size

    @property
    def is_remote(self) -> bool:
        """Whether the files are remote."""
        return is_remote(self.path(0))

    @cached_property
    def files(self) -> tuple[str, ...]:
        """The path or URL of each file."""
        prefix = f"{self.folder}/"
        return tuple(prefix + name for name in self.names)

    @cached_property
    def starts(self) -> Ids:
        """The first chunk of each file, and at the end the number of chunks: shape (files + 1,)."""
        return edges_of(self.chunks)

    @property
    def lengths(self) -> Ids:
        """The number of samples of each file, shape (files,)."""
        return np.diff(edges_of(self.samples)[self.starts])

    def path(self, number: int) -> str:
        """Returns the path or URL of a file."""
        return f"{self.folder}/{self.names[number]}"

    def stored(self, number: int, storage: RemoteAccess | None) -> Stored:
        """Returns a file in the version of the catalogue, without looking it up.

        Args:
            number: the number of the file.
            storage: the storage that fetches the file, which receives the version; None if it is not fetched.

        Raises:
            DatasetError: the storage knows another version of a remote file.
        """
        path, size = self.path(number), int(self.sizes[number])
        if not is_remote(path):
            return Stored(path, size, int(self.versions[number]))
        if storage is not None:
            storage.set_version(path, Version(size, self.versions[number]))
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
    for part in parts:
        if part.kind != parts[0].kind:
            raise ArgumentValueError("files", "are of several kinds", f"{parts[0].kind} and {part.kind}")
        first, path = parts[0].path(0), part.path(0)
        if is_remote(path) != is_remote(first):
            raise ArgumentValueError("files", "are local in part and remote in part", shown(path))
        if part.columns != parts[0].columns:
            problem = f"has other columns than {shown(first)}, {list(parts[0].columns)}"
            raise DatasetError(shown(path), problem, list(part.columns))
    paths = [path for part in parts for path in _paths(part)]
    order = np.array(sorted(range(len(paths)), key=paths.__getitem__), dtype=np.int64)
    in_order = [paths[number] for number in order.tolist()]
    # The common prefix of sorted paths is that of the first and the last; `commonpath` does not support URLs.
    folder = os.path.commonprefix([in_order[0], in_order[-1]]).rpartition(b"/")[0]  # noqa: RUF071
    for one, other in pairwise(in_order):
        if one == other:
            raise ArgumentValueError("files", "must not name a file twice", decoded(one))
    versions = [version for part in parts for version in part.versions.as_bytes()]
    digests = np.frombuffer(b"".join(part.digests for part in parts), dtype=np.uint8)
    chunks, samples = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("chunks", "samples")
    )
    starts, sorted_chunks = edges_of(chunks), chunks[order]
    # The chunks of each file in the new order.
    places = np.arange(samples.size) + np.repeat(starts[order] - edges_of(sorted_chunks)[:-1], sorted_chunks)
    footers = np.concatenate([part.footers for part in parts])
    return FileCatalogue(
        parts[0].kind,
        decoded(folder),
        Texts.of(path[len(folder) + 1 :] for path in in_order),
        np.concatenate([part.sizes for part in parts])[order],
        Texts.of(versions[number] for number in order.tolist()),
        sorted_chunks,
        samples[places],
        parts[0].columns,
        footers[order] if footers.size else footers,
        digests.reshape(-1, DIGEST_BYTES)[order].tobytes() if digests.size else b"",
    )


def _paths(part: FileCatalogue) -> Iterable[bytes]:
    prefix = encoded(part.folder) + b"/"
    return (prefix + name for name in part.names.as_bytes())
