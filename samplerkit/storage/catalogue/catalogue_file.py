"""Reading and writing of catalogue files; everything in them that can be checked is checked."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import pairwise
from typing import Any, Final, TypeVar, get_args

import numpy as np

from samplerkit.errors import ArgumentValueError, DatasetError
from samplerkit.order.arguments import LARGEST
from samplerkit.storage.arrays import Array, UnreadableFileError, array_bytes, narrow, on_disk, read_arrays
from samplerkit.storage.catalogue.file_catalogue import DIGEST_BYTES, REMAKE, FileCatalogue, Kind, encoded
from samplerkit.storage.remote.filesystem import read_small, write_small
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.urls import is_remote, local_path, shown

Result = TypeVar("Result")

SUFFIX: Final = ".skcat"
"""The suffix of catalogues, by which datasets distinguish them from data."""

VERSION: Final = 1

_KINDS: Final[Mapping[str, str]] = {
    "tar": "tar shards, for a TarDataset",
    "parquet": "Parquet files, for a ParquetDataset",
    "files": "files with a reader, for a FileDataset",
}


def write_catalogue(catalogue: FileCatalogue, out: str, remote: RemoteOptions | None = None) -> None:
    """Writes a catalogue atomically.

    If all files are in the folder of the catalogue or below it, paths are stored relative to it: the folder
    may be moved together with the catalogue, as long as files keep their modification times.

    Args:
        catalogue: the catalogue to write.
        out: a path or a URL that ends in `.skcat`.
        remote: options for a URL.

    Raises:
        DatasetError: the catalogue cannot be written.
    """
    folder = catalogue.folder
    if not is_remote(out) and not catalogue.is_remote:
        own = os.path.abspath(os.path.dirname(out))  # noqa: PTH100, PTH120  # links are kept
        if f"{folder}/".startswith(own.rstrip("/") + "/"):
            folder = os.path.relpath(folder or "/", own)
    names, name_bytes = _packed(catalogue.names)
    versions, version_bytes = _packed(catalogue.versions)
    meta = {
        "catalogue": VERSION,
        "kind": catalogue.kind,
        "folder": folder,
        "name_bytes": name_bytes,
        "version_bytes": version_bytes,
        "columns": catalogue.columns,
    }
    numbers = {"size": catalogue.sizes, "samples": catalogue.samples}
    if (catalogue.chunks != 1).any():
        numbers["chunks"] = catalogue.chunks
    if catalogue.kind == "parquet":
        numbers["footer"] = catalogue.footers
    arrays: dict[str, Array] = {"names": names, "versions": versions}
    arrays |= {name: array.astype(narrow(int(array.max(initial=0)))) for name, array in numbers.items()}
    if catalogue.kind == "parquet":
        arrays["digest"] = np.frombuffer(catalogue.digests, dtype=np.uint8)
    write_small(out, array_bytes(meta, arrays), remote or RemoteOptions())


def read_catalogue(path: str, remote: RemoteOptions | None = None, *, shared: bool = False) -> FileCatalogue:
    """Reads a catalogue.

    Args:
        path: a path or a URL.
        remote: options for a URL.
        shared: whether all processes of this machine read it, so that one of them fetches it into the cache.
            Otherwise it is read by one request.

    Raises:
        DatasetError: the catalogue does not exist, is damaged, truncated, of another version, or
            inconsistent.
    """
    place = shown(path)
    with closing(RemoteStorage(remote or RemoteOptions())) as storage:
        data = read_small(path, storage.read_shared if shared else storage.read_small)
    if data is None:
        raise DatasetError(place, "there is no such catalogue", hint="check the path, or make it first")
    try:
        with on_disk(data) as file:
            meta, arrays = read_arrays(file)
    except UnreadableFileError as error:
        raise DatasetError(place, f"is not a catalogue, or is damaged ({error})", hint=REMAKE) from error
    return _parse(path, meta, arrays)


def open_catalogue(
    files: Any, kind: Kind, remote: RemoteOptions | None, lengths: Any = None
) -> FileCatalogue | None:
    """Returns the catalogue that the user gave in place of files; None if `files` is not a catalogue.

    Raises:
        ArgumentValueError: `lengths` were given too, which a catalogue has already.
        DatasetError: the catalogue does not exist, cannot be read, or is of another kind of files.
    """
    if not isinstance(files, str | os.PathLike) or not isinstance(os.fspath(files), str):
        return None
    path = local_path(os.fspath(files))
    if not shown(path).endswith(SUFFIX):
        return None
    catalogue = read_catalogue(path, remote, shared=True)
    if catalogue.kind != kind:
        problem = f"is a catalogue of {_KINDS[catalogue.kind]}, and not of {_KINDS[kind].partition(',')[0]}"
        raise DatasetError(shown(path), problem, hint="give the catalogue to that, or name these files")
    if lengths is not None:
        raise ArgumentValueError("lengths", "belong to files; a catalogue has its own", hint="leave them out")
    return catalogue


def _parse(path: str, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> FileCatalogue:
    place = shown(path)
    if type(meta.get("catalogue")) is not int:
        raise DatasetError(place, "is an index of samplerkit, not a catalogue", hint=REMAKE)
    if meta["catalogue"] != VERSION:
        problem = f"is of another version of the format than {VERSION}"
        raise DatasetError(
            place, problem, meta["catalogue"], hint="read it with the samplerkit that wrote it"
        )
    try:
        sizes, samples = (arrays[name].astype(np.int64) for name in ("size", "samples"))
        folder = _folder(path, meta["folder"])
        catalogue = FileCatalogue(
            meta["kind"],
            tuple(f"{folder}/{name}" for name in _unpacked(arrays["names"], meta["name_bytes"])),
            sizes,
            tuple(_unpacked(arrays["versions"], meta["version_bytes"])),
            arrays["chunks"].astype(np.int64) if "chunks" in arrays else np.ones_like(sizes),
            samples,
            tuple((name, kind) for name, kind in meta["columns"]),
            arrays.get("footer", sizes[:0]).astype(np.int64),
            arrays.get("digest", sizes[:0]).tobytes(),
        )
        broken = next((law for law, holds in _laws(catalogue) if not holds), None)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, MemoryError) as error:
        broken = f"{type(error).__name__}, {error}"
    if broken is not None:
        raise DatasetError(place, f"is not a catalogue that samplerkit wrote: {broken}", hint=REMAKE)
    return catalogue


def _laws(files: FileCatalogue) -> Iterator[tuple[str, bool]]:
    """Yields the invariants of catalogues: a message for the violation, and whether the invariant holds."""
    number, samples = files.sizes.size, files.samples
    kind, texts = files.kind in get_args(Kind), [text for column in files.columns for text in column]
    yield "its kind or its columns are not known", kind and all(isinstance(text, str) for text in texts)
    names = files.num_files
    yield f"it has {number} sizes, and {names} names", 0 < number == names == len(files.versions)
    yield "its names are not sorted", all(one < other for one, other in pairwise(map(encoded, files.files)))
    counts = (files.sizes, files.chunks, samples, files.footers)
    yield "it has a negative number", min(int(each.min(initial=0)) for each in counts) == 0
    is_complete = files.chunks.size == number and int(files.chunks.max()) <= samples.size
    yield "its chunks do not match its files", is_complete and int(files.chunks.sum()) == samples.size
    yield "it has too many samples", int(samples.max(initial=0)) <= LARGEST // max(1, samples.size)
    footers = number if files.kind == "parquet" else 0
    is_complete = files.footers.size == footers and len(files.digests) == DIGEST_BYTES * footers
    yield "its footers do not match its files", is_complete
    yield "its footers are longer than its files", bool((files.footers + 12 <= files.sizes[:footers]).all())


def _packed(texts: Iterable[str]) -> tuple[Array, int]:
    """Compresses strings without zero bytes: similar names and times take a few bytes each.

    Returns:
        The compressed bytes, and the number of bytes before.
    """
    data = encoded("".join(f"{text}\0" for text in texts))
    return np.frombuffer(zlib.compress(data), dtype=np.uint8), len(data)


def _unpacked(packed: Array, size: int) -> list[str]:
    """Returns the strings of `_packed`; more than `size` bytes are never allocated.

    Raises:
        ValueError: the bytes are damaged, or decompress to another size.
    """
    inflating = zlib.decompressobj()
    try:
        data = inflating.decompress(packed.tobytes(), size + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(data) != size or not inflating.eof or not data.endswith(b"\0"):
        raise ValueError(f"they are not {size} bytes of texts")
    return data.decode("utf-8", "surrogateescape").split("\0")[:-1]


def _folder(path: str, folder: str) -> str:
    """Returns the folder of the files: as stored, or resolved relative to the folder of the catalogue."""
    if not folder or is_remote(f"{folder}/") or folder.startswith("/"):
        return folder
    if is_remote(path):
        problem = "was made of files on a disk, but is remote itself"
        raise DatasetError(shown(path), problem, folder, hint="make it of the URLs of the files")
    own = os.path.abspath(os.path.dirname(path))  # noqa: PTH100, PTH120  # links are kept
    return os.path.normpath(f"{own}/{folder}").rstrip("/")


def read_unchanged(
    catalogue: FileCatalogue, storage: RemoteStorage | None, read: Callable[[int], Result], number: int
) -> Result:
    """Reads a file of a catalogue by its number, after checking that it did not change since."""
    catalogue.stored(number, storage).require_same()
    return read(number)
