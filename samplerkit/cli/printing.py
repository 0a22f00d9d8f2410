"""How commands print: JSON, lists of facts and tables, in 80 columns, with and without colour."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from samplerkit.storage.progress import Progress as Told


def print_json(value: Any) -> None:
    """Prints one JSON object."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def show(value: Any, facts: Iterable[tuple[str, str]], *, as_json: bool) -> None:
    """Prints what a command has found: as one JSON object, or as facts."""
    print_json(value) if as_json else print_facts(facts)


def show_line(value: Any, text: str, *, as_json: bool) -> None:
    """Prints what a command has done: as one JSON object in a line, or as a sentence."""
    typer.echo(json.dumps(value) if as_json else text)


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Prints names and values in two columns; a long value continues in the second."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts:
        grid.add_row(escape(name), escape(value))
    _print(grid)


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 0, most: int | None = None
) -> None:
    """Prints a table of numbers.

    Args:
        columns: their names.
        rows: of as many entries.
        left: how many of the last columns hold words, which are set to the left.
        most: rows that are printed; the others are counted below. None for all.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for number, name in enumerate(columns):
        is_words = number >= len(columns) - left
        table.add_column(escape(name), justify="left" if is_words else "right", overflow="fold")
    for row in rows[:most]:
        table.add_row(*(escape(str(entry)) for entry in row))
    _print(table)
    if most is not None and len(rows) > most:
        typer.echo(f"and {len(rows) - most:,} more; --json lists all")


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


def _print(table: Table) -> None:
    # Made here, it asks anew for the width, for the terminal and for NO_COLOR.
    console = Console(highlight=False)
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
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1000 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


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
