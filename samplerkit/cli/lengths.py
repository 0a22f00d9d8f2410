"""The command `samplerkit lengths`: how long each sample is, computed once, for batches by length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, final

import typer

from samplerkit.cli.opening import AsJson, ConfigPath
from samplerkit.cli.printing import counted, print_json, progress
from samplerkit.config.config import load_config
from samplerkit.config.datasets import placed
from samplerkit.errors import DatasetError
from samplerkit.inspect.doctor.probe import function_named
from samplerkit.loading.compute_lengths import compute_lengths
from samplerkit.order import arguments


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
    """Compute how long each sample is, once; a run that was stopped resumes where it was."""
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


@final
@dataclass(frozen=True)
class FieldLength:
    """Measures a field of a sample: a number as it is, and everything else by its `len`.

    So bytes of a tar member are counted in bytes, and texts in characters.

    Args:
        field: the name of the field, or the place in a tuple; None for the sample itself.

    Example:
        >>> FieldLength("txt")({"txt": b"abc", "cls": 7}), FieldLength("cls")({"txt": b"abc", "cls": 7})
        (3, 7)
    """

    field: str | None = None

    def __call__(self, sample: Any) -> int:
        """Gives the length.

        Raises:
            DatasetError: there is no such field, or it has no length.
        """
        value = sample if self.field is None else self._field(sample)
        if hasattr(value, "__index__") and not getattr(value, "ndim", 0):
            return arguments.integer("field", value)
        if isinstance(value, Mapping) or not hasattr(value, "__len__"):
            raise DatasetError("field", "has no length", value, hint=_named(sample))
        return len(value)

    def _field(self, sample: Any) -> Any:
        name = self.field or ""
        if isinstance(sample, Mapping) and name in sample:
            return sample[name]
        if isinstance(sample, tuple | list) and name.isdecimal() and int(name) < len(sample):
            return sample[int(name)]
        raise DatasetError("field", "is none of the sample", name, hint=_named(sample))


def _named(sample: Any) -> str:
    """Says which fields there are."""
    if isinstance(sample, Mapping):
        return f"there are {', '.join(sorted(map(str, sample)))}"
    return "samples are tuples: say a place, from 0" if isinstance(sample, tuple | list) else "name no field"
