"""A look at one file: what a catalogue says of it."""

from __future__ import annotations

import os
from typing import Any

from samplerkit.errors import ArgumentValueError
from samplerkit.storage.catalogue.known import Kind, KnownFile
from samplerkit.storage.files.reader import FileReader, file_reader
from samplerkit.storage.files.remote import RemoteReader
from samplerkit.storage.formats.parquet_groups import looked_at
from samplerkit.storage.formats.stored import Stored
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.tar.index.archive import Cache
from samplerkit.storage.tar.read.shard_opener import ShardOpener
from samplerkit.storage.tar.read.shards import Shards
from samplerkit.storage.tar.read.source import TarOptions
from samplerkit.storage.urls import is_remote, shown

_TAR = (".tar", ".tar.gz", ".tgz")
_PARQUET = (".parquet", ".pq")


def kind_of(path: str, reader: Any) -> Kind:
    """Tells what a file is: by the reader that was given, or by its name.

    Raises:
        ArgumentValueError: neither says so.

    Example:
        >>> kind_of("s3://bucket/0.tar", None), kind_of("/data/0.npz", "npz")
        ('tar', 'files')
    """
    if reader is not None:
        return "files"
    name = shown(path).lower()
    if name.endswith(_TAR):
        return "tar"
    if name.endswith(_PARQUET):
        return "parquet"
    mend = "say which reader reads such files"
    raise ArgumentValueError("files", "are neither tar shards nor Parquet", shown(path), mend=mend)


def look(path: str, reader: Any = None, *, storage: RemoteStorage | None = None) -> KnownFile:
    r"""Looks at one file: of Parquet at its footer, of a tar shard at its index, else it is counted.

    An index that lies beside a shard or in the user's cache is used; else the shard is gone through, fetched
    for it if need be, and its index kept in the cache.

    Args:
        path: of the file, or its URL.
        reader: of files that are neither tar shards nor Parquet, as for a `FileDataset`.
        storage: fetches; None for one with the defaults, for this file alone.

    Raises:
        ArgumentTypeError: the reader is none.
        ArgumentValueError: nothing says what the file is.
        DatasetError: it cannot be read, or has a flaw.

    Example:
        >>> import tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.txt")
        >>> with open(path, "w") as file:
        ...     _ = file.write("one\ntwo\n")
        >>> look(path, "text").samples
        (2,)
    """
    if storage is None:
        with RemoteStorage(RemoteOptions()) as own:
            return look(path, reader, storage=own)
    if not is_remote(path):
        path = os.path.abspath(path)  # noqa: PTH100  # links stay what they are
    kind = kind_of(path, reader)
    if kind == "tar":
        return _shard(path, storage)
    if kind == "parquet":
        return _parquet(path, storage)
    return _counted(path, RemoteReader(file_reader(reader), storage), storage)


def _shard(path: str, storage: RemoteStorage) -> KnownFile:
    stored = Stored.of(path, storage)
    options = TarOptions("raise", None, False, Cache.of(None, storage.options), "shards", 1, 0)
    opener = ShardOpener(Shards((path,), (shown(path),), storage, options))
    index = opener.known_index(0)
    if index is None:
        shard = opener.open(0, refuses_stale=False)
        index = shard.index
        if shard.copy is not None:
            shard.copy.close()
    return KnownFile(path, stored.size, _version(stored, storage), (index.num_samples,))


def _parquet(path: str, storage: RemoteStorage) -> KnownFile:
    found = looked_at((path,), None, None, storage, 0)
    file = found.file
    version = _version(file.stored, storage)
    return KnownFile(path, file.stored.size, version, file.rows, found.schema, file.footer[1], file.digest)


def _counted(path: str, reader: FileReader, storage: RemoteStorage) -> KnownFile:
    stored = Stored.of(path, storage)
    number = reader.count(path)
    if not is_remote(path):
        stored.require_same()
    return KnownFile(path, stored.size, _version(stored, storage), (number,))


def _version(stored: Stored, storage: RemoteStorage) -> str:
    return storage.version(stored.path).tag if is_remote(stored.path) else str(stored.changed_ns)
