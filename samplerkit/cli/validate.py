"""The commands `samplerkit validate` and `schema`: whether a config can be used, and what all may say."""

from __future__ import annotations

from typing import Annotated

import typer

from samplerkit.cli.opening import AsJson, ConfigPath
from samplerkit.cli.printing import print_json
from samplerkit.config.config import load_config
from samplerkit.config.schema import json_schema
from samplerkit.errors import SamplerkitError
from samplerkit.inspect.view import is_counted
from samplerkit.storage.urls import shown


def validate(config: ConfigPath, as_json: AsJson = False) -> None:
    """Tell whether a config is right: its keys, its values, its nesting, and that its order can be made.

    Remote files are not fetched to count their samples: then nothing is said of the order.
    """
    problem: SamplerkitError | None = None
    try:
        read = load_config(config)
        if read.dataset is not None and is_counted(read.dataset):
            read.check_order()
    except SamplerkitError as error:
        problem = error
    if as_json:
        print_json({"config": shown(config), "is_valid": problem is None, "problem": _told(problem)})
    elif problem is None:
        typer.echo(f"{shown(config)}: valid")
    else:
        typer.echo(f"samplerkit: {shown(config)}: {problem}", err=True)
    if problem is not None:
        raise typer.Exit(1)


def _told(problem: SamplerkitError | None) -> dict[str, str] | None:
    if problem is None:
        return None
    return {"place": problem.place, "message": str(problem), "hint": problem.hint}


def schema(
    as_json: Annotated[  # noqa: ARG001  # every command has it
        bool, typer.Option("--json", help="As it always is: JSON.")
    ] = False,
) -> None:
    """Print the JSON Schema of configs, for editors and for checks in other languages."""
    print_json(json_schema())
