"""Samples in litData's optimized folders: chunks, packed or not, here or elsewhere, without its package."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

from samplerkit.errors import DatasetError
from samplerkit.order.layout import Layout
from samplerkit.storage.files.chunked import ChunkCache, limits_of
from samplerkit.storage.files.content import FileContent, MadeSamples
from samplerkit.storage.formats.folder import INDEX, FolderDataset
from samplerkit.storage.formats.litdata_chunk import LitIndex, Sample, cutter
from samplerkit.storage.formats.litdata_tree import value_decoder
from samplerkit.storage.formats.mds_values import Decoder
from samplerkit.storage.formats.stored import ANEW, Stored, guarded
from samplerkit.storage.per_process import Process
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage


@final
class LitDataset(FolderDataset):
    """Samples in a folder that litData has optimized: chunks are the files of the layout.

    Its package is not needed. What is pickled is refused, and so are encrypted chunks.

    Args:
        folder: with `index.json`, on this machine or at a URL. Several are parts of a `TreeDataset`.
        columns: the entries of a sample to hand out, where samples are dicts; None for all there is.
        decode: makes a sample of what was written; None for this itself.
        max_chunks: chunks in memory at most, those that are read ahead included.
        max_bytes: bytes in memory at most; None for no limit.
        read_ahead: how many chunks are read before they are needed; 0 for none. None for 1, and
            where they lie elsewhere for 4 a rank, as far as there is room.
        threads: how many of them at a time; None as for `read_ahead`.
        remote: how URLs are read: `RemoteOptions`, or a mapping of these.

    Attributes:
        folder: the path or URL.
        is_remote: whether it lies elsewhere.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: a number is too small.
        DatasetError: later, there is no index, a chunk is not what it says, or a value is pickled.

    Example:
        >>> LitDataset("/data/optimized/train", ["image", "label"])
        LitDataset('/data/optimized/train', not looked at)
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        columns: Sequence[str] | None = None,
        *,
        decode: Callable[[Any], Any] | None = None,
        max_chunks: int = 4,
        max_bytes: int | None = None,
        read_ahead: int | None = None,
        threads: int | None = None,
        remote: RemoteOptions | Mapping[str, Any] | None = None,
    ) -> None:
        limits = limits_of(max_chunks, max_bytes, read_ahead, threads)
        super().__init__(folder, columns, decode, limits, remote)
        self._looked: _LitChunks | None = None

    @property
    def fingerprint(self) -> str:
        """What changes with the chunks: a digest of what the index says of them."""
        _ = self.layout
        assert self._looked is not None  # noqa: S101  # for mypy: the layout was made of it
        return self._looked.digest

    def _looked_up(self, process: Process[ChunkCache]) -> Layout:
        place, data = self._read_index()
        index = guarded(place.name, "read", lambda: LitIndex.of(data))
        chosen = self._columns
        if chosen is not None:
            guarded(place.name, "read", lambda: index.tree.chosen(chosen))
        files = tuple(self._found(index, number) for number in range(len(index.chunks)))
        digest = hashlib.blake2b(repr(index).encode(), digest_size=16).hexdigest()
        decoders = tuple(map(value_decoder, index.formats))
        self._looked = _LitChunks(index, files, chosen, decoders, self._decode, digest)
        return Layout([chunk.samples for chunk in index.chunks], [chunk.name for chunk in index.chunks])

    def _found(self, index: LitIndex, number: int) -> Stored:
        chunk = index.chunks[number]
        path = self._inside(chunk.name)
        if self.is_remote:
            # None is asked for before it is read: of a packed one the size is told then.
            return Stored(path, chunk.size, 0)
        stored = Stored.of(path, None)
        if index.packing != "chunk" and stored.size not in chunk.sizes:
            problem = f"has {stored.size} bytes, and {INDEX} says"
            raise DatasetError(stored.name, problem, chunk.size, mend=ANEW)
        return stored

    def _reading(self, layout: Layout) -> Callable[[int], FileContent]:
        assert self._looked is not None  # noqa: S101  # for mypy: the layout was made of it
        return partial(self._looked.read, self._storage)


@final
@dataclass(frozen=True)
class _LitChunks:
    """The chunks of a folder, as they were when they were looked at."""

    index: LitIndex
    files: tuple[Stored, ...]
    columns: tuple[str, ...] | None
    decoders: tuple[Decoder, ...]
    decode: Callable[[Any], Any] | None
    digest: str

    def read(self, storage: RemoteStorage | None, number: int) -> FileContent:
        """Reads a chunk."""
        stored = self.files[number]
        if storage is not None:
            stored = Stored.of(stored.path, storage)
        (data,) = stored.read([(0, stored.size)], storage)
        samples = guarded(stored.name, "read", lambda: self.index.understood(number, data))
        made = MadeSamples(samples, self._maker(), len(data))
        return FileContent(stored.name, made, len(samples), len(data))

    def _maker(self) -> Callable[[Sample], Any]:
        index, columns, decode = self.index, self.columns, self.decode
        cut = cutter(len(index.formats))
        make = index.tree.maker(self.decoders)
        if columns is not None:
            parts = [(name, part.maker(self.decoders, at)) for name, part, at in index.tree.chosen(columns)]

            def make(values: Sequence[bytes]) -> Any:
                return {name: part(values) for name, part in parts}

        def made(sample: Sample) -> Any:
            if isinstance(sample, dict):
                found: Any = sample if columns is None else {name: sample[name] for name in columns}
            else:
                found = make([bytes(sample)] if index.is_tokens else cut(sample))
            return found if decode is None else decode(found)

        return made
