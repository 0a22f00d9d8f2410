"""The algorithm: what a sampler asks for randomness, so that one recipe can be read in several ways."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from samplerkit.order.deal import Deal
from samplerkit.order.layout import Layout
from samplerkit.order.modes import Mode
from samplerkit.order.order import Order
from samplerkit.order.typing import Ids
from samplerkit.samplers.context import Context

Weights = np.ndarray[Any, np.dtype[np.float64]]


class Algorithm(Protocol):
    """How random orders come about: the same recipe over the same layout, by this algorithm.

    Wherever a context is taken, it tells the epoch, the place in the chain and the dataset.
    """

    def check(self, seed: int, mode: Mode | None = None, num_samples: int | None = None) -> None:
        """Refuses, when a sampler is made, what this algorithm does not know."""

    def random(
        self, mode: Mode, num_samples: int | None, layout: Layout, seed: int, context: Context
    ) -> Order:
        """Gives distinct samples in a random order, `num_samples` of them at most, None for all."""

    def draws(self, num_samples: int | None, layout: Layout, seed: int, context: Context) -> Order:
        """Gives draws with replacement; the layout has at least one sample."""

    def distributed(self, mode: Mode, deal: Deal, layout: Layout, seed: int, context: Context) -> Order:
        """Gives the order that a distributed sampler deals."""

    def deal(self, deal: Deal, mode: Mode, dataset: Any) -> Deal:
        """Gives how a distributed sampler deals over this dataset."""

    def lane_count(self, mode: Mode, layout: Layout, run_lanes: int) -> int:
        """Tells into how many lanes the order of a mode is woven."""

    def subset(self, size: int, seed: int, context: Context) -> Order:
        """Gives a random order of the entries of a list."""

    def weighted(
        self,
        weights: Weights,
        num_samples: int | None,
        replacement: bool,
        layout: Layout,
        seed: int,
        context: Context,
    ) -> Order:
        """Gives draws by weight, `num_samples` of them, None for as many as there are samples.

        Without replacement they are at most as many as there are samples and positive weights.
        """

    def class_draws(
        self, counts: Ids, num_val: int, shuffle: bool, num_samples: int | None, seed: int, context: Context
    ) -> tuple[Ids, Ids]:
        """Draws members of classes.

        Args:
            counts: how many members each class has, none of them 0.
            num_val: how many draws of each class.
            shuffle: whether the classes come in a random order.
            num_samples: how many draws at most; None for all.
            seed: the sampler's seed.
            context: the epoch and the place.

        Returns:
            The class of each draw, and which of its members was drawn: two int64 arrays of one length.
        """


def each_class(num_classes: int, num_val: int, num_samples: int | None) -> Ids:
    """Gives `num_val` times each class, one class after another, and no more than `num_samples` in all.

    Example:
        >>> each_class(3, 2, 5)
        array([0, 0, 1, 1, 2])
    """
    count = num_classes * num_val
    return np.arange(count if num_samples is None else min(num_samples, count)) // num_val
