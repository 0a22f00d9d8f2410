"""The command `samplerkit plot`: pictures of one config or several, side by side."""

from __future__ import annotations

import os
import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from samplerkit.cli.opening import FromZero, NumRanks, load_run
from samplerkit.cli.printing import Result, writing
from samplerkit.inspect.pictures.explorer import Settings, page_of
from samplerkit.inspect.pictures.picture import draw
from samplerkit.inspect.view import RunView
from samplerkit.storage.urls import shown


def plot(
    configs: Annotated[list[str], typer.Argument(metavar="CONFIG")],
    output: Annotated[Path | None, typer.Option("--output", "-o")] = None,
    world: NumRanks = None,
    epoch: FromZero = 0,
    open_page: Annotated[bool, typer.Option("--open")] = False,
) -> Result:
    """Draw what is read when, which files are mixed, how well, and how many files a batch needs.

    Options:
        configs: configs, at most four.
        output: a .png file, or an .html page.
        epoch: the epoch that is drawn.
        open_page: open a page in which mode, ranks, files and blocks can be changed.
    """
    if open_page and len(configs) > 1:
        raise typer.BadParameter("has several configs, but --open shows one", param_hint="CONFIG")
    if output is None and not open_page:
        raise typer.BadParameter("is missing: give a .png or .html file, or --open", param_hint="--output")
    if open_page and output is not None and output.suffix.lower() != ".html":
        raise typer.BadParameter("must end in .html, for a page", param_hint="--output")
    names = [Path(shown(path)).stem for path in configs]
    if len(set(names)) < len(names):
        names = [shown(path) for path in configs]
    # The bytes of a name may not be valid text, which no font could show.
    names = [name.encode(errors="backslashreplace").decode() for name in names]
    views = {name: RunView.of(load_run(path, world)) for name, path in zip(names, configs, strict=True)}
    if output is None:
        with tempfile.NamedTemporaryFile(prefix="samplerkit-", suffix=".html", delete=False) as file:
            output = Path(file.name)
    with writing("--output"):
        if open_page:
            (view,) = views.values()
            output.write_text(page_of(Settings.of(view, epoch)), encoding="utf-8")
        else:
            draw(views, output, epoch=epoch)
    size, orders = output.stat().st_size, {name: view.fingerprint for name, view in views.items()}
    result = {"output": str(output), "bytes": size, "orders": orders}
    if open_page and _has_display():
        webbrowser.open(output.resolve().as_uri())
    return Result(result, [f"{output}: {size:,} bytes"])


def _has_display() -> bool:
    """Returns whether a graphical browser can open; a text browser would take the terminal and not draw."""
    variables = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform in {"darwin", "win32"} or any(os.environ.get(name) for name in variables)
