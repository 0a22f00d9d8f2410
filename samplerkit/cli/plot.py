"""The command `samplerkit plot`: pictures of one config, or of several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from samplerkit.cli.opening import AsJson, NumRanks, opened
from samplerkit.cli.printing import print_json
from samplerkit.inspect.pictures.picture import draw
from samplerkit.inspect.view import RunView
from samplerkit.storage.urls import shown


def plot(
    configs: Annotated[list[str], typer.Argument(metavar="CONFIG...", help="Configs, at most four.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="A .png file, or an .html page.")],
    world: NumRanks = None,
    epoch: Annotated[int, typer.Option(min=0, help="The epoch that is shown.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Draw what is read when, which files meet, how well that mixes, and how many files a batch needs."""
    names = [Path(shown(path)).stem for path in configs]
    if len(set(names)) < len(names):
        names = [shown(path) for path in configs]
    if len(set(names)) < len(names):
        raise typer.BadParameter("names a config twice", param_hint="CONFIG")
    views = {name: RunView.of(opened(path, world)[1]) for name, path in zip(names, configs, strict=True)}
    try:
        draw(dict(views), output, epoch=epoch)
    except OSError as error:
        raise typer.BadParameter(f"cannot be written ({error.strerror})", param_hint="--output") from error
    if as_json:
        prints = {name: view.fingerprint for name, view in views.items()}
        print_json({"output": str(output), "bytes": output.stat().st_size, "orders": prints})
    else:
        typer.echo(f"{output}: {output.stat().st_size:,} bytes")
