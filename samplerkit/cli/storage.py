"""The commands `samplerkit index` and `samplerkit pack`: tar shards from the shell."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from samplerkit.cli.opening import AsJson
from samplerkit.errors import ArgumentValueError, DatasetError
from samplerkit.storage.progress import Progress as Told
from samplerkit.storage.remote.location import is_remote, shown
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.tar.archive import Archive
from samplerkit.storage.tar.cache import INDEX_SUFFIX, Cache
from samplerkit.storage.tar.index import Index, make_index
from samplerkit.storage.tar.names import archive_names
from samplerkit.storage.tar.pack import pack_folder

SHOWN = 10
"""Files that were left out and flaws that are named one by one."""

Checksums = Annotated[
    bool,
    typer.Option("--checksums", help="Keep a CRC-32 of each file, to find damage when it is read."),
]


def index(
    urls: Annotated[
        list[str], typer.Argument(help="Paths or URLs, braces such as train-{000..127}.tar, globs.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Where indexes are written; needed for URLs, to be uploaded then.")
    ] = None,
    checksums: Checksums = False,
    as_json: AsJson = False,
) -> None:
    """Write the index of tar shards beside them, so that nobody has to make it at the first use.

    Shards at URLs are fetched into the user's cache for it.
    """
    names = archive_names(urls)
    targets = _targets(names, out)
    found = []
    with _progress() as told, closing(RemoteStorage(RemoteOptions())) as storage:
        for done, (name, target) in enumerate(zip(names, targets, strict=True)):
            told("indexing shard", done, len(names))
            made = _indexed(name, storage, checksums=checksums)
            _keep(made, target)
            found.append(made)
        told("indexing shard", len(names), len(names))
    flaws = [flaw for made in found for flaw in made.flaws]
    samples, members = (sum(getattr(one, name) for one in found) for name in ("num_samples", "num_members"))
    count = sum(sum(made.counts.values()) for made in found)
    if as_json:
        shown = [{"archive": f.archive, "offset": f.offset, "reason": f.reason} for f in flaws]
        sizes = {"shards": len(found), "samples": samples, "files": members}
        typer.echo(json.dumps({**sizes, "flaw_count": count, "flaws": shown}))
    else:
        typer.echo(f"{samples} samples of {members} files in {_plural(len(found), 'shard')}")
        for flaw in flaws[:SHOWN]:
            typer.echo(f"{flaw.archive}: {flaw.reason} at byte {flaw.offset}: {flaw.detail}", err=True)
        if count > SHOWN:
            typer.echo(f"and {count - SHOWN} more", err=True)
    if count:
        raise typer.Exit(1)


def pack(
    source: Annotated[str, typer.Argument(help="A folder; files of one name up to the dot are a sample.")],
    shards: Annotated[
        str,
        typer.Option(help="Shards: out-%06d.tar, or out-{000..007}.tar for so many of one size; or one tar."),
    ],
    samples_per_shard: Annotated[int | None, typer.Option(min=1, help="Samples in a shard.")] = None,
    bytes_per_shard: Annotated[
        int | None, typer.Option(min=1, help="Bytes that a shard is not to exceed; 1 GiB if nothing is said.")
    ] = None,
    checksums: Checksums = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace shards that are there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Pack a folder of files into tar shards, each with its index beside it."""
    for place, path in (("source", source), ("shards", shards)):
        if is_remote(path):
            mend = "pack from a local folder into a local folder, and upload that"
            raise ArgumentValueError(place, "must be local", shown(path), mend=mend)
    with _progress() as told:
        packed = pack_folder(
            source,
            shards,
            samples_per_shard=samples_per_shard,
            bytes_per_shard=bytes_per_shard,
            checksums=checksums,
            overwrite=overwrite,
            progress=told,
        )
    if as_json:
        event = {
            "shards": packed.paths,
            "samples": packed.num_samples,
            "files": packed.num_files,
            "left_out": packed.left_out,
        }
        typer.echo(json.dumps(event))
        return
    number = _plural(len(packed.paths), "shard")
    typer.echo(f"{packed.num_samples} samples of {packed.num_files} files in {number}")
    if packed.left_out:
        named = ", ".join(packed.left_out[:SHOWN]) + (", ..." if len(packed.left_out) > SHOWN else "")
        typer.echo(f"left out, for they are hidden or have no extension: {named}", err=True)


def _targets(names: Sequence[str], out: Path | None) -> list[Path]:
    """Gives where the index of each shard is written.

    Raises:
        ArgumentValueError: nothing can be written beside a shard, or two indexes would have one name.
    """
    if out is None:
        far = next((name for name in names if is_remote(name)), None)
        if far is not None:
            problem = "is needed, for nothing is written beside a shard that lies elsewhere"
            mend = "say --out FOLDER, and upload what is in it beside the shards"
            raise ArgumentValueError("--out", problem, shown(far), mend=mend)
        return [Path(name + INDEX_SUFFIX) for name in names]
    targets = [out / (shown(name).rpartition("/")[2] + INDEX_SUFFIX) for name in names]
    twice = [path for path, count in Counter(targets).items() if count > 1]
    if twice:
        mend = "index each folder of shards by itself"
        raise ArgumentValueError("--out", "would hold two indexes of one name", twice[0].name, mend=mend)
    return targets


def _indexed(name: str, storage: RemoteStorage, *, checksums: bool) -> Index:
    if not is_remote(name):
        return make_index(Archive.of(name), Cache.of(None), checksums=checksums)
    with storage.fetch(name) as copy:
        archive = Archive.of(shown(name), copy.path, storage.version(name).tag)
        return make_index(archive, Cache.of(None), checksums=checksums)


def _keep(made: Index, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made.write(path)
    except OSError as error:
        raise DatasetError(str(path), f"cannot be written ({error.strerror})") from error


@contextmanager
def _progress() -> Iterator[Told]:
    """A bar on the terminal; nothing where there is none."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def told(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield told


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
