"""What the samplers with a shuffle mode have in common: its arguments, kept under their names."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from samplerkit.errors import ArgumentRangeError
from samplerkit.order import arguments
from samplerkit.order.layout import Layout
from samplerkit.order.modes import Mode
from samplerkit.order.order import Order
from samplerkit.order.shuffle import Shuffle
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.context import Context


class ModedSampler(Sampler):
    """A sampler with a shuffle mode.

    Attributes:
        mode: the arguments of the mode together; each is an attribute of its own as well.
        seed: of the order.
    """

    def __init__(
        self,
        num_samples: Any,
        seed: Any,
        shuffle: Any,
        partial_size: Any,
        pools: Any,
        adaptive_threshold: Any,
        lanes: Any,
    ) -> None:
        super().__init__(num_samples)
        self.pools: Final = arguments.integer("pools", pools)
        if self.pools not in {1, 2}:
            raise ArgumentRangeError("pools", "must be 1 or 2", self.pools)
        self.adaptive_threshold: Final = arguments.at_least("adaptive_threshold", adaptive_threshold, 0)
        self.shuffle: Final = Shuffle.parse(shuffle)
        self.partial_size: Final = arguments.positive("partial_size", partial_size)
        self.lanes: Final = arguments.lanes(lanes)
        self.mode: Final = Mode(
            self.shuffle,
            self.partial_size,
            self.adaptive_threshold,
            self.lanes,
            self.pools,
            owner=type(self).__name__,
        )
        self.seed: Final = arguments.seed(seed)

    def get_shuffle_mode(self) -> Shuffle:
        """Gives the shuffle mode."""
        return self.shuffle

    def lane_count(self, layout: Layout, run_lanes: int) -> int:
        return self.mode.lane_count(layout, run_lanes)

    def _in_mode(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout by the mode."""
        return self.mode.order(layout, partial(context.key, self.seed), context.lanes)
