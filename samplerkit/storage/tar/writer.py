"""Writes samples into tar shards."""

from __future__ import annotations

import logging
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError
from samplerkit.order import arguments
from samplerkit.storage.atomic import AtomicFile, Writing
from samplerkit.storage.files.paths import one_path
from samplerkit.storage.files.stored import INDEX_SUFFIX, Stored
from samplerkit.storage.names import expand_braces
from samplerkit.storage.tar.codecs import encode
from samplerkit.storage.tar.format.headers import BLOCK, padded
from samplerkit.storage.tar.format.samples import is_meta, is_unsafe, split_name
from samplerkit.storage.tar.index.find_or_make import Cache, make_index

DEFAULT_BYTES = 1 << 30
"""The default of `bytes_per_shard`."""

_LOG = logging.getLogger("samplerkit")
_NUMBER = re.compile(r"%0?[0-9]{0,2}d")


def shard_names(pattern: str, first: int) -> tuple[str, ...] | None:
    """Returns the paths of shards if their number is fixed; None if the path has a place for a number.

    Args:
        pattern: the path of one tar, of numbered ones (`%06d`), or of several (`{000..127}`).
        first: the number of the first one.

    Raises:
        ArgumentValueError: it has several places for a number, wrong braces, or does not end in `.tar`; or
            `first` is not 0 and there is no place for a number.

    Example:
        >>> shard_names("train-{0..1}.tar", 0), shard_names("train-%03d.tar", 7)
        (('train-0.tar', 'train-1.tar'), None)
    """
    if not pattern.endswith(".tar"):
        problem = "must end in .tar"
        raise ArgumentValueError("shards", problem, pattern, hint="random access needs an uncompressed tar")
    if pattern.count("%") == 1 and _NUMBER.search(pattern):
        return None
    has_braces = "{" in pattern
    if first or ("%" in pattern and not has_braces):
        hint = "as in train-%06d.tar" if first else "as in train-%06d.tar or train-{000..127}.tar"
        raise ArgumentValueError("shards", "must have one place for a number", pattern, hint=hint)
    return tuple(expand_braces(pattern)) if has_braces else (pattern,)


class TarWriter(Writing):
    """Writes samples into one tar or into numbered shards, in the order in which they are given.

    A shard is written under a temporary name and renamed when it is complete. If the `with` block is left by
    an error, or a write fails, for instance because the disk is full, the current shard is deleted and
    earlier ones are kept; after a failed write, nothing more is written. The same samples give the same bytes
    on every machine.

    Args:
        shards: the path of the shards with a place for their number, `train-%06d.tar`; or their paths,
            `train-{000..127}.tar`; or the path of one tar, `train.tar`, which receives all samples.
        samples_per_shard: samples after which a new shard is started; None for no limit.
        bytes_per_shard: the most bytes of a shard, unless one sample is larger; None for no limit. One tar
            has no limit.
        index: whether an index is written next to each shard.
        checksums: whether the index has a CRC-32 of each file.
        overwrite: whether existing shards are replaced.
        start_shard: the number of the first shard.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: `shards` has several places for a number, or does not end in `.tar`; or it is one
            tar and a limit is given; or it is a URL.
        ArgumentRangeError: a limit is not positive, or `start_shard` is negative.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with TarWriter(f"{folder}/train-%03d.tar", samples_per_shard=100) as writer:
        ...         for number in range(250):
        ...             writer.write({"__key__": f"{number:04}", "txt": "hello", "cls": number % 10})
        ...     [Path(path).name for path in writer.paths], writer.num_samples
        (['train-000.tar', 'train-001.tar', 'train-002.tar'], 250)
    """

    def __init__(
        self,
        shards: Any,
        *,
        samples_per_shard: int | None = None,
        bytes_per_shard: int | None = DEFAULT_BYTES,
        index: bool = True,
        checksums: bool = False,
        overwrite: bool = False,
        start_shard: int = 0,
    ) -> None:
        self._first = arguments.at_least("start_shard", start_shard, 0)
        self._pattern = one_path("shards", shards, "write to a local folder, and upload that")
        self._names = shard_names(self._pattern, self._first)
        self._max_samples = arguments.limit("samples_per_shard", samples_per_shard)
        self._max_bytes = arguments.limit("bytes_per_shard", bytes_per_shard)
        if self._names == (self._pattern,):
            if self._max_samples is not None or self._max_bytes not in {None, DEFAULT_BYTES}:
                problem = "is a single tar, which cannot have a limit"
                hint = "give the shards a number, as in train-%06d.tar, or leave the limit out"
                raise ArgumentValueError("shards", problem, self._pattern, hint=hint)
            self._max_bytes = None
        self._index = arguments.boolean("index", index)
        self._checksums = arguments.boolean("checksums", checksums)
        self._overwrite = arguments.boolean("overwrite", overwrite)
        self._shard: _Shard | None = None
        self._last_key = ""
        self.paths: list[str] = []
        self.num_samples = 0

    def write(self, sample: Mapping[str, Any]) -> None:
        """Writes one sample.

        Args:
            sample: `__key__`, and at least one field: an extension, and bytes or a value that `decode` could
                return. Other names that begin with `__` are ignored.

        Raises:
            ArgumentTypeError: the type of a value does not match its extension.
            ArgumentValueError: the key or an extension is not valid in a file name, the key was written
                already, or there is no field.
            ArgumentRangeError: all named shards are full.
            DatasetError: the shard cannot be written, for instance because the disk is full. The shard is
                deleted, and all later calls raise the same error.
        """
        self._require_open(self._pattern)
        key = _checked_key(sample)
        pieces = [
            piece
            for name, value in sample.items()
            if not name.startswith("__")
            for piece in _member(f"{key}.{_checked_field(key, name)}", encode(name, value))
        ]
        if not pieces:
            raise ArgumentValueError("sample", "has no field", key)
        size = sum(map(len, pieces))
        if self._shard is not None and self._is_full(self._shard, size):
            self._finish(self._shard)
        if self._shard is None:
            self._shard = self._begin()
        if key in self._shard.keys or key == self._last_key:
            raise ArgumentValueError("__key__", "exists already", key, hint="keys differ within a shard")
        with self._writing(self._shard.path):
            self._shard.output.file.writelines(pieces)
        self._shard.size += size
        self._shard.keys.add(key)
        self._last_key = key
        self.num_samples += 1

    def next_shard(self) -> None:
        """Completes the current shard; the next sample starts a new one.

        Raises:
            DatasetError: the shard cannot be written.
        """
        self._require_open(self._pattern)
        if self._shard is not None:
            self._finish(self._shard)

    def close(self) -> None:
        """Completes the current shard. One tar that received no sample is an empty one.

        Raises:
            DatasetError: this shard or an earlier one could not be written.
        """
        if self._is_closed and self._failure is None:
            return
        if self._names == (self._pattern,) and not self.paths and self._shard is None:
            self._require_open(self._pattern)
            self._shard = self._begin()
        self.next_shard()
        self._is_closed = True
        number = len(self.paths)
        if self._overwrite and (self._names is None or number < len(self._names)):
            path = self._path(number)
            if path.exists():  # a pattern such as train-*.tar would read its samples too
                problem = "%s: exists already, after the %d shards that were written; delete it, unless %s"
                _LOG.warning(problem, path, number, "another writer made it")

    def abort(self) -> None:
        """Deletes the current shard."""
        self._is_closed = True
        shard, self._shard = self._shard, None
        if shard is not None:
            shard.output.drop()

    def _is_full(self, shard: _Shard, size: int) -> bool:
        return (self._max_samples is not None and len(shard.keys) >= self._max_samples) or (
            self._max_bytes is not None and _padded_size(shard.size + size) > self._max_bytes
        )

    def _begin(self) -> _Shard:
        path = self._path(len(self.paths))
        with self._writing(path):
            if path.exists() and not self._overwrite:
                hint = "give another path, or replace it: overwrite=True, or --overwrite"
                raise ArgumentValueError("shards", "exists already", str(path), hint=hint)
            path.parent.mkdir(parents=True, exist_ok=True)
            return _Shard(path, AtomicFile(path))

    def _path(self, number: int) -> Path:
        if self._names is None:
            return Path(self._pattern % (self._first + number))
        if number < len(self._names):
            return Path(self._names[number])
        noun = "shard" if len(self._names) == 1 else "shards"
        problem = f"names {len(self._names)} {noun}, and more are needed"
        raise ArgumentRangeError("shards", problem, self._pattern, hint="name more, or raise the limits")

    def _finish(self, shard: _Shard) -> None:
        with self._writing(shard.path):
            shard.output.file.write(bytes(_padded_size(shard.size) - shard.size))
            shard.output.finish()
        self._shard = None
        path = str(shard.path)
        self.paths.append(path)
        if self._index:
            target = Path(path + INDEX_SUFFIX)
            with self._writing(target, "the shard is whole: make its index by `samplerkit index`"):
                make_index(Stored.of(path), Cache.of(None), checksums=self._checksums).write(target)


@dataclass
class _Shard:
    """A shard that is being written under a temporary name."""

    path: Path
    output: AtomicFile
    keys: set[str] = field(default_factory=set)
    size: int = 0


def _member(name: str, data: bytes) -> tuple[bytes, bytes, bytes]:
    """Returns the header, data and padding of one file in an archive, with a constant owner and time."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    # pax equals ustar if that is enough, and allows names of any length and characters.
    header = member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    return header, data, bytes(padded(len(data)) - len(data))


def _padded_size(size: int) -> int:
    """Returns the size of an archive with its end mark of two blocks, padded to whole records as by tar."""
    return -(-(size + 2 * BLOCK) // tarfile.RECORDSIZE) * tarfile.RECORDSIZE


def _checked_key(sample: Any) -> str:
    if not isinstance(sample, Mapping) or not all(isinstance(name, str) for name in sample):
        raise ArgumentTypeError("sample", "must be a dict of names and values", sample)
    key = sample.get("__key__")
    if not isinstance(key, str):
        raise ArgumentTypeError("__key__", "must be a string", key)
    name = _encoded_name("__key__", key, "x")
    if is_unsafe(name) or "\0" in key or "\n" in key or key.endswith("/"):
        raise ArgumentValueError("__key__", "cannot be the name of a file below a folder", key)
    if split_name(name) != (name[:-2], b"x"):
        hint = "the part after the first dot would belong to the extension"
        raise ArgumentValueError("__key__", "must have no dot in its last part", key, hint=hint)
    if "/" in key and is_meta(name):
        raise ArgumentValueError("__key__", "begins with a folder that readers skip", key)
    return key


def _checked_field(key: str, name: str) -> str:
    if not name or "/" in name or "\0" in name or name != name.lower():
        raise ArgumentValueError("field", "must be an extension in lower case", name)
    if is_meta(_encoded_name("field", key, name)):
        raise ArgumentValueError("field", "gives a file a name that readers skip", f"{key}.{name}")
    return name


def _encoded_name(place: str, key: str, extension: str) -> bytes:
    try:
        return f"{key}.{extension}".encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        name = f"{key}.{extension}"
        raise ArgumentValueError(place, "has a character that is not valid in file names", name) from error
