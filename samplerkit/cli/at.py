"""The command `samplerkit at`: what a rank reads in a step."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from samplerkit.cli.opening import AsJson, ConfigPath, NumRanks, StatePath, opened
from samplerkit.cli.printing import counted, print_facts, print_json, print_table
from samplerkit.inspect.time_machine import BatchRead, StepRead
from samplerkit.inspect.time_machine import at as read_at
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
        for id, file, document, first, count in spans[:_MOST_SPANS]
    ]
    typer.echo()
    print_table(("window", "file", "document", "first", "tokens"), rows, left=0)
    if len(spans) > _MOST_SPANS:
        typer.echo(f"and {len(spans) - _MOST_SPANS:,} more; --json lists all")


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
