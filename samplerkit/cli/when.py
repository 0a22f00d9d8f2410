"""The commands `samplerkit at` and `when`: what a rank reads in a step, and when a sample is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from samplerkit.cli.opening import AsJson, ConfigPath, NumRanks, StatePath, opened, parsed_epochs
from samplerkit.cli.printing import counted, print_facts, print_json, print_table
from samplerkit.inspect.documents import when_document
from samplerkit.inspect.time_machine import BatchRead, StepRead
from samplerkit.inspect.time_machine import at as read_at
from samplerkit.inspect.time_machine import when as read_when
from samplerkit.inspect.view import RunView
from samplerkit.loading.loader import Loader
from samplerkit.order.dataset_protocol import file_number
from samplerkit.order.typing import Ids

_MOST_FILES = 12
_MOST_IDS = 64
_MOST_SPANS = 24


def at(
    config: ConfigPath,
    epoch: Annotated[int, typer.Option(min=0, help="The epoch, from 0.")],
    step: Annotated[int, typer.Option(min=0, help="The step, from 0.")],
    rank: Annotated[int, typer.Option(min=0, help="The rank, from 0.")] = 0,
    world: NumRanks = None,
    state: StatePath = None,
    as_json: AsJson = False,
) -> None:
    """Tell what a rank reads in a step, without a log of the run."""
    read = read_at(opened(config, world, state)[1], epoch, step, rank)
    if as_json:
        print_json(read.to_dict())
        return
    print_facts(_facts(read))
    if read.spans is not None and read.batch is None:
        _print_spans(read)
    elif read.files is not None:
        _print_files(read.files, read.names)


def _facts(read: StepRead) -> list[tuple[str, str]]:
    pads = int(read.pads.sum())
    among = f", {counted(pads, 'pad')} among them" if pads else ""
    place = (
        f"epoch {read.epoch}, step {read.step:,} of {read.num_steps:,}, rank {read.rank} of {read.num_ranks}"
    )
    facts = [("read", place), ("order", read.fingerprint)]
    if read.batch is not None:
        return [*facts, *_of_batch(read.batch, among), ("ids", _listed(read.ids))]
    positions = read.positions
    between = f"{positions.min():,} to {positions.max():,}" if positions.size > 1 else f"{positions[0]:,}"
    facts += [("positions", between), ("samples", counted(len(read.ids), "sample") + among)]
    if read.tokens is not None:
        facts.append(("tokens", f"{read.tokens:,}{_of_documents(read)}"))
    facts.append(("ids", _listed(read.ids)))
    return [*facts, ("pads", _listed(read.ids[read.pads]))] if pads else facts


def _of_documents(read: StepRead) -> str:
    found = {(file, document) for of in read.spans or () for file, document, _, _ in of}
    return "" if (not found or (0, None) in found) else f" of {counted(len(found), 'document')}"


def _print_spans(read: StepRead) -> None:
    """Says of which documents the windows are made."""
    spans = [(id, *span) for id, of in zip(read.ids.tolist(), read.spans or (), strict=True) for span in of]
    rows: list[tuple[object, ...]] = [
        (id, file, "" if document is None else document, first, count)
        for id, file, document, first, count in spans
    ]
    typer.echo()
    print_table(("window", "file", "document", "first", "tokens"), rows, most=_MOST_SPANS)


def _of_batch(batch: BatchRead, among: str) -> list[tuple[str, str]]:
    """Says of a batch of samples of different lengths which one it is, and what it costs."""
    first, *others = batch.numbers
    which = (
        f"{first:,}" if not others else f"a part of {first:,} to {others[-1]:,}, which tail split cuts again"
    )
    count, *longest = batch.shape
    padded = f", padded to {' x '.join(map(str, longest))}" if longest else ""
    return [
        ("batch", which),
        ("samples", f"{counted(count, 'sample')}{padded}{among}"),
        ("tokens", f"{batch.tokens:,} of this rank, {batch.step_tokens:,} of all ranks in this step"),
    ]


def _listed(ids: Ids) -> str:
    more = f" and {len(ids) - _MOST_IDS} more; --json lists all" if len(ids) > _MOST_IDS else ""
    return " ".join(map(str, ids[:_MOST_IDS].tolist())) + more


def _print_files(read: Ids, names: tuple[str, ...] | None) -> None:
    files, counts = np.unique(read, return_counts=True)
    most = np.argsort(-counts, kind="stable")
    rows = [
        (files[index], counts[index], names[files[index]] if names else "") for index in most[:_MOST_FILES]
    ]
    if files.size > _MOST_FILES:
        rest = most[_MOST_FILES:]
        rows.append((f"and {rest.size} more", counts[rest].sum(), ""))
    columns = ("file", "samples", *(("name",) if names else ()))
    typer.echo()
    print_table(columns, [row[: len(columns)] for row in rows], left=len(columns) - 2)


_MOST_TIMES = 20


def when(
    config: ConfigPath,
    sample: Annotated[int | None, typer.Option(min=0, help="The id of the sample.")] = None,
    document: Annotated[
        int | None, typer.Option(min=0, help="In place of it a document of tokens: its number in its index.")
    ] = None,
    file: Annotated[str | None, typer.Option(help="Of the document: its file, by number or by name.")] = None,
    epochs: Annotated[str, typer.Option(help="One epoch, or a range such as 0:10.")] = "0:1",
    world: NumRanks = None,
    state: StatePath = None,
    as_json: AsJson = False,
) -> None:
    """Tell when a sample, or a document of tokens, is read, in which step of which rank."""
    if (sample is None) == (document is None):
        raise typer.BadParameter("say one of the two", param_hint="--sample or --document")
    wanted = parsed_epochs(epochs)
    loader = opened(config, world, state)[1]
    view = RunView.of(loader)
    if document is not None:
        told = _of_document(loader, document, file or "0", wanted)
    elif sample is None or file is not None:
        raise typer.BadParameter("goes with --document", param_hint="--file")
    else:
        told = _of_sample(loader, sample, wanted)
    if as_json:
        shared = {"num_ranks": view.num_ranks, "fingerprint": view.fingerprint}
        print_json({**told.asked, **shared, "epochs": told.epochs})
        return
    print_facts([*told.facts, ("order", view.fingerprint), ("ranks", str(view.num_ranks))])
    typer.echo()
    print_table(told.columns, told.rows, left=1)


class Told(NamedTuple):
    """When a sample or a document is read: as JSON, and as facts and a table."""

    asked: dict[str, Any]
    epochs: list[Any]
    facts: list[tuple[str, str]]
    columns: tuple[str, ...]
    rows: list[tuple[object, ...]]


def _of_sample(loader: Loader, sample: int, epochs: range) -> Told:
    found, view = read_when(loader, sample, epochs), RunView.of(loader)
    facts = [("sample", f"{sample:,} of {view.layout.num_samples:,}")]
    if view.layout.has_files:
        number = int(view.layout.file_of([sample])[0])  # type: ignore[arg-type]  # a list is an array to numpy
        names = view.layout.names
        facts.append(("file", f"{number}, {names[number]}" if names else str(number)))
    rows: list[tuple[object, ...]] = []
    for one in found:
        note = "not read: the tail drops it, or it lies before the start" if one.unread else "not drawn"
        nothing = ("-", "-", "-", one.unread[0] if one.unread else "", note)
        times = [
            (time.rank, time.step, time.place, time.position, "pad" if time.is_pad else "")
            for time in one.occurrences
        ]
        rows += _first_of(one.epoch, times, nothing)
    position = "position" if view.recipe is None else "batch"
    columns = ("epoch", "rank", "step", "place", position, "note")
    return Told({"sample": sample}, [asdict(one) for one in found], facts, columns, rows)


def _of_document(loader: Loader, document: int, name: str, epochs: range) -> Told:
    layout = RunView.of(loader).layout
    names = layout.names or ()
    file = int(name) if name.isdecimal() else file_number(layout, name)
    found = when_document(loader, document, epochs, file=file)
    facts = [("document", f"{document:,} of file {file}{f', {names[file]}' if names else ''}")]
    rows: list[tuple[object, ...]] = []
    for epoch, parts in zip(epochs, found, strict=True):
        times: list[tuple[object, ...]] = []
        for part in parts:
            read, note = part.read, "pad" if part.read.is_pad else ""
            times.append((read.rank, read.step, read.place, part.window, part.first, part.tokens, note))
        nothing = ("-", "-", "-", "", "", "", "not read: empty, left out, or dropped by the tail")
        rows += _first_of(epoch, times, nothing)
    columns = ("epoch", "rank", "step", "place", "window", "first", "tokens", "note")
    of_epochs = [[asdict(part) for part in parts] for parts in found]
    return Told({"document": document, "file": file}, of_epochs, facts, columns, rows)


def _first_of(
    epoch: int, times: Sequence[tuple[object, ...]], nothing: tuple[object, ...]
) -> list[tuple[object, ...]]:
    """Gives the first rows of an epoch, and one that says how many more there are, or that there is none."""
    rows = [*times[:_MOST_TIMES]]
    if len(times) > _MOST_TIMES:
        more = f"and {len(times) - _MOST_TIMES} more times; --json lists all"
        rows.append((*[""] * (len(nothing) - 1), more))
    return [(epoch, *row) for row in rows or [nothing]]
