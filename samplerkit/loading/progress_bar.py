"""A loop with a progress bar on the terminal of the first rank."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib import import_module
from operator import length_hint
from typing import Any

from samplerkit.errors import WorldError
from samplerkit.loading.job.world import detect_world

SECONDS_BETWEEN = 0.25
"""How often the bar is drawn: its figures cost more than to draw it."""


def with_bar(loader: Any, console: Any = None) -> Iterator[Any]:
    """Iterates over a loader, with a progress bar on the terminal of the first rank.

    Args:
        loader: an iterable of batches; with `__len__` the bar has an end, with `figures` it shows some.
        console: rich's, for a terminal other than standard error.

    Example:
        >>> list(with_bar([1, 2]))
        [1, 2]
    """
    # Only a bar needs it, and it takes a tenth of a second to import.
    progress, consoles = import_module("rich.progress"), import_module("rich.console")
    console = consoles.Console(stderr=True) if console is None else console
    if not (console.is_terminal and _is_first()):
        yield from loader
        return
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[figures]}"),
    )
    # No thread draws it: between two batches the loop's own does.
    with progress.Progress(*columns, console=console, auto_refresh=False, transient=False) as bar:
        task = bar.add_task("", total=length_hint(loader) or None, figures="")
        drawn, done = 0.0, 0
        for count, batch in enumerate(loader, 1):
            yield batch
            del batch
            done = getattr(loader, "epoch_step", count)
            if time.monotonic() - drawn > SECONDS_BETWEEN:
                drawn = time.monotonic()
                bar.update(task, completed=done, **_shown(loader))
                bar.refresh()
        bar.update(task, completed=done)  # the loader is at the next epoch by now
        bar.refresh()


def _shown(loader: Any) -> dict[str, str]:
    if not hasattr(loader, "figures"):
        return {}
    stats, figures = loader.stats, loader.figures()
    shown = f"waiting {stats.waiting:.0%}" if hasattr(stats, "waiting") else ""
    if "ids_per_second" in figures:
        shown = f"{figures['ids_per_second']:,.0f} ids/s  {shown}"
    return {"description": f"epoch {loader.epoch}", "figures": shown}


def _is_first() -> bool:
    try:
        return detect_world().shard_id == 0
    except WorldError:
        return True
