"""The command `samplerkit seen`: what a run has read up to a checkpoint, without a log of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from samplerkit.cli.opening import AsJson, ConfigPath, NumRanks, opened, state_in
from samplerkit.cli.printing import counted, print_facts, print_json, print_table, progress
from samplerkit.errors import ArgumentValueError
from samplerkit.inspect.documents import when_document
from samplerkit.inspect.time_machine import when
from samplerkit.loading.loader import Loader
from samplerkit.loading.run.history import History
from samplerkit.order.layout import Layout
from samplerkit.storage.atomic import atomic
from samplerkit.storage.files.packages import extra

_COLUMNS = ("epoch", "rank", "step", "place", "position")
_MOST_ROWS = 20
_WRITTEN_AT_ONCE = 1 << 20


def seen(
    config: ConfigPath,
    state: Annotated[Path, typer.Option(help="The checkpoint: JSON, or from torch.save.")],
    since: Annotated[Path | None, typer.Option(help="Leave out what an earlier checkpoint had read.")] = None,
    sample: Annotated[int | None, typer.Option(min=0, help="When was this sample read? Its id.")] = None,
    document: Annotated[
        int | None, typer.Option(min=0, help="When was this document of tokens read? Its number.")
    ] = None,
    file: Annotated[int, typer.Option(min=0, help="Of the document: the number of its file.")] = 0,
    part: Annotated[str | None, typer.Option(help="How much of this part of a tree was read?")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write all ids, in the order of reading, to a .npy or .parquet file.")
    ] = None,
    world: NumRanks = None,
    as_json: AsJson = False,
) -> None:
    """Tell what a run has read up to a checkpoint: how much, of which part, and when a sample was read.

    Ranks and steps are those of a job of the config's ranks and batch size.
    """
    if out is not None and out.suffix not in (".npy", ".parquet"):
        raise typer.BadParameter("must end with .npy or .parquet", param_hint="--out")
    loader = opened(config, world, state)[1]
    history = loader.history()
    history = history if since is None else history.since(state_in(since))
    told: dict[str, Any] = {
        "samples": len(history),
        "is_complete": history.is_complete,
        "older_epochs": history.past.older,
        "read": [{"epoch": epoch, "from": begin, "to": end} for epoch, begin, end in history.parts],
    }
    if sample is not None:
        told |= {"sample": sample, "times": _times(history, partial(_of_sample, loader, sample))}
    if document is not None:
        times = _times(history, partial(_of_document, loader, document, file))
        told |= {"document": document, "file": file, "times": times}
    if part is not None:
        told["part"] = _of_part(loader, history, part)
    if out is not None:
        _write(history, out)
        told["out"] = str(out)
    if as_json:
        print_json(told)
        return
    _print(told, loader, history)


Time = dict[str, Any]
"""One time that something was read: the fields of an `Occurrence`, and for documents of a part of one."""


def _of_sample(loader: Loader, sample: int, epoch: int, start: int) -> list[Time]:
    return [asdict(time) for time in when(loader, sample, epoch, start=start)[0].occurrences]


def _of_document(loader: Loader, document: int, file: int, epoch: int, start: int) -> list[Time]:
    parts = when_document(loader, document, epoch, file=file, start=start)[0]
    return [{**asdict(part.read), "first": part.first, "tokens": part.tokens} for part in parts]


def _times(history: History, find: Callable[[int, int], list[Time]]) -> list[Time]:
    """Returns each time that something was read, as far as the history goes in each epoch."""
    return [
        time
        for epoch, begin, end in history.parts
        for time in find(epoch, begin)
        if time["position"] < end and not time["is_pad"]
    ]


def _of_part(loader: Loader, history: History, name: str) -> dict[str, Any]:
    parts = Layout.of(loader.dataset).parts
    if name not in parts:
        raise ArgumentValueError("part", f"is none of {list(parts)}", name)
    read = history.by_source()[name]
    return {"name": name, "read": read, "passes": read / max(1, parts[name].num_samples)}


def _write(history: History, path: Path) -> None:
    """Writes the ids, some at a time, so that memory holds no more of them."""
    with atomic(path) as file, progress() as report:
        if path.suffix == ".npy":
            header = {"descr": "<i8", "fortran_order": False, "shape": (len(history),)}
            np.lib.format.write_array_header_1_0(file, header)
            writer = None
        else:
            arrow = extra("pyarrow", "parquet")
            schema = arrow.schema([("id", arrow.int64())])
            writer = extra("pyarrow.parquet", "parquet").ParquetWriter(file, schema)
        for number, ids in enumerate(history.chunks(_WRITTEN_AT_ONCE)):
            report("samples", number * _WRITTEN_AT_ONCE, len(history))
            if writer is None:
                file.write(ids.astype("<i8").tobytes())
            else:
                writer.write_table(arrow.table({"id": ids}))
        if writer is not None:
            writer.close()


def _print(told: dict[str, Any], loader: Loader, history: History) -> None:
    older = history.past.older
    more = f", and {counted(older, 'epoch')} before, whole or in part" if older else ""
    print_facts([("read", counted(len(history), "sample") + more), ("order", loader.fingerprint)])
    if "part" in told:
        part = told["part"]
        share = f"{counted(part['read'], 'sample')}, {part['passes']:.3f} passes"
        print_facts([(part["name"], share)])
    times = told.get("times")
    if times is not None:
        columns = tuple(name for name in (*_COLUMNS, "first", "tokens") if not times or name in times[0])
        rows: list[tuple[object, ...]] = [tuple(time[name] for name in columns) for time in times]
        _print_rows(columns, rows, "never")
    else:
        rows = [
            (one.epoch, one.epochs, one.begin, "the end" if one.end < 0 else one.end)
            for one in history.past.stretches
        ]
        _print_rows(("epoch", "epochs", "from", "to"), rows, "nothing")


def _print_rows(columns: tuple[str, ...], rows: list[tuple[object, ...]], nothing: str) -> None:
    typer.echo()
    if not rows:
        typer.echo(nothing)
        return
    print_table(columns, rows[:_MOST_ROWS])
    if len(rows) > _MOST_ROWS:
        typer.echo(f"and {len(rows) - _MOST_ROWS:,} more; --json lists all")
