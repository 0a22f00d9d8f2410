"""The contract of a sampler as a test class: inherit from it, implement `make`, and run pytest.

Nothing here needs pytest itself: the class has plain methods with plain checks.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from samplerkit.errors import InverseTooLargeError
from samplerkit.loading.loader import Loader
from samplerkit.order.deal import World
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.samplers.base import Sampler


class SamplerContract:
    """Tests of the properties that every sampler must have; each method is a test.

    A subclass implements `make`, and may set other datasets. Name it `Test...`, so that pytest finds it.

    Source: the form is that of zarr's `zarr.testing.store.StoreTests`.

    Example:
        >>> import numpy as np
        >>> import samplerkit as sk
        >>> class EvenOdd(sk.Sampler):
        ...     def draw(self, layout, context):
        ...         ids = np.arange(len(layout))
        ...         return np.concatenate([ids[::2], ids[1::2]])
        >>> class TestEvenOdd(SamplerContract):
        ...     def make(self):
        ...         return EvenOdd()
        >>> TestEvenOdd().test_a_resumed_loader_reads_each_position_once()
    """

    datasets: Sequence[Any] = (Layout(1), Layout(23), Layout([7, 0, 9, 4]))
    """The inputs that the sampler orders: layouts, numbers of samples or datasets."""

    epochs: Sequence[int] = (0, 1, 5)
    worlds: Sequence[int] = (1, 2, 3, 5)

    def make(self) -> Sampler:
        """Makes a new sampler, as a second process would."""
        raise NotImplementedError("define how the sampler is made")

    def _orders(self) -> list[tuple[Any, int, Order]]:
        return [
            (dataset, epoch, self.make().undealt_order(dataset, epoch))
            for dataset in self.datasets
            for epoch in self.epochs
        ]

    def test_equal_samplers_give_equal_orders(self) -> None:
        """Equal arguments give equal orders: from one sampler twice, and from two samplers."""
        for dataset, epoch, order in self._orders():
            sampler = self.make()
            for _ in range(2):
                ids = np.asarray(sampler.undealt_order(dataset, epoch))
                require(np.array_equal(ids, np.asarray(order)), "the order is the same", (dataset, epoch))

    def test_global_random_state_is_neither_read_nor_changed(self) -> None:
        """The order does not depend on the random state of Python, numpy or torch, and does not change it."""
        orders = []
        for seed in (1, 2):
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002  # the legacy state is what a sampler might touch
            torch.manual_seed(seed)
            before = _random_state()
            orders.append([np.asarray(order).tolist() for _, _, order in self._orders()])
            require(_random_state() == before, "the process-wide random state is as it was", seed)
        require(orders[0] == orders[1], "the order does not depend on the process-wide random state", "")

    def test_every_id_is_in_the_dataset(self) -> None:
        """Ids are in [0, number of samples)."""
        for dataset, epoch, order in self._orders():
            ids = np.asarray(order)
            inside = (ids >= 0) & (ids < len(Layout.of(dataset)))
            require(bool(inside.all()), "every id is in the dataset", (dataset, epoch))

    def test_indexing_slicing_and_iterating_agree(self) -> None:
        """The order is the same, however it is read."""
        for dataset, epoch, order in self._orders():
            case = (dataset, epoch)
            ids = np.asarray(order).tolist()
            require(len(ids) == len(order), "the length is the number of ids", case)
            require(list(order) == ids, "iterating gives the ids", case)
            require([order[p] for p in range(len(ids))] == ids, "indexing gives the ids", case)
            require(order[::-1].tolist() == ids[::-1], "slicing gives the ids", case)
            if ids:
                shuffled = np.argsort(np.array(ids) * 7919 % 101, kind="stable")
                require(order[shuffled].tolist() == [ids[p] for p in shuffled], "any positions", case)

    def test_positions_of_is_the_inverse_of_indexing(self) -> None:
        """p is among the positions of order[p], and each of these positions holds that id."""
        for dataset, epoch, order in self._orders():
            for position, sample in enumerate(np.asarray(order).tolist()):
                try:
                    positions = order.positions_of(sample)
                except InverseTooLargeError:
                    break
                require(position in positions, "a position leads back", (dataset, epoch, position))
                ids = set(order[positions].tolist())
                require(ids == {sample}, "every position holds the id", (dataset, epoch, sample))

    def test_all_shards_are_dealt_from_one_order(self) -> None:
        """Rank r of W reads positions r, r + W, r + 2 W, ..., wrapping around at the end."""
        if self.make().chain.deal is not None:
            return
        for dataset in self.datasets:
            for count in self.worlds:
                first = self.make().chain.constants(World(count, 0))
                undealt = np.asarray(self.make().undealt_order(dataset, 1, constants=first)).tolist()
                for shard in range(count):
                    own = list(self.make().order(dataset, 1, world=World(count, shard)))
                    rows = range(-(-len(undealt) // count))
                    dealt = [undealt[(row * count + shard) % len(undealt)] for row in rows]
                    require(own == dealt, "a shard is the dealt view", (dataset, count, shard))

    def test_a_resumed_loader_reads_each_position_once(self) -> None:
        """A run that stops at any step and resumes with other ranks and batches reads each position once."""
        if self.make().chain.deal is not None:
            return
        for dataset in self.datasets:
            for ranks, batch in ((1, 4), (2, 3), (3, 2)):
                first = [self._loader(dataset, ranks, batch, rank) for rank in range(ranks)]
                expected = Counter(np.asarray(first[0].order).tolist())
                for cut in range(first[0].steps_left + 1):
                    before = Counter(id for run in first for step in range(cut) for id in _ids(run, step))
                    state = first[0].state_dict(step=cut)
                    after: Counter[int] = Counter()
                    if state["epoch"] == 0:
                        for rank in range(2):
                            run = self._loader(dataset, 2, 2, rank)
                            run.load_state_dict(state)
                            after.update(id for step in range(run.steps_left) for id in _ids(run, step))
                    require(before + after == expected, "nothing lost or repeated", (dataset, ranks, cut))

    def _loader(self, dataset: Any, ranks: int, batch: int, rank: int) -> Loader:
        return Loader(dataset, self.make(), batch_size=batch, world=World(ranks, rank))


def _ids(loader: Loader, step: int) -> list[int]:
    ids: list[int] = loader.ids(step)[~loader.pads(step)].tolist()
    return ids


def _random_state() -> tuple[Any, ...]:
    state: Any = np.random.get_state()  # noqa: NPY002  # see above
    return random.getstate(), state[1].tolist(), torch.get_rng_state().tolist()


def require(condition: bool, rule: str, case: Any) -> None:
    """Checks that a property holds.

    Raises:
        AssertionError: it does not; the error has the property and the case.
    """
    if not condition:
        raise AssertionError(f"{rule}: not so for {case}")


def same(one: Any, other: Any) -> bool:
    """Whether two samples are equal, including nested values; NaN equals NaN."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    left, right = np.asarray(one), np.asarray(other)
    has_nan = {left.dtype.kind, right.dtype.kind} <= {"f", "c"}
    return bool(np.array_equal(left, right, equal_nan=has_nan))
