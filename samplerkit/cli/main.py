"""The command `samplerkit`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from samplerkit import __version__
from samplerkit.cli.demo.command import demo
from samplerkit.cli.demo.errors import LaunchError
from samplerkit.errors import SamplerkitError

app = typer.Typer(
    help="The data order of a training run, as a value.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"samplerkit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """The data order of a training run, as a value."""


app.command()(demo)


def main() -> None:
    """Runs the command line; a mistake of the user's is one line that says how to mend it."""
    try:
        app()
    except LaunchError as error:
        typer.echo(f"{error.report.rstrip()}\n\nsamplerkit: {error}", err=True)
        sys.exit(1)
    except SamplerkitError as error:
        # A note says in which config file a mistake stands.
        line = "; ".join([f"samplerkit: {error}", *getattr(error, "__notes__", [])])
        typer.echo(line, err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
