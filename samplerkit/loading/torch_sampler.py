"""The bridge to any plain torch DataLoader, and the names by which trainers know a sampler."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, final

import torch.utils.data

from samplerkit.batches.recipe import BatchRecipe
from samplerkit.errors import ArgumentTypeError, ArgumentValueError, CompositionError, NotSupportedError
from samplerkit.loading.iteration import Cursor, Iteration
from samplerkit.loading.run.delivery import EVALUATED_AT_ONCE, FIRST_DIVISOR, Tail
from samplerkit.loading.run.run import Run, checked_tail
from samplerkit.loading.run.run_cursor import RunCursor
from samplerkit.order import arguments
from samplerkit.order.deal import Deal, World
from samplerkit.order.order import Order
from samplerkit.order.sequences import Range
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler


class TorchNames(ABC):
    """The attributes of torch's `DistributedSampler`, computed when they are read.

    It comes before torch's class in the order of bases, whose constructor is not called: that asks for a
    process group.
    """

    @property
    @abstractmethod
    def world(self) -> World:
        """Which shard of how many this process reads."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def num_replicas(self) -> int:
        """torch's name for the number of shards."""
        return self.world.num_shards

    @property
    def rank(self) -> int:
        """torch's name for the shard."""
        return self.world.shard_id

    @property
    def num_samples(self) -> int:
        """torch's name for the number of samples of this shard."""
        return len(self)

    @property
    def total_size(self) -> int:
        """torch's name for the number of samples of all shards, repeats included."""
        return self.num_samples * self.num_replicas


class EpochByCursor:
    """The epoch of a sampler for torch, by its cursor; as with torch's own, it can be assigned too."""

    _cursor: Cursor

    @property
    def epoch(self) -> int:
        """The current epoch: the one being read, or the one that the next iteration reads."""
        return self._cursor.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._cursor.go_to(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads; the current one keeps the position of a loaded state.

        Raises:
            ArgumentTypeError: no integer.
            ArgumentValueError: out of range.
        """
        self._cursor.set_epoch(self._checked_epoch(epoch))

    def _checked_epoch(self, epoch: int) -> int:
        return arguments.epoch(epoch)


@final
class TorchSampler(TorchNames, EpochByCursor, torch.utils.data.DistributedSampler[int]):  # type: ignore[override]  # torch has plain attributes
    """Lets a plain torch `DataLoader` read a dataset in the order of a samplerkit sampler.

    Its resume in mid-epoch is not exact: workers take ids ahead of the loop, so a state counts samples that
    the loop has not received. Use `Loader`, or torchdata's `StatefulDataLoader`. It is a torch
    `DistributedSampler`, so that trainers which replace other samplers do not replace it. A chain without a
    distributed sampler is also dealt to the ranks. After a whole epoch it advances to the next one;
    `set_epoch` sets it. The ranks of a job are compared, as for a `Loader`.

    Args:
        sampler: the recipe; None for the dataset's own order.
        dataset: the dataset that the DataLoader reads; anything that `Sampler.order` takes.
        world: which shard of how many this process reads; None asks the running job at first use. For every
            process to read everything, pass World(1, 0).
        agreement_seconds: how long the ranks of a job wait for one another when an iteration begins, to
            compare what they begin to read, as in a `Loader`.

    Raises:
        ArgumentTypeError: `sampler` is not a samplerkit sampler.
        ArgumentRangeError: `agreement_seconds` is negative or not finite.
        NotSupportedError: it is a ledger that sets the number of samples of a step.

    Example:
        >>> import samplerkit as sk
        >>> dataset = list("abcdef")
        >>> sampler = sk.TorchSampler(sk.RandomSampler(seed=7), dataset)
        >>> loader = torch.utils.data.DataLoader(dataset, batch_size=4, sampler=sampler)
        >>> sorted(letter for batch in loader for letter in batch), sampler.epoch
        (['a', 'b', 'c', 'd', 'e', 'f'], 1)
    """

    drop_last = False
    _cursor: RunCursor

    def __init__(
        self,
        sampler: Sampler | None,
        dataset: Any,
        world: World | None = None,
        *,
        agreement_seconds: float = 10.0,
    ) -> None:
        # torch's constructor asks for a process group, and makes plain numbers of what is a property here.
        run = Run.of(sampler, dataset, world)
        if run.edits.ledger.ramp:
            problem = "sets a global_batch, but another loader makes the batches"
            raise NotSupportedError("sampler", problem, sampler, hint="read by sk.Loader")
        self.recipe = run.sampler
        self.dataset = dataset
        self.counts_batches = False
        deal = self.recipe.chain.root_deal(dataset)
        tail: Tail = "pad" if deal is None or deal.offset < 0 else "ragged"
        self._cursor = RunCursor(replace(run, tail=tail), agreement_seconds)

    def deal_batches(self, batches: BatchRecipe, tail: Tail) -> None:
        """Makes this sampler count batches: a `TorchBatchSampler` hands them out, and shares its epochs.

        Args:
            batches: a recipe.
            tail: what becomes of the last batches.

        Raises:
            ArgumentTypeError: `batches` is not a recipe for batches.
            NotSupportedError: its batches are more than ids.
            ArgumentValueError: it has begun to count samples.
        """
        if isinstance(batches, BatchRecipe) and batches.needs_loader:
            problem = "hold parts of documents, or several packs, and a DataLoader hands on ids alone"
            hint = 'take samplerkit.Loader, or use packs=1 and long="drop" or "raise"'
            raise NotSupportedError("batches", problem, batches.words, hint=hint)
        current = self._cursor.current
        if self.counts_batches or current.taken or current.start:
            hint = "make the batch sampler before reading and loading"
            raise ArgumentValueError("sampler", "has begun to count other units", self, hint=hint)
        run = Run.of(self.recipe, self.dataset, self._cursor.run.given_world, batches, tail=tail)
        self._cursor = RunCursor(run, self._cursor.agreement_seconds)
        self._cursor.go_to(current.epoch)
        self.counts_batches = True

    @property
    def world(self) -> World:
        """Which shard of how many this process reads; taken from the running job once."""
        return self._cursor.run.world

    @property
    def order(self) -> Order:
        """The order in which this process reads the current epoch, from the position of a loaded state on."""
        self._require_samples()
        return self._rest_of(self._cursor.current)

    def __iter__(self) -> Iterator[int]:
        self._require_samples()
        iteration = self._begin()
        for chunk in _id_chunks(self._rest_of(iteration), 1):
            for index in chunk.tolist():
                iteration.taken += 1
                yield index
        self._cursor.end(iteration, at_its_end=True)

    def batches(self, size: int | None) -> Iterator[Ids]:
        """Iterates over the rest of the epoch in arrays of ids, then moves on to the next epoch.

        Args:
            size: ids in each; None for the batches of the recipe.
        """
        iteration = self._begin()
        of_recipe = (ids for _, ids in self._cursor.reading_of(iteration).batches())
        for ids in of_recipe if size is None else in_batches(self._rest_of(iteration), size):
            # A smaller last batch is also a whole step, in which other shards have more.
            iteration.taken += size or 1
            yield ids
        self._cursor.end(iteration, at_its_end=True)

    def __len__(self) -> int:
        """The number of samples of this shard in the current epoch; of batches, where it counts these."""
        return self._cursor.run.reading(self.epoch, 0).steps

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the ids that were handed out, for torchdata's `StatefulDataLoader`.

        That loader keeps the state that belongs to each batch. A plain DataLoader does not: its workers take
        ids ahead of what the loop has received, so there this state is ahead too. Use `Loader`.
        """
        return self._cursor.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration begin at the place of a saved state.

        Raises:
            StateError: the state is damaged, of a newer schema, or of another run.
        """
        self._cursor.restore(state)

    def _require_samples(self) -> None:
        if self.counts_batches:
            problem = "counts batches, and hands out no samples"
            raise CompositionError("sampler", problem, self.recipe, hint="iterate over its TorchBatchSampler")

    def _begin(self) -> Iteration:
        self._cursor.require_agreement(self._cursor.upcoming)
        return self._cursor.begin()

    def _rest_of(self, iteration: Iteration) -> Order:
        if iteration.is_spent:
            return Range(0, 0)
        deal = self.recipe.chain.root_deal(self.dataset) or Deal()
        return deal.shard(self._cursor.run.epoch(iteration.epoch).order, self.world, iteration.start)


def in_batches(order: Order, size: int) -> Iterator[Ids]:
    """Cuts an order into arrays of `size` ids; the last one may be shorter, but not empty."""
    return (chunk[at : at + size] for chunk in _id_chunks(order, size) for at in range(0, chunk.size, size))


def _id_chunks(order: Order, size: int) -> Iterator[Ids]:
    """Yields ids in whole batches of a size, as many at once as a `Reading` does."""
    first = min(len(order), size * max(1, EVALUATED_AT_ONCE // FIRST_DIVISOR // size))
    yield order[:first]
    yield from order.chunks(size * max(1, EVALUATED_AT_ONCE // size), first)


@final
class TorchBatchSampler(torch.utils.data.BatchSampler):
    """Returns whole batches of indices to a torch `DataLoader`: several times as fast as single indices.

    As with `TorchSampler`, the resume of a plain DataLoader in mid-epoch is not exact.

    A dataset with `__getitems__` gets each batch as an int64 array, any other one as a list of integers.

    Args:
        sampler: returns the order.
        batch_size: samples in a batch; or else `batches`.
        drop_last: whether a last, smaller batch is left out; with `batches` it means `tail="drop"`.
        batches: a recipe for batches of samples of different lengths, one a rank and step. The sampler then
            counts batches, and so do its states.
        tail: what becomes of the last of these batches, as in a `Loader`.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: `batch_size` and `batches` are both given, or neither; the tail is not known, or
            says something of samples; or the sampler counts other units already.
        NotSupportedError: the batches hold parts of documents, or several packs: only a `Loader` cuts them.
        ArgumentRangeError: `batch_size` is not positive.

    Example:
        >>> import samplerkit as sk
        >>> dataset = list("abcde")
        >>> sampler = sk.TorchSampler(sk.SequentialSampler(), dataset)
        >>> loader = torch.utils.data.DataLoader(dataset, batch_sampler=TorchBatchSampler(sampler, 2))
        >>> [batch for batch in loader]
        [['a', 'b'], ['c', 'd'], ['e']]
    """

    def __init__(
        self,
        sampler: TorchSampler,
        batch_size: int | None = None,
        drop_last: bool = False,
        *,
        batches: BatchRecipe | None = None,
        tail: Tail = "pad",
    ) -> None:
        if not isinstance(sampler, TorchSampler):
            raise ArgumentTypeError("sampler", "must be a TorchSampler", sampler)
        self.sampler: TorchSampler = sampler
        self.drop_last = arguments.boolean("drop_last", drop_last)
        tail = checked_tail(tail, batch_size, batches, drop_last=self.drop_last)
        # None with batches, as in torch for a custom batch sampler.
        self.batch_size: Any = None if batch_size is None else arguments.positive("batch_size", batch_size)
        if batches is not None:
            sampler.deal_batches(batches, tail)

    def __iter__(self) -> Iterator[Any]:
        as_arrays = callable(getattr(self.sampler.dataset, "__getitems__", None))
        for batch in self.sampler.batches(self.batch_size):
            if not self.drop_last or self.batch_size in (None, batch.size):
                yield batch if as_arrays else batch.tolist()

    def __len__(self) -> int:
        count, size = len(self.sampler), self.batch_size or 1
        return count // size if self.drop_last else -(-count // size)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads."""
        self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the batches that were handed out; see `TorchSampler.state_dict`."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration begin at the place of a saved state."""
        self.sampler.load_state_dict(state)
