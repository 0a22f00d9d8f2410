"""Making of catalogues in parts, independently and on any machines, and joining them."""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from samplerkit.errors import ArgumentValueError, DatasetError
from samplerkit.order import arguments
from samplerkit.storage.catalogue.catalogue_file import SUFFIX, read_catalogue, write_catalogue
from samplerkit.storage.catalogue.file_catalogue import FileCatalogue, Kind, encoded, joined
from samplerkit.storage.files.packages import guarded
from samplerkit.storage.files.paths import file_paths, one_path
from samplerkit.storage.files.readers import file_reader
from samplerkit.storage.files.stored import INDEX_SUFFIX, Stored
from samplerkit.storage.formats.parquet.file import Footers, ParquetFile
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.tar.index.find_or_make import Cache, find_or_make, make_index
from samplerkit.storage.threads import Progress, all_in_threads, silence
from samplerkit.storage.urls import is_remote, shown

_TAR = (".tar", ".tar.gz", ".tgz")
_PARQUET = (".parquet", ".pq")


def kind_of(path: str, reader: Any) -> Kind:
    """Returns the kind of a file, by the given reader or by the name of the file.

    Raises:
        ArgumentValueError: the kind is unknown.

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
    hint = "name the reader of such files"
    raise ArgumentValueError("files", "are neither tar shards nor Parquet", shown(path), hint=hint)


def look(path: str, reader: Any = None, *, storage: RemoteStorage | None = None) -> FileCatalogue:
    r"""Returns the catalogue of one file, from a Parquet footer, the index of a tar shard, or by counting.

    An index next to a shard or in the user's cache is used; otherwise the shard is indexed, fetched first if
    it is remote, and the index is kept in the cache.

    Args:
        path: the path or URL of the file.
        reader: the reader of files that are neither tar shards nor Parquet, as for a `FileDataset`.
        storage: the storage for remote files; None for one with the defaults, for this file alone.

    Raises:
        ArgumentTypeError: `reader` is not a reader.
        ArgumentValueError: the kind of the file is unknown.
        DatasetError: the file cannot be read, or has a flaw.

    Example:
        >>> import tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "a.txt")
        >>> with open(path, "w") as file:
        ...     _ = file.write("one\ntwo\n")
        >>> look(path, "text").samples
        array([2])
    """
    if storage is None:
        with RemoteStorage(RemoteOptions()) as own:
            return look(path, reader, storage=own)
    if not is_remote(path):
        path = os.path.abspath(path)  # noqa: PTH100  # links are kept
    kind, stored = kind_of(path, reader), Stored.of(path, storage)
    details: tuple[Any, ...] = ()
    if kind == "tar":
        cache = Cache.of(None, storage.options)
        make = partial(make_index, stored, cache, checksums=False)
        index = find_or_make(stored, cache, make, checksums=False)
        for flaw in index.skipped.places:
            raise flaw.error()
        samples = [index.num_samples]
    elif kind == "parquet":
        found = guarded(stored.name, "read", lambda: ParquetFile.of(path, storage, Footers()))
        file = found.select(None, None)
        samples, details = list(file.rows), (file.columns, file.footer[1:], file.check)
    else:
        samples = [replace(file_reader(reader), storage=storage).count(path)]
        stored.require_same()
    return FileCatalogue.of_file(kind, path, stored.size, stored.version, samples, *details)


PART_FILES: Final = 1024
"""The default number of files in a part, which is the work that a killed process may lose."""

THREADS: Final = 16
"""Files that are examined in parallel."""


def parts_of(files: Any, size: int = PART_FILES, *, remote: RemoteOptions | None = None) -> list[list[str]]:
    """Lists files, and splits the list into parts.

    Args:
        files: paths or URLs, or patterns of them with braces or globs.
        size: the most files of a part.
        remote: options for patterns of URLs.

    Raises:
        ArgumentRangeError: `size` is not positive.
        DatasetError: no file matches.

    Example:
        >>> parts_of([f"s3://bucket/{number}.parquet" for number in range(5)], 2)[-1]
        ['s3://bucket/4.parquet']
    """
    size = arguments.positive("part_files", size)
    listed = file_paths(files, remote or RemoteOptions(), exclude=INDEX_SUFFIX)
    names = [name if is_remote(name) else os.path.abspath(name) for name in listed]  # noqa: PTH100  # links stay
    return [names[start : start + size] for start in range(0, len(names), size)]


def make_part(
    files: Sequence[str],
    folder: str,
    reader: Any = None,
    *,
    threads: int = THREADS,
    remote: RemoteOptions | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> str:
    """Writes the catalogue of some files unless it exists: an idempotent task for distributed engines.

    Its name is a hash of the files' names, so two tasks with the same files write the same file, each
    atomically.

    Args:
        files: paths or URLs: one of the parts of `parts_of`.
        folder: the folder for the part, a path or a URL that all machines can access.
        reader: the reader of files that are neither tar shards nor Parquet, as for a `FileDataset`.
        threads: files that are examined in parallel.
        remote: options for URLs.
        progress: called with the number of finished files and the total.

    Returns:
        The path or URL of the part, for `join_parts`.

    Raises:
        ArgumentValueError: the kind of the files is unknown.
        ArgumentRangeError: `threads` is not positive.
        DatasetError: a file cannot be read, or the part cannot be written.
    """
    name = hashlib.blake2b(b"\0".join(map(encoded, files)), digest_size=10, person=b"catalogue")
    out = f"{folder.rstrip('/')}/{name.hexdigest()}{SUFFIX}"
    kind = kind_of(files[0], reader)
    with suppress(DatasetError):  # it is made, or made again
        if read_catalogue(out, remote).kind == kind:
            return out
    with RemoteStorage(remote or RemoteOptions()) as storage:
        work = partial(look, reader=reader, storage=storage)
        catalogues = all_in_threads(work, files, threads, "samplerkit-catalogue", progress)
    write_catalogue(joined(catalogues), out, remote)
    return out


def join_parts(parts: Iterable[str], out: str, *, remote: RemoteOptions | None = None) -> FileCatalogue:
    """Joins catalogues into one, writes it, and returns it.

    Args:
        parts: the paths or URLs of the catalogues, in any order.
        out: a path or URL that ends in `.skcat`.
        remote: options for URLs.

    Raises:
        ArgumentValueError: a file is in two parts, the parts are of several kinds, or `out` does not end in
            `.skcat`.
        DatasetError: a part does not exist or is damaged, columns differ, or `out` cannot be written.
    """
    require_suffix(out)
    catalogue = joined([read_catalogue(part, remote) for part in parts])
    write_catalogue(catalogue, out, remote)
    return catalogue


def make_catalogue(
    files: Any,
    out: str,
    reader: Any = None,
    *,
    part_files: int = PART_FILES,
    threads: int = THREADS,
    remote: RemoteOptions | None = None,
    progress: Progress = silence,
) -> FileCatalogue:
    r"""Writes the catalogue of files on this machine; an interrupted call can be resumed by calling it again.

    Args:
        files: paths or URLs, or patterns of them; or catalogues, which are joined.
        out: a path that ends in `.skcat`. Until all is done, parts are in a folder next to it.
        reader: the reader of files that are neither tar shards nor Parquet, as for a `FileDataset`.
        part_files: the most files of a part, which is the work that may be lost when the process is killed.
        threads: files that are examined in parallel.
        remote: options for URLs.
        progress: called with the number of finished files.

    Raises:
        ArgumentTypeError: `reader` is not a reader.
        ArgumentValueError: `out` is a URL or does not end in `.skcat`, the kind of a file is unknown, or a
            file is given twice.
        ArgumentRangeError: `threads` or `part_files` is not positive.
        DatasetError: no file matches, or a file cannot be read or has a flaw.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> for name in "ab":
        ...     with open(os.path.join(folder, f"{name}.txt"), "w") as file:
        ...         _ = file.write("one\ntwo\n")
        >>> known = make_catalogue(os.path.join(folder, "*.txt"), os.path.join(folder, "all.skcat"), "text")
        >>> known.num_files, known.lengths
        (2, array([2, 2]))
    """
    require_suffix(out)
    one_path("out", out, "write it to a local file, and upload that")
    listed = parts_of(files, part_files, remote=remote)
    total = sum(map(len, listed))
    if all(name.endswith(SUFFIX) for part in listed for name in part):
        return join_parts([name for part in listed for name in part], out, remote=remote)
    folder, done, paths = f"{out}.parts", 0, []
    for part in listed:

        def report(number: int, _: int, before: int = done) -> None:
            progress("looking at file", before + number, total)

        paths.append(make_part(part, folder, reader, threads=threads, remote=remote, progress=report))
        done += len(part)
        report(len(part), total)
    catalogue = join_parts(paths, out, remote=remote)
    shutil.rmtree(folder)
    return catalogue


def require_suffix(out: str) -> None:
    """Checks that the name of a catalogue ends in `.skcat`.

    Raises:
        ArgumentTypeError: the name is not a string.
        ArgumentValueError: the name ends differently.
    """
    if not shown(arguments.text("out", out)).endswith(SUFFIX):
        hint = "datasets recognize a catalogue by that"
        raise ArgumentValueError("out", f"must end in {SUFFIX}", shown(out), hint=hint)
