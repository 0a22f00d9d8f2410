"""Packs the files of a folder into tar shards."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from samplerkit.errors import ArgumentRangeError, ArgumentValueError, DatasetError
from samplerkit.storage.files.paths import one_path
from samplerkit.storage.names import expand_braces
from samplerkit.storage.tar.format.samples import is_meta, split_name
from samplerkit.storage.tar.write_indexes import index_shard
from samplerkit.storage.tar.writer import DEFAULT_BYTES, TarWriter
from samplerkit.storage.threads import Progress, silence
from samplerkit.storage.urls import shown


@dataclass(frozen=True)
class PackResult:
    """The result of `pack_folder`.

    Args:
        paths: the paths of the shards.
        num_samples: the number of samples in them.
        num_files: the number of files in them.
        left_out: files that have no extension, are hidden, or are in a folder `__name__`, as paths relative
            to the packed folder.
    """

    paths: tuple[str, ...]
    num_samples: int
    num_files: int
    left_out: tuple[str, ...]


def pack_folder(
    source: Any,
    shards: str,
    *,
    samples_per_shard: int | None = None,
    bytes_per_shard: int | None = None,
    checksums: bool = False,
    overwrite: bool = False,
    progress: Progress = silence,
) -> PackResult:
    """Packs the files of a folder and of all folders below it into shards.

    Files of the same name up to the first dot are one sample; the folders belong to its key. Samples are
    sorted by key. Symbolic links to files are followed, those to folders are not.

    Args:
        source: the folder.
        shards: the path of the shards: `train-%06d.tar`; or `train-{000..007}.tar` for a fixed number of
            shards, whose numbers of samples differ by at most one; or the path of one tar.
        samples_per_shard: samples in a shard, if the number of shards is not fixed.
        bytes_per_shard: the most bytes of a shard, if the number of shards is not fixed; None for 1 GiB.
        checksums: whether the indexes next to the shards have a CRC-32 of each file.
        overwrite: whether existing shards are replaced.
        progress: called with the number of samples written.

    Raises:
        DatasetError: the folder does not exist or has no samples, or a file cannot be read.
        ArgumentTypeError: `source` or `shards` is not a path.
        ArgumentValueError: `shards` is invalid, or a shard exists already.
        ArgumentRangeError: a limit is not positive, or there are fewer samples than shards.
    """
    shards, source = one_path("shards", shards), one_path("source", source)
    folder = Path(source)
    if not folder.is_dir():
        raise DatasetError("source", "is not a folder", shown(source))
    samples, left_out = samples_in(folder)
    if not samples:
        raise DatasetError("source", "has no file with an extension", str(source))
    for key, files in samples.items():
        fields = [field for field, _ in files]
        if len(set(fields)) < len(fields):
            raise DatasetError("source", "has two files that differ in upper and lower case only", key)
    ends = _ends(shards, len(samples), samples_per_shard, bytes_per_shard)
    with TarWriter(
        shards,
        samples_per_shard=samples_per_shard,
        bytes_per_shard=None if ends else DEFAULT_BYTES if bytes_per_shard is None else bytes_per_shard,
        checksums=checksums,
        overwrite=overwrite,
    ) as writer:
        for done, (key, files) in enumerate(samples.items(), start=1):
            writer.write({"__key__": key, **{field: _read(folder / path) for field, path in files}})
            if done in ends:
                writer.next_shard()
            progress("packing sample", done, len(samples))
    num_files = sum(len(files) for files in samples.values())
    return PackResult(tuple(writer.paths), len(samples), num_files, tuple(left_out))


def pack_shard(samples: Iterable[Mapping[str, Any]], shard: str, *, checksums: bool = False) -> str:
    """Writes one shard unless it exists: an idempotent task for distributed engines.

    Args:
        samples: as for `TarWriter.write`; not iterated if the shard exists.
        shard: its path, which ends in `.tar`.
        checksums: whether the index next to it has a CRC-32 of each file.

    Returns:
        The path of the complete shard, which has its index next to it.

    Raises:
        DatasetError: the shard cannot be written.

    Example:
        >>> import tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "train-000007.tar")
        >>> for _ in range(2):
        ...     shard = pack_shard([{"__key__": "a", "txt": "once"}], path)
        >>> sorted(os.listdir(os.path.dirname(path)))
        ['train-000007.tar', 'train-000007.tar.skidx']
    """
    if not Path(shard).is_file():
        # Another task may write the same shard concurrently: each writes all of it, and the last one wins.
        with TarWriter(shard, checksums=checksums, overwrite=True) as writer:
            for sample in samples:
                writer.write(dict(sample))
    else:  # a task that was killed may have left it without an index
        index_shard(shard, checksums=checksums)
    return shard


def _ends(shards: str, num_samples: int, samples_per_shard: int | None, num_bytes: int | None) -> set[int]:
    """Returns after how many samples each of a fixed number of equally large shards ends."""
    if "{" not in shards:
        return set()
    if samples_per_shard is not None or num_bytes is not None:
        problem = "fixes the number of shards, so a limit cannot be given"
        hint = "write shards as in train-%06d.tar, or leave the limit out"
        raise ArgumentValueError("shards", problem, shards, hint=hint)
    count = len(expand_braces(shards))
    if num_samples < count:
        raise ArgumentRangeError("shards", f"are more than the {num_samples} samples", count)
    return {num_samples * number // count for number in range(1, count + 1)}


def samples_in(folder: Path) -> tuple[dict[str, list[tuple[str, str]]], list[str]]:
    """Finds the files of each sample, sorted by key and then by extension, and files that are left out.

    Returns:
        By key, the extension and the relative path of each file; and the paths that belong to no sample.

    Raises:
        DatasetError: a folder cannot be read.
    """
    entries: list[tuple[bytes, bytes, str]] = []
    left_out = []
    for root, _, files in os.walk(folder, onerror=_fail):
        for file in files:
            path = os.path.relpath(Path(root) / file, folder)
            name = os.fsencode(path)
            parts = split_name(name)
            is_left_out = file.startswith(".") or is_meta(name) or not (folder / path).is_file()
            if parts is None or is_left_out:
                left_out.append(path)
            else:
                entries.append((parts[0], parts[1], path))
    samples: dict[str, list[tuple[str, str]]] = {}
    for key, extension, path in sorted(entries):
        samples.setdefault(os.fsdecode(key), []).append((os.fsdecode(extension).lower(), path))
    return samples, sorted(left_out)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        _fail(error)


def _fail(error: OSError) -> NoReturn:
    raise DatasetError("source", f"cannot be read ({error.strerror})", str(error.filename)) from error
