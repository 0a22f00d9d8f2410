"""The command `samplerkit when`: when, where and by whom a sample, or a document of tokens, is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from samplerkit.cli.opening import AsJson, ConfigPath, NumRanks, StatePath, opened, parsed_epochs
from samplerkit.cli.printing import print_facts, print_json, print_table
from samplerkit.inspect.documents import PartRead, when_document
from samplerkit.inspect.time_machine import EpochOfSample
from samplerkit.inspect.time_machine import when as read_when
from samplerkit.inspect.view import RunView
from samplerkit.loading.loader import Loader
from samplerkit.order.dataset_protocol import file_number

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
    if document is not None:
        _tell_document(loader, document, file or "0", wanted, as_json=as_json)
        return
    if sample is None or file is not None:
        raise typer.BadParameter("goes with --document", param_hint="--file")
    found, view = read_when(loader, sample, wanted), RunView.of(loader)
    if as_json:
        print_json(
            {
                "sample": sample,
                "num_ranks": view.num_ranks,
                "fingerprint": view.fingerprint,
                "epochs": [asdict(epoch) for epoch in found],
            }
        )
        return
    facts = [("sample", f"{sample:,} of {view.layout.num_samples:,}")]
    if view.layout.has_files:
        number = int(view.layout.file_of([sample])[0])  # type: ignore[arg-type]  # a list is an array to numpy
        names = view.layout.names
        facts.append(("file", f"{number}, {names[number]}" if names else str(number)))
    print_facts([*facts, ("order", view.fingerprint), ("ranks", str(view.num_ranks))])
    typer.echo()
    position = "position" if view.recipe is None else "batch"
    columns = ("epoch", "rank", "step", "place", position, "note")
    print_table(columns, [row for epoch in found for row in _rows(epoch)], left=1)


def _tell_document(loader: Loader, document: int, name: str, epochs: range, *, as_json: bool) -> None:
    view = RunView.of(loader)
    names = view.layout.names or ()
    file = int(name) if name.isdecimal() else file_number(view.layout, name)
    found = when_document(loader, document, epochs, file=file)
    if as_json:
        told = {"document": document, "file": file, "num_ranks": view.num_ranks}
        parts = [[asdict(part) for part in parts] for parts in found]
        print_json({**told, "fingerprint": view.fingerprint, "epochs": parts})
        return
    facts = [("document", f"{document:,} of file {file}{f', {names[file]}' if names else ''}")]
    print_facts([*facts, ("order", view.fingerprint), ("ranks", str(view.num_ranks))])
    typer.echo()
    columns = ("epoch", "rank", "step", "place", "window", "first", "tokens", "note")
    rows = [row for epoch, parts in zip(epochs, found, strict=True) for row in _parts(epoch, parts)]
    print_table(columns, rows, left=1)


def _parts(epoch: int, parts: Sequence[PartRead]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for part in parts[:_MOST_TIMES]:
        read, note = part.read, "pad" if part.read.is_pad else ""
        rows.append((epoch, read.rank, read.step, read.place, part.window, part.first, part.tokens, note))
    if len(parts) > _MOST_TIMES:
        more = f"and {len(parts) - _MOST_TIMES} more times; --json lists all"
        rows.append((epoch, "", "", "", "", "", "", more))
    return rows or [(epoch, "-", "-", "-", "", "", "", "not read: empty, left out, or dropped by the tail")]


def _rows(found: EpochOfSample) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = [
        (time.epoch, time.rank, time.step, time.place, time.position, "pad" if time.is_pad else "")
        for time in found.occurrences[:_MOST_TIMES]
    ]
    if len(found.occurrences) > _MOST_TIMES:
        more = len(found.occurrences) - _MOST_TIMES
        rows.append((found.epoch, "", "", "", "", f"and {more} more times; --json lists all"))
    if not rows:
        dropped = found.unread[0] if found.unread else ""
        note = "not read: the tail drops it, or it lies before the start" if found.unread else "not drawn"
        rows.append((found.epoch, "-", "-", "-", dropped, note))
    return rows
