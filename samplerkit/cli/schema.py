"""The command `samplerkit schema`: the JSON Schema of configs."""

from __future__ import annotations

from typing import Annotated

import typer

from samplerkit.cli.printing import print_json
from samplerkit.config.schema import json_schema


def schema(
    as_json: Annotated[  # noqa: ARG001  # every command has it
        bool, typer.Option("--json", help="As it always is: JSON.")
    ] = False,
) -> None:
    """Print the JSON Schema of configs, for editors and for checks in other languages."""
    print_json(json_schema())
