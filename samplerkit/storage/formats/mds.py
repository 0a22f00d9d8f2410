"""Samples in MosaicML's MDS: shards, compressed or not, here or elsewhere, without its package."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

from samplerkit.errors import DatasetError
from samplerkit.order.layout import Layout
from samplerkit.storage.files.chunked import ChunkCache, limits_of
from samplerkit.storage.files.content import FileContent, MadeSamples
from samplerkit.storage.formats.folder import INDEX, FolderDataset
from samplerkit.storage.formats.mds_shard import MdsColumns, MdsShard
from samplerkit.storage.formats.mds_values import Decoder
from samplerkit.storage.formats.stored import Stored, guarded
from samplerkit.storage.per_process import Process
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage


@final
class MdsDataset(FolderDataset):
    """Samples in a folder of MosaicML's streaming (MDS): shards are the files of the layout.

    Its package is not needed. Shards are held against size and digests of the index whenever they are read,
    in all compressions that MDS has. What is pickled is refused.

    Args:
        folder: with `index.json`, on this machine or at a URL. Several are parts of a `TreeDataset`.
        columns: the columns to hand out; None for all.
        decode: makes a sample of the dict of one; None for the dict itself.
        max_chunks: shards in memory at most, those that are read ahead included.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: how many shards are read before they are needed; 0 for none. None for 1, and
            where they lie elsewhere for 4 a rank, as far as there is room.
        threads: how many of them at a time; None as for `read_ahead`.
        remote: how URLs are read: `RemoteOptions`, or a mapping of these.

    Attributes:
        folder: the path or URL.
        is_remote: whether it lies elsewhere.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: a number is too small.
        DatasetError: later, there is no index, a shard is not what it says, or a column is pickled.

    Example:
        >>> MdsDataset("/data/c4/train", ["tokens"])
        MdsDataset('/data/c4/train', not looked at)
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        columns: Sequence[str] | None = None,
        *,
        decode: Callable[[dict[str, Any]], Any] | None = None,
        max_chunks: int = 4,
        max_bytes: int | None = None,
        read_ahead: int | None = None,
        threads: int | None = None,
        remote: RemoteOptions | Mapping[str, Any] | None = None,
    ) -> None:
        limits = limits_of(max_chunks, max_bytes, read_ahead, threads)
        super().__init__(folder, columns, decode, limits, remote)
        self._looked: _Shards | None = None

    @property
    def fingerprint(self) -> str:
        """What changes with the content, where the index has digests: a digest of the index."""
        _ = self.layout
        assert self._looked is not None  # noqa: S101  # for mypy: the layout was made of it
        return self._looked.digest

    def _looked_up(self, process: Process[ChunkCache]) -> Layout:
        index, data = self._read_index()
        shards = guarded(index.name, "read", lambda: _understood(data))
        columns = shards[0].columns
        other = next((shard for shard in shards if shard.columns != columns), None)
        if other is not None:
            problem = f"says that {other.raw.name} has other columns than {shards[0].raw.name}"
            raise DatasetError(index.name, problem, list(other.columns.names))
        chosen = columns.names if self._columns is None else self._columns
        decoders = columns.decoders(index.name, chosen)
        files = tuple(self._found(shard) for shard in shards)
        digest = hashlib.blake2b(data, digest_size=16).hexdigest()
        self._looked = _Shards(shards, files, columns, decoders, self._decode, digest)
        return Layout([shard.samples for shard in shards], [shard.raw.name for shard in shards])

    def _found(self, shard: MdsShard) -> tuple[Stored, bool]:
        """Gives the file of a shard, and whether it is the compressed one."""
        raw = self._inside(shard.raw.name)
        is_packed = shard.packed is not None and (self.is_remote or not Path(raw).exists())
        file = shard.packed if is_packed and shard.packed else shard.raw
        path = self._inside(file.name)
        # Elsewhere none is asked for before it is read: there may be a hundred thousand.
        stored = Stored(path, file.size, 0) if self.is_remote else Stored.of(path, None)
        if stored.size != file.size:
            problem = f"has {stored.size} bytes, and {INDEX} says"
            raise DatasetError(stored.name, problem, file.size, mend="fetch or make the file anew")
        return stored, is_packed

    def _reading(self, layout: Layout) -> Callable[[int], FileContent]:
        assert self._looked is not None  # noqa: S101  # for mypy: the layout was made of it
        return partial(self._looked.read, self._storage)


@final
@dataclass(frozen=True)
class _Shards:
    """The shards of a folder, as they were when they were looked at."""

    shards: tuple[MdsShard, ...]
    files: tuple[tuple[Stored, bool], ...]
    columns: MdsColumns
    decoders: Mapping[str, Decoder]
    decode: Callable[[dict[str, Any]], Any] | None
    digest: str

    def read(self, storage: RemoteStorage | None, number: int) -> FileContent:
        """Reads a shard."""
        shard, (stored, is_packed) = self.shards[number], self.files[number]
        (data,) = stored.read([(0, stored.size)], storage)
        samples = shard.understood(stored.name, data, is_packed=is_packed)
        made = MadeSamples(samples, self._made, sum(map(len, samples)))
        return FileContent(stored.name, made, len(samples), made.nbytes)

    def _made(self, sample: bytes) -> Any:
        values = self.columns.cut(sample)
        found = {name: decode(values[name]) for name, decode in self.decoders.items()}
        return found if self.decode is None else self.decode(found)


def _understood(data: bytes) -> tuple[MdsShard, ...]:
    told = json.loads(data)
    if told["version"] != 2:
        raise ValueError(f"version {told['version']!r}, and only 2 is known")
    shards = tuple(map(MdsShard.of, told["shards"]))
    if not shards:
        raise ValueError("it names no shards")
    return shards
