"""The commands `samplerkit index` and `samplerkit pack`: tar shards from the shell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from samplerkit.errors import DatasetError
from samplerkit.storage.progress import Progress as Told
from samplerkit.storage.tar.archive import Archive
from samplerkit.storage.tar.cache import INDEX_SUFFIX, Cache
from samplerkit.storage.tar.index import Index, make_index
from samplerkit.storage.tar.names import archive_names
from samplerkit.storage.tar.pack import pack_folder

SHOWN = 10
"""Files that were left out and flaws that are named one by one."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Checksums = Annotated[
    bool,
    typer.Option("--checksums", help="Keep a CRC-32 of each file, to find damage when it is read."),
]


def index(
    urls: Annotated[list[str], typer.Argument(help="Paths, braces such as train-{000..127}.tar, globs.")],
    checksums: Checksums = False,
    as_json: Json = False,
) -> None:
    """Write the index of tar shards beside them, so that nobody has to make it at the first use."""
    archives = [Archive.of(name) for name in archive_names(urls)]
    found = []
    with _progress() as told:
        for done, archive in enumerate(archives):
            told("indexing shard", done, len(archives))
            made = make_index(archive, Cache.of(None), checksums=checksums)
            _keep(made)
            found.append(made)
        told("indexing shard", len(archives), len(archives))
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
    source: Annotated[Path, typer.Argument(help="A folder; files of one name up to the dot are a sample.")],
    shards: Annotated[
        str, typer.Option(help="The shards: out-%06d.tar, or out-{000..007}.tar for so many of one size.")
    ],
    samples_per_shard: Annotated[int | None, typer.Option(min=1, help="Samples in a shard.")] = None,
    bytes_per_shard: Annotated[
        int | None, typer.Option(min=1, help="Bytes that a shard is not to exceed; 1 GiB if nothing is said.")
    ] = None,
    checksums: Checksums = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace shards that are there.")] = False,
    as_json: Json = False,
) -> None:
    """Pack a folder of files into tar shards, each with its index beside it."""
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


def _keep(made: Index) -> None:
    path = Path(made.archive.url + INDEX_SUFFIX)
    try:
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
