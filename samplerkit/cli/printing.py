"""Output of the commands: JSON, lists of facts and tables, in 80 columns, with and without colour."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from samplerkit.storage.threads import Progress as ReportProgress

_MIN_WIDTH = 60
"""Narrower terminals wrap lines themselves; Rich would split numbers, or print nothing."""

Facts = Iterable[tuple[str, str]]
"""Names and values, printed in two columns; a long value wraps within the second."""


@dataclass(frozen=True)
class PrintedTable:
    """A table of numbers.

    Args:
        columns: the names of the columns.
        rows: the rows, with an entry for each column.
        texts: the columns that hold text, and are aligned to the left.
        most: the number of rows that are printed; the rest is counted below the table.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    texts: Sequence[str] = ()
    most: int = 20


Part = str | PrintedTable | Facts


@dataclass(frozen=True)
class Result:
    """What a command prints.

    Args:
        value: printed as one JSON object with `--json`.
        parts: printed otherwise, one below the other; None for the JSON object.
        problems: lines that are then printed on standard error.
        is_failure: whether the exit code is 1.
    """

    value: Any
    parts: Sequence[Part] | None = None
    problems: Sequence[str] = ()
    is_failure: bool = False


def show(result: Result, *, as_json: bool) -> None:
    """Prints the result of a command: as one JSON object, or as lines, tables and facts."""
    if as_json or result.parts is None:
        typer.echo(json.dumps(result.value, indent=2, ensure_ascii=False))
        return
    for part in result.parts:
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
    for problem in result.problems:
        typer.echo(problem, err=True)


def print_table(content: PrintedTable) -> None:
    """Prints a table of numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for name in content.columns:
        justify: Literal["left", "right"] = "left" if name in content.texts else "right"
        table.add_column(escape(name), justify=justify, overflow="fold")
    for row in content.rows[: content.most]:
        table.add_row(*(escape(str(entry)) for entry in row))
    _print(table)
    if len(content.rows) > content.most:
        typer.echo(f"and {len(content.rows) - content.most:,} more; --json lists all")


@contextmanager
def progress() -> Iterator[ReportProgress]:
    """Shows a progress bar on standard error, if that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def report(name: str, done: int, total: int) -> None:
            bar.update(task, description=name, completed=done, total=total)

        yield report


@contextmanager
def writing(option: str) -> Iterator[None]:
    """Turns an OSError of a write into an error that names the option."""
    try:
        yield
    except OSError as error:
        raise typer.BadParameter(f"cannot be written ({error.strerror})", param_hint=option) from error


def _print(table: Table) -> None:
    # A new console looks up the width, the terminal and NO_COLOR again.
    console = Console(highlight=False)
    console.width = max(console.width, _MIN_WIDTH)
    with console.capture() as captured:
        console.print(table)
    # Rich pads each line to the full width, which would only bloat a file.
    for line in captured.get().splitlines():
        typer.echo(line.rstrip(), color=console.is_terminal)


def size_of(count: float) -> str:
    """Formats a number of bytes.

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
    """Formats a duration.

    Example:
        >>> seconds_of(0.0005), seconds_of(1.5)
        ('0.5 ms', '1.5 s')
    """
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def counted(count: int, noun: str) -> str:
    """Formats a number with its noun in the singular or plural.

    Example:
        >>> counted(1, "rank"), counted(12300, "sample")
        ('1 rank', '12,300 samples')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
