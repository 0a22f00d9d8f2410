"""How the demo shows itself: a live table on a terminal, lines elsewhere, or JSON."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Self, final

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


class DemoView(ABC):
    """What the command tells the user while the demo runs."""

    @abstractmethod
    def start(self, config: str, place: str, num_samples: int) -> None:
        """Shows the config, where the data and configs are, and how many samples there are to train on."""

    @abstractmethod
    def epoch(self, mode: str) -> None:
        """Shows that one more epoch of a training is done."""

    @abstractmethod
    def row(self, row: Row) -> None:
        """Shows the row of a mode."""

    @abstractmethod
    def end(self, sentences: list[str], rows: Mapping[str, Row], device: str, seconds: float) -> None:
        """Shows what the table means."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


@final
class JsonView(DemoView):
    """One JSON object a line."""

    def start(self, config: str, place: str, num_samples: int) -> None:
        self._write({"event": "start", "config": config, "folder": place, "samples": num_samples})

    def epoch(self, mode: str) -> None:
        """Says nothing: the rows are the lines."""

    def row(self, row: Row) -> None:
        self._write({"event": "row", **row.to_json()})

    def end(self, sentences: list[str], rows: Mapping[str, Row], device: str, seconds: float) -> None:
        event = {"event": "end", "modes": list(rows), "device": device, "seconds": round(seconds, 1)}
        self._write({**event, "sentences": sentences})

    @staticmethod
    def _write(event: Mapping[str, object]) -> None:
        typer.echo(json.dumps(event))


@final
class PlainView(DemoView):
    """Lines of at most 80 columns, for a file, a pipe or a log."""

    def __init__(self) -> None:
        self._console = Console(width=80, highlight=False, soft_wrap=False, markup=False)

    def start(self, config: str, place: str, num_samples: int) -> None:
        for line in (*_opening(place, num_samples), "", config.rstrip(), ""):
            self._console.print(line)
        for words in zip(*_HEADINGS, strict=True):
            self._console.print(_PLAIN.format(*words))

    def epoch(self, mode: str) -> None:
        """Says nothing: the rows are the progress."""

    def row(self, row: Row) -> None:
        self._console.print(_PLAIN.format(*_cells(row)))

    def end(self, sentences: list[str], rows: Mapping[str, Row], device: str, seconds: float) -> None:
        self._console.print()
        for sentence in _closing(sentences, rows, device, seconds):
            self._console.print(sentence)


@final
class LiveView(DemoView):
    """A table that grows, with a bar below it.

    Args:
        console: the terminal.
        num_epochs: epochs of all trainings together; the bar is full then.
    """

    def __init__(self, console: Console, num_epochs: int) -> None:
        self._console = console
        self._table = Table(box=SIMPLE_HEAD, collapse_padding=True)
        for number, lines in enumerate(_HEADINGS):
            self._table.add_column("\n".join(lines), justify="right" if number else "left")
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console)
        self._bar = self._progress.add_task("starting torchrun, 2 processes", total=num_epochs)
        self._live = Live(Group(self._table, self._progress), console=console, refresh_per_second=8)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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

    def end(self, sentences: list[str], rows: Mapping[str, Row], device: str, seconds: float) -> None:
        self._live.update(self._table)
        self._live.stop()
        for sentence in _closing(sentences, rows, device, seconds):
            self._console.print(Text(sentence))


def _opening(place: str, num_samples: int) -> list[str]:
    return [
        f"Handwritten digits: {num_samples:,} training samples, in files sorted by digit, in",
        place,
        "Two processes train a network by this config, with each `shuffle` in turn:",
    ]


def _cells(row: Row) -> list[str]:
    counts = (row.seen, row.repeated, row.missing, *row.files_opened)
    return [row.mode, f"{row.accuracy:.1f}%", *(str(count) for count in counts)]


def _closing(sentences: list[str], rows: Mapping[str, Row], device: str, seconds: float) -> list[str]:
    seeds = len(next(iter(rows.values())).accuracies)
    trainings = f"the median of {seeds} seeds" if seeds > 1 else "one seed"
    note = f"(Accuracy: {trainings}. Counts: of an epoch. Device: {device}. {seconds:.0f} s.)"
    return [*sentences, note]
