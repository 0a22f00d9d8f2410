"""The commands `samplerkit at` and `when`: what a rank reads in a step, and when a sample is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import typer

from samplerkit.cli.opening import AsJson, ConfigPath, FromZero, NumRanks, StatePath, opened, parsed_epochs
from samplerkit.cli.printing import Facts, PrintedTable, counted, show
from samplerkit.inspect.documents import when_document
from samplerkit.inspect.time_machine import BatchRead, StepRead
from samplerkit.inspect.time_machine import at as read_at
from samplerkit.inspect.time_machine import when as read_when
from samplerkit.inspect.view import RunView
from samplerkit.order.dataset_protocol import file_number
from samplerkit.order.typing import Ids

_MOST_FILES = 12
_MOST_IDS = 64
_MOST_SPANS = 24


def at(
    config: ConfigPath,
    epoch: FromZero,
    step: FromZero,
    rank: FromZero = 0,
    world: NumRanks = None,
    state: StatePath = None,
    as_json: AsJson = False,
) -> None:
    """Tell what a rank reads in a step, without a log of the run.

    Options:
        epoch: the epoch, from 0.
        step: the step, from 0.
        rank: the rank, from 0.
    """
    read = read_at(opened(config, world, state)[1], epoch, step, rank)
    parts: list[str | PrintedTable] = []
    if read.spans is not None and read.batch is None:
        parts = ["", _spans(read)]
    elif read.files is not None:
        parts = ["", _files(read.files, read.names)]
    show(read.to_dict(), _facts(read), *parts, as_json=as_json)


def _facts(read: StepRead) -> Facts:
    pads = int(read.pads.sum())
    among = f", {counted(pads, 'pad')} among them" if pads else ""
    place = f"epoch {read.epoch}, step {read.step:,} of {read.num_steps:,}"
    yield "read", f"{place}, rank {read.rank} of {read.num_ranks}"
    yield "order", read.fingerprint
    if read.batch is not None:
        yield from _of_batch(read.batch, among)
    else:
        positions = read.positions
        last = f" to {positions.max():,}" if positions.size > 1 else ""
        yield "positions", f"{positions.min():,}{last}"
        yield "samples", counted(len(read.ids), "sample") + among
        if read.tokens is not None:
            yield "tokens", f"{read.tokens:,}{_of_documents(read)}"
    yield "ids", _listed(read.ids)
    if read.batch is None and pads:
        yield "pads", _listed(read.ids[read.pads])


def _of_documents(read: StepRead) -> str:
    found = {(file, document) for of in read.spans or () for file, document, _, _ in of}
    return "" if (not found or (0, None) in found) else f" of {counted(len(found), 'document')}"


def _spans(read: StepRead) -> PrintedTable:
    """Says of which documents the windows are made."""
    rows = [
        (id, file, "" if document is None else document, first, count)
        for id, of in zip(read.ids.tolist(), read.spans or (), strict=True)
        for file, document, first, count in of
    ]
    return PrintedTable(("window", "file", "document", "first", "tokens"), rows, most=_MOST_SPANS)


def _of_batch(batch: BatchRead, among: str) -> Facts:
    """Says of a batch of samples of different lengths which one it is, and what it costs."""
    first, *others = batch.numbers
    yield (
        "batch",
        f"a part of {first:,} to {others[-1]:,}, which tail split cuts again" if others else f"{first:,}",
    )
    count, *longest = batch.shape
    padded = f", padded to {' x '.join(map(str, longest))}" if longest else ""
    yield "samples", f"{counted(count, 'sample')}{padded}{among}"
    yield "tokens", f"{batch.tokens:,} of this rank, {batch.step_tokens:,} of all ranks in this step"


def _listed(ids: Ids) -> str:
    more = f" and {len(ids) - _MOST_IDS} more; --json lists all" if len(ids) > _MOST_IDS else ""
    return " ".join(map(str, ids[:_MOST_IDS].tolist())) + more


def _files(read: Ids, names: tuple[str, ...] | None) -> PrintedTable:
    files, counts = np.unique(read, return_counts=True)
    most = np.argsort(-counts, kind="stable")
    rows = [
        (files[index], counts[index], names[files[index]] if names else "") for index in most[:_MOST_FILES]
    ]
    if files.size > _MOST_FILES:
        rest = most[_MOST_FILES:]
        rows.append((f"and {rest.size} more", counts[rest].sum(), ""))
    columns = ("file", "samples", *(("name",) if names else ()))
    return PrintedTable(columns, [row[: len(columns)] for row in rows], left=len(columns) - 2)


_MOST_TIMES = 20


def when(
    config: ConfigPath,
    sample: FromZero | None = None,
    document: FromZero | None = None,
    file: str | None = None,
    epochs: str = "0:1",
    world: NumRanks = None,
    state: StatePath = None,
    as_json: AsJson = False,
) -> None:
    """Tell when a sample, or a document of tokens, is read, in which step of which rank.

    Options:
        sample: the id of the sample.
        document: in place of it a document of tokens: its number in its index.
        file: of the document: its file, by number or by name.
        epochs: one epoch, or a range such as 0:10.
    """
    if (sample is None) == (document is None):
        raise typer.BadParameter("say one of the two", param_hint="--sample or --document")
    wanted = parsed_epochs(epochs)
    view = RunView.of(opened(config, world, state)[1])
    if document is not None:
        asked, found, facts, rows = _of_document(view, document, file or "0", wanted)
    elif sample is None or file is not None:
        raise typer.BadParameter("goes with --document", param_hint="--file")
    else:
        asked, found, facts, rows = _of_sample(view, sample, wanted)
    told = {**asked, "num_ranks": view.num_ranks, "fingerprint": view.fingerprint, "epochs": found}
    facts += [("order", view.fingerprint), ("ranks", str(view.num_ranks))]
    show(told, facts, "", rows, as_json=as_json)


Told = tuple[dict[str, Any], list[Any], list[tuple[str, str]], PrintedTable]
"""When a sample or a document is read: what was asked and the epochs, for JSON; and facts and a table."""


def _of_sample(view: RunView, sample: int, epochs: range) -> Told:
    found = read_when(view, sample, epochs)
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
            (time.rank, time.step, time.place, time.position, "pad" * time.is_pad) for time in one.occurrences
        ]
        rows += _first_of(one.epoch, times, nothing)
    columns = ("epoch", "rank", "step", "place", "position" if view.recipe is None else "batch", "note")
    return {"sample": sample}, [asdict(one) for one in found], facts, PrintedTable(columns, rows, left=1)


def _of_document(view: RunView, document: int, name: str, epochs: range) -> Told:
    names = view.layout.names or ()
    file = int(name) if name.isdecimal() else file_number(view.layout, name)
    found = when_document(view, document, epochs, file=file)
    facts = [("document", f"{document:,} of file {file}{f', {names[file]}' if names else ''}")]
    nothing = ("-", "-", "-", "", "", "", "not read: empty, left out, or dropped by the tail")
    rows: list[tuple[object, ...]] = []
    for epoch, parts in zip(epochs, found, strict=True):
        times = [
            (read.rank, read.step, read.place, part.window, part.first, part.tokens, "pad" * read.is_pad)
            for part in parts
            for read in [part.read]
        ]
        rows += _first_of(epoch, times, nothing)
    columns = ("epoch", "rank", "step", "place", "window", "first", "tokens", "note")
    of_epochs = [[asdict(part) for part in parts] for parts in found]
    return {"document": document, "file": file}, of_epochs, facts, PrintedTable(columns, rows, left=1)


def _first_of(
    epoch: int, times: Sequence[tuple[object, ...]], nothing: tuple[object, ...]
) -> list[tuple[object, ...]]:
    """Gives the first rows of an epoch, and one that says how many more there are, or that there is none."""
    rows = [*times[:_MOST_TIMES]]
    if len(times) > _MOST_TIMES:
        more = f"and {len(times) - _MOST_TIMES} more times; --json lists all"
        rows.append((*[""] * (len(nothing) - 1), more))
    return [(epoch, *row) for row in rows or [nothing]]
