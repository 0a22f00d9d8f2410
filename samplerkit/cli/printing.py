"""How commands print: JSON, lists of facts and tables, in 80 columns, with and without colour."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from samplerkit.storage.threads import Progress as Told

_LEAST_WIDTH = 60
"""Narrower terminals wrap lines themselves: Rich would cut numbers in two, or print nothing at all."""

Facts = Iterable[tuple[str, str]]
"""Names and values, which are printed in two columns; a long value continues in the second."""


@final
@dataclass(frozen=True)
class PrintedTable:
    """A table of numbers.

    Args:
        columns: their names.
        rows: of as many entries.
        left: how many of the last columns hold words, which are set to the left.
        most: rows that are printed; the others are counted below. None for all.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    left: int = 0
    most: int | None = None


def show(value: Any, *parts: str | PrintedTable | Facts, as_json: bool) -> None:
    """Prints what a command has found: as one JSON object, or as lines, tables and facts."""
    if as_json:
        typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
        return
    for part in parts:
        if isinstance(part, str):
            typer.echo(part)
        elif isinstance(part, PrintedTable):
            print_table(part)
        else:
            grid = Table.grid(padding=(0, 2))
            grid.add_column(style="bold", no_wrap=True)
            grid.add_column(overflow="fold")
            for name, fact in part:
                grid.add_row(escape(name), escape(fact))
            _print(grid)


def print_table(given: PrintedTable) -> None:
    """Prints a table of numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for number, name in enumerate(given.columns):
        is_words = number >= len(given.columns) - given.left
        table.add_column(escape(name), justify="left" if is_words else "right", overflow="fold")
    for row in given.rows[: given.most]:
        table.add_row(*(escape(str(entry)) for entry in row))
    _print(table)
    if given.most is not None and len(given.rows) > given.most:
        typer.echo(f"and {len(given.rows) - given.most:,} more; --json lists all")


@contextmanager
def progress() -> Iterator[Told]:
    """A bar on the terminal; nothing where there is none."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def told(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield told


@contextmanager
def writing(option: str) -> Iterator[None]:
    """Says of which option it is that a file cannot be written there."""
    try:
        yield
    except OSError as error:
        raise typer.BadParameter(f"cannot be written ({error.strerror})", param_hint=option) from error


def _print(table: Table) -> None:
    # Made here, it asks anew for the width, for the terminal and for NO_COLOR.
    console = Console(highlight=False)
    console.width = max(console.width, _LEAST_WIDTH)
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    # Rich fills each line up to the width, which nobody wants in a file.
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())


def size_of(count: float) -> str:
    """Writes a number of bytes.

    Example:
        >>> size_of(999), size_of(49 * 10**8)
        ('999 B', '4.6 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def seconds_of(seconds: float) -> str:
    """Writes a time.

    Example:
        >>> seconds_of(0.0005), seconds_of(1.5)
        ('0.5 ms', '1.5 s')
    """
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def counted(count: int, noun: str) -> str:
    """Writes a number and what it counts.

    Example:
        >>> counted(1, "rank"), counted(12300, "sample")
        ('1 rank', '12,300 samples')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
