"""Where a run begins: at the first position, unless a sampler continues the run of another package."""

from __future__ import annotations

from typing import Any

from samplerkit.batches.recipe import BatchRecipe
from samplerkit.errors import CompositionError, NotSupportedError
from samplerkit.order.arguments import LARGEST
from samplerkit.order.layout import Layout
from samplerkit.samplers.base import Sampler


def beginning_of(sampler: Sampler, dataset: Any, batches: BatchRecipe | None = None) -> tuple[int, int]:
    """Returns the epoch and the position at which a run begins.

    A sampler that knows how far another package has read has `run_beginning(num_samples)`. The size of the
    dataset is asked for only there.

    Raises:
        CompositionError: a sampler that continues another run is not the outermost one.
        NotSupportedError: the run counts batches, and such a sampler samples.
        ArgumentRangeError: all samples have been read there, or there is no whole step.
        ArgumentValueError: there is no run.
    """
    begins = (0, 0)
    for link in sampler._tree():
        beginning = getattr(link, "run_beginning", None)
        if beginning is None:
            continue
        if link is sampler:
            begins = beginning(len(Layout.of(dataset)))
        # It is unknown which of its samples the samplers above it read.
        elif beginning(LARGEST) != (0, 0):
            problem, hint = "continues a run, and is below another one", "a loader deals it by itself"
            raise CompositionError(type(link).__name__, problem, hint=hint)
    if batches is not None and begins != (0, 0):
        raise NotSupportedError("batches", "are counted, and the sampler begins at a sample", begins[1])
    return begins
