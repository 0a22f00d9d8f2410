"""Where a run begins: at the first position, but where a sampler goes on with the run of another package."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from samplerkit.batches.recipe import BatchRecipe
from samplerkit.errors import CompositionError, NotSupportedError
from samplerkit.order.arguments import LARGEST
from samplerkit.order.layout import Layout
from samplerkit.samplers.base import Sampler


@runtime_checkable
class GoesOn(Protocol):
    """A sampler that knows how far another package has read."""

    def run_beginning(self, num_samples: int) -> tuple[int, int]:
        """Gives the epoch, and the position in it, at which a run over so many samples begins.

        Raises:
            ArgumentRangeError: all samples have been read there, or there is no whole step.
            ArgumentValueError: no run stands there.
        """


def beginning_of(sampler: Sampler, dataset: Any, batches: BatchRecipe | None = None) -> tuple[int, int]:
    """Gives the epoch and the position at which a run begins.

    The size of the dataset is asked for only where the sampler says anything of it.

    Raises:
        CompositionError: a sampler that goes on with another's run is not the outermost one.
        NotSupportedError: the run counts batches, and such a sampler samples.
        ArgumentRangeError: all samples have been read there, or there is no whole step.
        ArgumentValueError: no run stands there.
    """
    for link in sampler._tree():
        # Which of its samples come in those above is known to nobody.
        if link is not sampler and isinstance(link, GoesOn) and link.run_beginning(LARGEST) != (0, 0):
            problem, mend = "goes on with a run, and is below another one", "a loader deals it by itself"
            raise CompositionError(type(link).__name__, problem, mend=mend)
    if not isinstance(sampler, GoesOn):
        return 0, 0
    begins = sampler.run_beginning(len(Layout.of(dataset)))
    if batches is not None and begins != (0, 0):
        raise NotSupportedError("batches", "are counted, and the sampler begins at a sample", begins[1])
    return begins
