"""How the demo shows itself: lines in a pipe or a log, a live table on a terminal, or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Self, final

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from samplerkit.cli.demo.rows import Row

_HEADINGS = (
    ("", "shuffle"),
    ("test", "accuracy"),
    ("samples", "seen"),
    ("", "repeated"),
    ("", "missing"),
    ("files opened", "by rank 0"),
    ("files opened", "by rank 1"),
)
_PLAIN = "{:<8}{:>9}{:>9}{:>10}{:>9}{:>14}{:>14}"


class DemoView:
    """What the command tells the user while the demo runs; here lines of at most 80 columns."""

    def __init__(self) -> None:
        self._console = Console(width=80, highlight=False, soft_wrap=False, markup=False)

    def start(self, config: str, place: str, num_samples: int) -> None:
        """Shows the config, where the data and configs are, and how many samples there are to train on."""
        for line in (*_opening(place, num_samples), "", config.rstrip(), ""):
            self._console.print(line)
        for words in zip(*_HEADINGS, strict=True):
            self._console.print(_PLAIN.format(*words))

    def epoch(self, mode: str) -> None:
        """Shows that one more epoch of a training is done; here the rows are the progress."""

    def row(self, row: Row) -> None:
        """Shows the row of a mode."""
        self._console.print(_PLAIN.format(*_cells(row)))

    def end(self, sentences: list[str], rows: Sequence[Row], device: str, seconds: float) -> None:
        """Shows what the table means."""
        self._console.print()
        self._say(sentences, rows, device, seconds)

    def _say(self, sentences: list[str], rows: Sequence[Row], device: str, seconds: float) -> None:
        for sentence in (*sentences, _note(rows, device, seconds)):
            self._console.print(Text(sentence))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...


@final
class JsonView(DemoView):
    """One JSON object a line."""

    def start(self, config: str, place: str, num_samples: int) -> None:
        _write(event="start", config=config, folder=place, samples=num_samples)

    def row(self, row: Row) -> None:
        _write(event="row", **asdict(row))

    def end(self, sentences: list[str], rows: Sequence[Row], device: str, seconds: float) -> None:
        modes = [row.mode for row in rows]
        _write(event="end", modes=modes, device=device, seconds=round(seconds, 1), sentences=sentences)


@final
class LiveView(DemoView):
    """A table that grows, with a bar below it, which is full after `num_epochs` of all trainings together."""

    def __init__(self, console: Console, num_epochs: int) -> None:
        self._console = console
        self._table = Table(box=SIMPLE_HEAD, collapse_padding=True)
        for number, lines in enumerate(_HEADINGS):
            self._table.add_column("\n".join(lines), justify="right" if number else "left")
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console)
        self._bar = self._progress.add_task("starting torchrun, 2 processes", total=num_epochs)
        self._live = Live(Group(self._table, self._progress), console=console, refresh_per_second=8)

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def start(self, config: str, place: str, num_samples: int) -> None:
        for line in _opening(place, num_samples):
            self._console.print(line, highlight=False, markup=False)
        self._console.print(Text(f"\n{config.rstrip()}", style="cyan"))
        self._live.start()

    def epoch(self, mode: str) -> None:
        self._progress.update(self._bar, advance=1, description=f"training: {mode}")

    def row(self, row: Row) -> None:
        self._table.add_row(*_cells(row))

    def end(self, sentences: list[str], rows: Sequence[Row], device: str, seconds: float) -> None:
        self._live.update(self._table)
        self._live.stop()
        self._say(sentences, rows, device, seconds)


def _write(**event: Any) -> None:
    typer.echo(json.dumps(event))


def _opening(place: str, num_samples: int) -> list[str]:
    return [
        f"Handwritten digits: {num_samples:,} training samples, in files sorted by digit, in",
        place,
        "Two processes train a network by this config, with each `shuffle` in turn:",
    ]


def _cells(row: Row) -> list[str]:
    counts = (row.seen, row.repeated, row.missing, *row.files_opened)
    return [row.mode, f"{row.accuracy:.1f}%", *map(str, counts)]


def _note(rows: Sequence[Row], device: str, seconds: float) -> str:
    seeds = len(rows[0].accuracies)
    trainings = f"the median of {seeds} seeds" if seeds > 1 else "one seed"
    return f"(Accuracy: {trainings}. Counts: of an epoch. Device: {device}. {seconds:.0f} s.)"
