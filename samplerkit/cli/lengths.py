"""The command `samplerkit lengths`: how long each sample is, computed once, for batches by length."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from samplerkit.cli.opening import AsJson, ConfigPath
from samplerkit.cli.printing import counted, print_json, progress
from samplerkit.config.config import load_config
from samplerkit.config.datasets import placed
from samplerkit.inspect.doctor.second_process import function_named
from samplerkit.loading.sample_lengths import FieldLength, compute_lengths


def lengths(
    config: ConfigPath,
    out: Annotated[Path, typer.Option(help="The .npy file that is written.")],
    field: Annotated[
        str | None,
        typer.Option(help="The field of a sample: a number counts as it is, all else by its size."),
    ] = None,
    function: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="A function of a sample that gives its length."),
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Worker processes; 0 for none.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Compute how long each sample is, once; who was stopped goes on where it was."""
    if field is not None and function is not None:
        raise typer.BadParameter("stands beside --field; say one of the two", param_hint="--function")
    dataset = placed(None, load_config(config, check_quality=False).dataset)
    measure: Any = FieldLength(field) if function is None else function_named(function)
    with progress() as told:
        found = compute_lengths(dataset, measure, out, num_workers=workers, progress=told)
    shortest, longest, mean = (
        (int(found.min()), int(found.max()), float(found.mean())) if found.size else (0, 0, 0.0)
    )
    if as_json:
        figures = {"samples": len(found), "shortest": shortest, "longest": longest, "mean": mean}
        print_json({"out": str(out), **figures})
    else:
        told_of = f"{shortest:,} to {longest:,} long, {mean:,.1f} on average"
        typer.echo(f"{out}: {counted(len(found), 'sample')}, {told_of}")
