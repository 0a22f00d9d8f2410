"""The commands `samplerkit state` and `seen`: what a checkpoint says, and what was read up to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from samplerkit.cli.opening import AsJson, ConfigPath, NumRanks, opened, state_in, states_in
from samplerkit.cli.printing import counted, print_facts, print_json, print_table, progress
from samplerkit.errors import ArgumentValueError, SamplerkitError
from samplerkit.inspect.documents import when_document
from samplerkit.inspect.time_machine import when
from samplerkit.loading.loader import Loader
from samplerkit.loading.run.history import History
from samplerkit.loading.state.state import State
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
        nothing = "never"
    else:
        rows = [
            (one.epoch, one.epochs, one.begin, "the end" if one.end < 0 else one.end)
            for one in history.past.stretches
        ]
        columns, nothing = ("epoch", "epochs", "from", "to"), "nothing"
    typer.echo()
    print_table(columns, rows, most=_MOST_ROWS) if rows else typer.echo(nothing)


def state(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A checkpoint: JSON, or from torch.save.")],
    config: Annotated[str | None, typer.Option(help="A config that the state has to fit.")] = None,
    world: NumRanks = None,
    as_json: AsJson = False,
) -> None:
    """Show and verify the state of a loader, wherever in a checkpoint it stands."""
    loader = None if config is None else opened(config, world)[1]
    found = states_in(file)
    shown = [_looked_at(place, saved, loader) for place, saved in found]
    if as_json:
        print_json({"file": str(file), "states": shown})
    for number, one in enumerate([] if as_json else shown):
        if number:
            typer.echo()
        print_facts([(name, _shown(name, value)) for name, value in one.items() if name != "problem"])
    problems = [f"{one['place']}: {one['problem']}" for one in shown if one["problem"]]
    if not found:
        problems = ["holds no state of a samplerkit loader; save loader.state_dict()"]
    for problem in problems:
        typer.echo(f"samplerkit: {file}: {problem}", err=True)
    if problems:
        raise typer.Exit(1)


def _looked_at(place: str, saved: dict[str, Any], loader: Loader | None) -> dict[str, Any]:
    problem = None
    told: dict[str, Any] = {"place": place}
    try:
        read = State.from_dict(saved)
    except SamplerkitError as error:
        return {**told, "verdict": "damaged, or of another version", "problem": str(error)}
    told |= {"order": read.fingerprint, **asdict(read), "seed": list(read.seed)}
    verdict = "whole: the checksum fits"
    if loader is not None:
        try:
            loader.load_state_dict(saved)
            verdict = "whole, and fits the config"
        except SamplerkitError as error:
            verdict, problem = "whole, but does not fit the config", str(error)
    return {**told, "verdict": verdict, "problem": problem}


def _shown(name: str, value: Any) -> str:
    if name != "sections":
        return str(value)
    return "; ".join(map(_section, value, value.values())) or "none"


def _section(name: str, section: dict[str, Any]) -> str:
    said = ", ".join(f"{key} {value}" for key, value in section.items())
    return f"{name}: {said}" if said else name
