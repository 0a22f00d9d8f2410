"""The figures of a run, which the plan, the pictures and the doctor share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from samplerkit.errors import ArgumentRangeError, DatasetError
from samplerkit.inspect.batches import BatchFigures, batch_figures
from samplerkit.inspect.download_costs import Downloads, downloads_of_parts
from samplerkit.inspect.quality.figure import Figure
from samplerkit.inspect.quality.labels import effective_batch
from samplerkit.inspect.quality.mixing import mixing
from samplerkit.inspect.tokens import TokenFigures, token_figures, windows_of
from samplerkit.inspect.view import RunView
from samplerkit.loading.run.delivery import Delivery
from samplerkit.loading.run.window_unit import WindowUnit
from samplerkit.order.caching import cached_property


@final
@dataclass(frozen=True, eq=False)
class RunFigures:
    """What an epoch of a run reads, in figures; each is computed when it is first asked for.

    Args:
        view: the run.
        epoch: which one.
        ranks_per_machine: how many ranks share a cache of remote files; None for all of them.
    """

    view: RunView
    epoch: int
    ranks_per_machine: int | None = None

    @cached_property
    def delivery(self) -> Delivery:
        """How the epoch is dealt."""
        return self.view.reading(self.epoch).delivery

    @cached_property
    def units(self) -> int:
        """The samples that all ranks read, pads not counted; or the batches of a plan."""
        delivery = self.delivery
        return delivery.position_after(delivery.job_steps) if delivery.tail == "drop" else delivery.size

    @cached_property
    def samples(self) -> int:
        """The samples that all ranks read, pads not counted."""
        return self.units if self.batches is None else round(self.units * self.batches.mean)

    @cached_property
    def steps(self) -> tuple[int, int]:
        """The fewest and the most steps of a rank."""
        # Two neighbouring ranks differ where any do: the first one dealt to, and the last.
        ranks = (self.delivery.rotation, self.delivery.rotation - 1)
        readings = [self.view.reading(self.epoch, rank % self.view.num_ranks) for rank in ranks]
        steps = [self.view.steps(reading) for reading in readings]
        return min(steps), max(steps)

    @property
    def pads(self) -> int:
        """The samples, or batches of a plan, that are read twice to fill the last batches."""
        delivery = self.delivery
        return (delivery.start - delivery.size) % self.view.num_ranks if delivery.tail == "pad" else 0

    @property
    def most_pads_of_a_rank(self) -> int:
        """The most of these that one rank reads."""
        if not self.pads:
            return 0
        delivery = self.delivery
        # Pads are dealt last.
        last = (delivery.rotation - 1) % self.view.num_ranks
        positions = delivery.positions(last, delivery.job_steps - 1)
        return int(np.count_nonzero(positions >= delivery.size))

    @cached_property
    def batches(self) -> BatchFigures | None:
        """The batches of a plan, without their mixing; None where batches are of one size."""
        return batch_figures(self.view, self.epoch, with_mixing=False)

    @cached_property
    def windows(self) -> WindowUnit | None:
        """How windows of tokens are cut; None of other datasets, and of windows in batches of a plan."""
        return None if self.view.recipe is not None else windows_of(self.view)

    @cached_property
    def tokens(self) -> TokenFigures | None:
        """The windows of tokens; None of other datasets."""
        return token_figures(self.view, self.epoch, self.samples)

    @cached_property
    def downloads(self) -> dict[str, Downloads]:
        """What the epoch asks of remote storage, by the names of the parts of a tree."""
        return downloads_of_parts(self.view, self.epoch, self.ranks_per_machine)

    @cached_property
    def mixing(self) -> Figure | None:
        """How close the order comes to a full shuffle; None of batches of a plan, or of too few samples."""
        return self._quality(mixing)

    @cached_property
    def effective_batch(self) -> Figure | None:
        """The random batch that one of this order is worth if all samples of a file are alike."""
        return self._quality(effective_batch)

    def _quality(self, figure: Callable[..., Figure]) -> Figure | None:
        view, batch = self.view, self.delivery.global_batch
        if view.recipe is not None or batch > view.layout.num_samples:
            return None
        try:
            return figure(view.run.recipe, view.run.dataset, batch, world=view.run.world)
        except (ArgumentRangeError, DatasetError):
            return None

    @property
    def files_of_a_shuffled_batch(self) -> float:
        """The number of files in a batch that is expected of a full shuffle."""
        share = self.view.layout.sizes / max(1, self.view.layout.num_samples)
        return float((1 - (1 - share) ** self.view.samples_a_batch).sum())
