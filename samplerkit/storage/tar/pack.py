"""Packs the files of a folder into tar shards."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samplerkit.errors import ArgumentRangeError, ArgumentValueError, DatasetError
from samplerkit.storage.names import expand_braces
from samplerkit.storage.tar.format.samples import is_meta, split_name
from samplerkit.storage.tar.writer import DEFAULT_BYTES, TarWriter
from samplerkit.storage.threads import Progress, silence


@dataclass(frozen=True)
class Packed:
    """What was packed.

    Args:
        paths: the shards.
        num_samples: how many samples are in them.
        num_files: how many files.
        left_out: files that have no extension, are hidden, or lie in a folder `__name__`; their paths are
            relative to the folder that was packed.
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
) -> Packed:
    """Packs the files of a folder and of all folders below it into shards.

    Files of the same name up to the first dot are one sample; the folders belong to its key. Samples are
    sorted by key. Symbolic links to files are followed, those to folders are not.

    Args:
        source: the folder.
        shards: the path of the shards: `train-%06d.tar`, or `train-{000..007}.tar` for so many shards with
            as many samples in each, give or take one; or the path of one tar.
        samples_per_shard: samples in a shard, where their number is open.
        bytes_per_shard: bytes that a shard is not to exceed, where their number is open; None for 1 GiB.
        checksums: whether the indexes beside the shards have a CRC-32 of each file.
        overwrite: whether shards that are there are replaced.
        progress: receives how many samples are written.

    Raises:
        DatasetError: there is no such folder, or no sample in it, or a file cannot be read.
        ArgumentValueError: `shards` cannot be understood, or a file is there already.
        ArgumentRangeError: a limit is not positive, or there are fewer samples than shards.
    """
    folder = Path(source)
    if not folder.is_dir():
        raise DatasetError("source", "is no folder", str(source))
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
        bytes_per_shard=None if ends else bytes_per_shard or DEFAULT_BYTES,
        checksums=checksums,
        overwrite=overwrite,
    ) as writer:
        for done, (key, files) in enumerate(samples.items(), start=1):
            writer.write({"__key__": key, **{field: _read(folder / path) for field, path in files}})
            if done in ends:
                writer.next_shard()
            progress("packing sample", done, len(samples))
    num_files = sum(len(files) for files in samples.values())
    return Packed(tuple(writer.paths), len(samples), num_files, tuple(left_out))


def pack_shard(samples: Iterable[Mapping[str, Any]], shard: str, *, checksums: bool = False) -> str:
    """Writes one shard, unless it is there: what an engine runs, and may run again.

    Args:
        samples: as for `TarWriter.write`; they are not asked for where the shard is there.
        shard: its path, which ends in `.tar`.
        checksums: whether the index beside it has a CRC-32 of each file.

    Returns:
        The path of the shard, which is whole, with its index beside it.

    Raises:
        DatasetError: it cannot be written.

    Example:
        >>> import tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "train-000007.tar")
        >>> for _ in range(2):
        ...     shard = pack_shard([{"__key__": "a", "txt": "once"}], path)
        >>> sorted(os.listdir(os.path.dirname(path)))
        ['train-000007.tar', 'train-000007.tar.skidx']
    """
    if not Path(shard).is_file():
        # Another task may write the same at the same time: each writes all of it, and the last one stays.
        with TarWriter(shard, checksums=checksums, overwrite=True) as writer:
            for sample in samples:
                writer.write(dict(sample))
    return shard


def _ends(shards: str, num_samples: int, samples_per_shard: int | None, num_bytes: int | None) -> set[int]:
    """Where shards end whose number is said: they are as large as one another."""
    if "{" not in shards:
        return set()
    if samples_per_shard is not None or num_bytes is not None:
        hint = "write shards as in train-%06d.tar, or leave the limit out"
        raise ArgumentValueError(
            "shards", "says how many there are, so no limit goes with it", shards, hint=hint
        )
    count = len(expand_braces(shards))
    if num_samples < count:
        raise ArgumentRangeError("shards", f"are more than the {num_samples} samples", count)
    return {num_samples * number // count for number in range(1, count + 1)}


def samples_in(folder: Path) -> tuple[dict[str, list[tuple[str, str]]], list[str]]:
    """Finds the files of each sample, sorted by key and then by extension, and those that are left out.

    Returns:
        By key, the extension and the path below the folder of each file; and the paths of no sample.

    Raises:
        DatasetError: a folder cannot be read.
    """
    found: list[tuple[bytes, bytes, str]] = []
    left_out = []
    for root, _, files in os.walk(folder, onerror=_fail):
        for file in files:
            path = os.path.relpath(Path(root) / file, folder)
            name = os.fsencode(path)
            parts = split_name(name)
            is_kept = parts is not None and not file.startswith(".") and not is_meta(name)
            if parts is None or not is_kept or not (folder / path).is_file():
                left_out.append(path)
            else:
                found.append((parts[0], parts[1], path))
    samples: dict[str, list[tuple[str, str]]] = {}
    for key, extension, path in sorted(found):
        files_of = samples.setdefault(os.fsdecode(key), [])
        files_of.append((os.fsdecode(extension).lower(), path))
    return samples, sorted(left_out)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DatasetError("source", f"cannot be read ({error.strerror})", str(path)) from error


def _fail(error: OSError) -> None:
    raise DatasetError("source", f"cannot be read ({error.strerror})", str(error.filename)) from error
