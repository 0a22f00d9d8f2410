"""Reading and writing of catalogue files; everything in them that can be checked is checked."""

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final, TypeVar, get_args

import numpy as np

from samplerkit.errors import ArgumentValueError, DatasetError
from samplerkit.order.arguments import LARGEST
from samplerkit.storage.arrays import Array, array_bytes, narrow, on_disk, read_arrays
from samplerkit.storage.catalogue.file_catalogue import DIGEST_BYTES, REMAKE, FileCatalogue, Kind, encoded
from samplerkit.storage.remote.filesystem import read_small, write_small
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.urls import is_remote, local_path, shown

Result = TypeVar("Result")

SUFFIX: Final = ".skcat"
"""The suffix of catalogues, by which datasets distinguish them from data."""

_NUMBERS: Final = ("sizes", "chunks", "samples", "footers")


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
    meta = {"kind": catalogue.kind, "folder": folder, "columns": catalogue.columns}
    arrays: dict[str, Array] = {
        "names": _packed(map(encoded, catalogue.names)),
        "versions": _packed(catalogue.versions.tolist()),
        "digests": np.frombuffer(catalogue.digests, dtype=np.uint8),
    }
    for name in _NUMBERS:
        numbers = getattr(catalogue, name)
        arrays[name] = numbers.astype(narrow(int(numbers.max(initial=0))))
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
    with RemoteStorage(remote or RemoteOptions()) as storage:
        data = read_small(path, storage.read_shared if shared else storage.read_small)
    if data is None:
        raise DatasetError(place, "there is no such catalogue", hint="check the path, or make it first")
    try:
        with on_disk(data) as file:
            return _parse(path, *read_arrays(file))
    except (zlib.error, LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        problem = f"is not a catalogue, or is damaged ({type(error).__name__}: {error})"
        raise DatasetError(place, problem, hint=REMAKE) from error


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
        problem = f"is a catalogue of other files: their kind is {catalogue.kind!r}, and not {kind!r}"
        raise DatasetError(shown(path), problem, hint="give it to a dataset of that kind")
    if lengths is not None:
        raise ArgumentValueError("lengths", "are in the catalogue already", hint="leave them out")
    return catalogue


def _parse(path: str, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> FileCatalogue:
    folder = _folder(path, meta["folder"])
    names, versions = (zlib.decompress(arrays[each].tobytes()) for each in ("names", "versions"))
    catalogue = FileCatalogue(
        kind=meta["kind"],
        files=tuple(f"{folder}/{name}" for name in names.decode("utf-8", "surrogateescape").split("\0")),
        versions=np.array(versions.split(b"\0")),
        columns=tuple((name, kind) for name, kind in meta["columns"]),
        digests=arrays["digests"].tobytes(),
        **{name: arrays[name].astype(np.int64) for name in _NUMBERS},
    )
    if not all(_invariants(catalogue)):
        raise ValueError("its values are inconsistent")
    return catalogue


def _invariants(files: FileCatalogue) -> Iterator[bool]:
    """Yields whether each invariant of a catalogue holds; after a wrong one, others may raise errors."""
    number, samples, footers = files.sizes.size, files.samples, files.footers
    yield files.kind in get_args(Kind)
    yield all(isinstance(text, str) for column in files.columns for text in column)
    yield 0 < number == files.num_files == len(files.versions) == files.chunks.size
    yield all(one < other for one, other in pairwise(map(encoded, files.files)))
    yield min(int(each.min(initial=0)) for each in (files.sizes, files.chunks, samples, footers)) == 0
    yield int(files.chunks.max()) <= samples.size == int(files.chunks.sum())
    yield int(samples.max(initial=0)) <= LARGEST // max(1, samples.size)
    yield footers.size == (number if files.kind == "parquet" else 0)
    yield len(files.digests) == DIGEST_BYTES * footers.size
    yield bool((footers + 12 <= files.sizes[: footers.size]).all())


def _packed(texts: Iterable[bytes]) -> Array:
    """Compresses texts without zero bytes: similar names and times take a few bytes each."""
    return np.frombuffer(zlib.compress(b"\0".join(texts)), dtype=np.uint8)


def _folder(path: str, folder: str) -> str:
    """Returns the folder of the files: as stored, or resolved relative to the folder of the catalogue."""
    if not folder or is_remote(f"{folder}/") or folder.startswith("/"):
        return folder
    if is_remote(path):
        problem = "lists local files, but is remote itself"
        raise DatasetError(shown(path), problem, folder, hint="make it of the URLs of the files")
    own = os.path.abspath(os.path.dirname(path))  # noqa: PTH100, PTH120  # links are kept
    return os.path.normpath(f"{own}/{folder}").rstrip("/")


def read_unchanged(
    catalogue: FileCatalogue, storage: RemoteStorage | None, read: Callable[[int], Result], number: int
) -> Result:
    """Reads a file of a catalogue by its number, after checking that it did not change since."""
    catalogue.stored(number, storage).require_same()
    return read(number)
