"""The command `samplerkit when`: when, where and by whom a sample is read."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from samplerkit.cli.opening import AsJson, ConfigPath, NumRanks, StatePath, opened, parsed_epochs
from samplerkit.cli.printing import print_facts, print_json, print_table
from samplerkit.inspect.time_machine import EpochOfSample
from samplerkit.inspect.time_machine import when as read_when
from samplerkit.inspect.view import RunView

_MOST_TIMES = 20


def when(
    config: ConfigPath,
    sample: Annotated[int, typer.Option(min=0, help="The id of the sample.")],
    epochs: Annotated[str, typer.Option(help="One epoch, or a range such as 0:10.")] = "0:1",
    world: NumRanks = None,
    state: StatePath = None,
    as_json: AsJson = False,
) -> None:
    """Tell when a sample is read, in which step of which rank."""
    wanted = parsed_epochs(epochs)
    loader = opened(config, world, state)[1]
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
        file = int(view.layout.file_of([sample])[0])  # type: ignore[arg-type]  # a list is an array to numpy
        facts.append(("file", f"{file}, {view.layout.names[file]}" if view.layout.names else str(file)))
    print_facts([*facts, ("order", view.fingerprint), ("ranks", str(view.num_ranks))])
    typer.echo()
    position = "position" if view.recipe is None else "batch"
    columns = ("epoch", "rank", "step", "place", position, "note")
    print_table(columns, [row for epoch in found for row in _rows(epoch)], left=1)


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
