"""The kinds of datasets that a config can name."""

from __future__ import annotations

from collections.abc import Iterable

from samplerkit.config.kinds import Kinds
from samplerkit.errors import SamplerkitError
from samplerkit.order.layout import Layout

DATASETS = Kinds("dataset", example="{kind: size, size: 1000}")
"""All kinds; another one is another function here."""


@DATASETS.kind("size")
def of_size(size: int) -> Layout:
    """A number of samples, in no files."""
    try:
        return Layout(size)
    except SamplerkitError as error:
        raise type(error)("size", error.problem, size, mend=error.mend) from None


@DATASETS.kind("layout")
def of_files(sizes: Iterable[int], names: Iterable[str] | None = None) -> Layout:
    """Samples in files: how many in each, and what the files are called."""
    return Layout(sizes, names)
