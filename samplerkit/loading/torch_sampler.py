"""The bridge to any plain torch DataLoader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, final

import torch.utils.data

from samplerkit.errors import ArgumentTypeError
from samplerkit.loading.run import Run
from samplerkit.loading.state import State
from samplerkit.loading.torch_names import TorchNames
from samplerkit.order import arguments
from samplerkit.order.algebra import Shard
from samplerkit.order.deal import Deal
from samplerkit.order.order import Order
from samplerkit.order.permutation import CHUNK
from samplerkit.order.typing import Ids
from samplerkit.order.world import World
from samplerkit.samplers.base import Sampler


@final
class TorchSampler(TorchNames, torch.utils.data.DistributedSampler[int]):  # type: ignore[override]  # torch has plain attributes
    """Lets a plain torch `DataLoader` read a dataset in the order of a samplerkit sampler.

    That is not resume-exact in mid-epoch: workers take ids ahead of the loop, so a state that is saved there
    has counted samples that the loop has not received. Take `Loader`, or torchdata's `StatefulDataLoader`.

    It is a torch `DistributedSampler`, so that trainers which replace other samplers leave it alone. A chain
    without a distributed sampler is dealt to the world all the same. Iterating over a whole epoch moves on
    to the next one; `set_epoch` sets it.

    Args:
        sampler: the recipe; None for the dataset's own order.
        dataset: the dataset that the DataLoader reads; anything that `Sampler.order` takes.
        world: which shard of how many this process reads; None asks the running job at first use. For every
            process to read everything, say World(1, 0).

    Raises:
        ArgumentTypeError: `sampler` is no samplerkit sampler.

    Example:
        >>> import samplerkit as sk
        >>> dataset = list("abcdef")
        >>> sampler = sk.TorchSampler(sk.RandomSampler(seed=7), dataset)
        >>> loader = torch.utils.data.DataLoader(dataset, batch_size=4, sampler=sampler)
        >>> sorted(letter for batch in loader for letter in batch), sampler.epoch
        (['a', 'b', 'c', 'd', 'e', 'f'], 1)
    """

    drop_last = False

    def __init__(self, sampler: Sampler | None, dataset: Any, world: World | None = None) -> None:
        # torch's constructor asks for a process group, and makes plain numbers of what is a property here.
        self._run = Run(sampler, dataset, world)
        self.recipe = self._run.recipe
        self.dataset = dataset
        self.epoch = 0
        self._start = 0
        self._yielded = 0

    @property
    def world(self) -> World:
        """Which shard of how many this process reads; the running job is asked once."""
        return self._run.world

    @property
    def order(self) -> Order:
        """The order in which this process reads the current epoch, from the position of a loaded state on."""
        return self._order_from(self._start)

    def __iter__(self) -> Iterator[int]:
        for chunk in self._chunks(CHUNK):
            for index in chunk.tolist():
                self._yielded += 1
                yield index

    def batches(self, size: int) -> Iterator[Ids]:
        """Iterates over the rest of the epoch in arrays of `size` ids, then moves on to the next epoch."""
        for chunk in self._chunks(size * max(1, CHUNK // size)):
            for start in range(0, chunk.size, size):
                # A last batch that is smaller is a whole step all the same, in which other shards have more.
                self._yielded += size
                yield chunk[start : start + size]

    def _chunks(self, size: int) -> Iterator[Ids]:
        if self._is_over:
            self.epoch += 1
        if self._yielded:
            self._start = self._yielded = 0
        epoch = self.epoch
        yield from self.order.chunks(size)
        self._start = self._yielded = 0
        if self.epoch == epoch:
            self.epoch = epoch + 1

    def __len__(self) -> int:
        return len(self._order_from(0))

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads; the current one keeps the position of a loaded state.

        Raises:
            ArgumentTypeError: no integer.
            ArgumentValueError: negative.
        """
        epoch = arguments.epoch(epoch)
        if epoch != self.epoch or self._is_over:
            self.epoch, self._start, self._yielded = epoch, 0, 0

    def state_dict(self) -> dict[str, Any]:
        """Gives the state after the ids that were handed out, for torchdata's `StatefulDataLoader`.

        That loader keeps the state that belongs to each batch. A plain DataLoader does not: its workers take
        ids ahead of what the loop has received, so there this state is ahead too. Use `Loader`.
        """
        return self._state().to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration begin where a saved state stands.

        Raises:
            StateError: the state is damaged, of a newer schema, or of another run.
        """
        saved = self._run.restore(state, self._tail)
        self.epoch, self._start, self._yielded = saved.epoch, saved.position, 0

    @property
    def _tail(self) -> str:
        deal = self.recipe.root_deal(self.dataset)
        return "pad" if deal is None or deal.offset < 0 else "ragged"

    def _order_from(self, position: int) -> Order:
        if not self._run.deals_below_the_root:
            deal = self.recipe.root_deal(self.dataset) or Deal()
            return deal.shard(self._run.undealt(self.epoch), self.world, position)
        order = self.recipe.order(self.dataset, self.epoch, world=self.world)
        return Shard(order, 1, 0, padded=False, start=position // self.world.num_shards)

    @property
    def _position(self) -> int:
        """The position up to which all shards together have read the order."""
        return self._start + self._yielded * self.world.num_shards

    @property
    def _is_over(self) -> bool:
        """Whether all shards were handed all ids: a reader that counts them does not ask for the end."""
        return self._yielded > 0 and self._position >= len(self._run.undealt(self.epoch))

    def _state(self) -> State:
        position = self._position
        # Not of this shard's ids: where they differ by one, others may have one left.
        if 0 < position >= len(self._run.undealt(self.epoch)):
            return self._run.state(self.epoch + 1, 0, self._tail)
        return self._run.state(self.epoch, position, self._tail)


@final
class TorchBatchSampler(torch.utils.data.BatchSampler):
    """Hands whole batches of indices to a torch `DataLoader`: several times as fast as one by one.

    As with `TorchSampler`, a plain DataLoader is not resume-exact in mid-epoch.

    A dataset with `__getitems__` gets each batch as an int64 array, any other one as a list of integers.

    Args:
        sampler: gives the order.
        batch_size: samples in a batch.
        drop_last: whether a last, smaller batch is left out.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: `batch_size` is not positive.

    Example:
        >>> import samplerkit as sk
        >>> dataset = list("abcde")
        >>> sampler = sk.TorchSampler(sk.SequentialSampler(), dataset)
        >>> loader = torch.utils.data.DataLoader(dataset, batch_sampler=TorchBatchSampler(sampler, 2))
        >>> [batch for batch in loader]
        [['a', 'b'], ['c', 'd'], ['e']]
    """

    def __init__(self, sampler: TorchSampler, batch_size: int, drop_last: bool = False) -> None:
        if not isinstance(sampler, TorchSampler):
            raise ArgumentTypeError("sampler", "must be a TorchSampler", sampler)
        self.sampler: TorchSampler = sampler
        self.batch_size = arguments.positive("batch_size", batch_size)
        self.drop_last = arguments.boolean("drop_last", drop_last)

    def __iter__(self) -> Iterator[Any]:
        as_arrays = callable(getattr(self.sampler.dataset, "__getitems__", None))
        for batch in self.sampler.batches(self.batch_size):
            if batch.size == self.batch_size or not self.drop_last:
                yield batch if as_arrays else batch.tolist()

    def __len__(self) -> int:
        count = len(self.sampler)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads."""
        self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Gives the state after the batches that were handed out; see `TorchSampler.state_dict`."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration begin where a saved state stands."""
        self.sampler.load_state_dict(state)
