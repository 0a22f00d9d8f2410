"""samplerkit-1: keyed permutations and keyed hashes, so that any position of any epoch can be asked for."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from samplerkit.order.deal import Deal, limited
from samplerkit.order.keys import keyed_hash
from samplerkit.order.layout import Layout
from samplerkit.order.modes import Mode
from samplerkit.order.order import Order
from samplerkit.order.permutation import Permutation
from samplerkit.order.sequences import Draws, Permuted, Range, Table
from samplerkit.order.typing import Ids
from samplerkit.order.weights import draw_without_replacement, integer_weights
from samplerkit.samplers.algorithms.algorithm import Algorithm, Weights, each_class
from samplerkit.samplers.context import Context

_HASH_WORDS = 3


@final
class Samplerkit1(Algorithm):
    """The default algorithm; the roles of its keys are part of it."""

    def check(self, seed: int, mode: Mode | None = None, num_samples: int | None = None) -> None:
        """Knows every seed and every mode."""

    def random(
        self, mode: Mode, num_samples: int | None, layout: Layout, seed: int, context: Context
    ) -> Order:
        order = mode.order(layout, lambda role: context.key(seed, role), context.lanes)
        return limited(order, num_samples)

    def draws(self, num_samples: int | None, layout: Layout, seed: int, context: Context) -> Order:
        size = len(layout)
        wanted = num_samples or size
        count = wanted if layout.has_files else min(wanted, size)
        return Draws(count, context.key(seed, "replacement"), population=size)

    def distributed(self, mode: Mode, deal: Deal, layout: Layout, seed: int, context: Context) -> Order:
        return mode.order(layout, lambda role: context.key(seed, role), context.lanes)

    def deal(self, deal: Deal, mode: Mode, dataset: Any) -> Deal:
        return deal

    def lane_count(self, mode: Mode, layout: Layout, run_lanes: int) -> int:
        return mode.lane_count(layout, run_lanes)

    def subset(self, size: int, seed: int, context: Context) -> Order:
        return Permuted(size, context.key(seed, "subset"))

    def weighted(
        self,
        weights: Weights,
        num_samples: int | None,
        replacement: bool,
        layout: Layout,
        seed: int,
        context: Context,
    ) -> Order:
        key, integers = context.key(seed, "weighted"), integer_weights(weights)
        count = num_samples or len(layout)
        if replacement:
            return Draws(count, key, cumulative=np.cumsum(integers))
        count = min(count, len(layout))
        return Table(draw_without_replacement(integers, count, key)) if count else Range(0, 0)

    def class_draws(
        self, counts: Ids, num_val: int, shuffle: bool, num_samples: int | None, seed: int, context: Context
    ) -> tuple[Ids, Ids]:
        classes = np.arange(counts.size)
        if shuffle:
            classes = Permutation(counts.size, context.key(seed, "pk classes")).forward(classes)
        classes = classes[each_class(classes.size, num_val, num_samples)]
        words = context.key(seed, "pk").words(_HASH_WORDS)
        hashes = keyed_hash(words, np.arange(classes.size))
        # 32 bits of the hash are enough to pick one of fewer than 2^31 members without a visible bias.
        return classes, (hashes >> np.uint64(33)).astype(np.int64) * counts[classes] >> 31
