"""Megatron's two samplers, their orders, and a loader that uses them."""

from collections.abc import Iterator
from typing import Any, ClassVar, Final, Literal, final, get_args

import numpy as np

from samplerkit.compat.torch.epoch_sampler import permuted_by_torch
from samplerkit.errors import ArgumentRangeError, ArgumentValueError, CompositionError
from samplerkit.loading.loader import Loader
from samplerkit.order import arguments
from samplerkit.order.layout import Layout
from samplerkit.order.order import Located, Order, located
from samplerkit.order.sequences import Table
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import Context

Kind = Literal["single", "cyclic", "cyclic sharded"]
"""`--dataloader-type single`; `cyclic` with and without `--no-data-sharding`."""


class MicroBatches(Order):
    """All ids in sequence, arranged so that each rank reads a contiguous micro-batch of each step.

    A loader deals the positions of a step to ranks in turn, so position k W + r of a step holds its sample
    r mb + k.

    Args:
        size: the number of samples.
        micro_batch_size: mb, the samples per rank and step.
        ranks: W, the number of data-parallel ranks.
        phase: the position at which the first whole step begins; ids before it are not rearranged.

    Example:
        >>> MicroBatches(9, 2, 2, 0)
        Order([0, 2, 1, 3, 4, 6, ...], length 9)
    """

    def __init__(self, size: int, micro_batch_size: int, ranks: int, phase: int) -> None:
        self._size, self._micro, self._ranks, self._phase = size, micro_batch_size, ranks, phase
        step = micro_batch_size * ranks
        self._end = phase + max(0, size - phase) // step * step

    @property
    def recipe(self) -> tuple[object, ...]:
        return self._size, self._micro, self._ranks, self._phase

    def __len__(self) -> int:
        return self._size

    def ids_at(self, positions: Ids) -> Ids:
        return self._transpose(positions, self._ranks, self._micro)

    def locate(self, ids: Ids) -> Located:
        return located(self._transpose(ids, self._micro, self._ranks), (ids >= 0) & (ids < self._size))

    def _transpose(self, numbers: Ids, columns: int, rows: int) -> Ids:
        """Transposes each step, seen as a row-major matrix of `rows` by `columns`."""
        step, place = np.divmod(numbers - self._phase, columns * rows)
        row, column = np.divmod(place, columns)
        transposed = self._phase + step * (columns * rows) + column * rows + row
        is_whole = (numbers >= self._phase) & (numbers < self._end)
        return np.where(is_whole, transposed, numbers)


def micro_batches(
    kind: Kind,
    total_samples: int,
    consumed_samples: int,
    micro_batch_size: int,
    data_parallel_rank: int,
    data_parallel_size: int,
    *,
    drop_last: bool = True,
) -> Iterator[list[int]]:
    """Yields the micro-batches that a rank of Megatron reads to the end of the epoch, to compare logs with.

    This includes Megatron's quirks, which samplerkit's loaders do not have: with `drop_last=False`, the last
    ranks read short batches or none in the last step; and unsharded `cyclic` may give ranks different numbers
    of batches.

    Args:
        kind: `single`, `cyclic` or `cyclic sharded`.
        total_samples: the number of samples of the dataset.
        consumed_samples: the number of samples that all ranks have consumed.
        micro_batch_size: the samples of a rank in a step.
        data_parallel_rank: this rank.
        data_parallel_size: the number of ranks.
        drop_last: whether the last samples of `single`, if they do not fill a step, are dropped.

    Raises:
        ArgumentTypeError: a number is not an integer.
        ArgumentRangeError: a number is out of range, or less than a step remains.
        ArgumentValueError: the kind is unknown.

    Example:
        >>> list(micro_batches("single", 9, 0, 2, 1, 2))
        [[2, 3], [6, 7]]
    """
    arguments.choice("kind", kind, get_args(Kind))
    micro = arguments.positive("micro_batch_size", micro_batch_size)
    ranks = arguments.positive("data_parallel_size", data_parallel_size)
    rank = arguments.at_least("data_parallel_rank", data_parallel_rank, 0)
    if rank >= ranks:
        raise ArgumentRangeError("data_parallel_rank", f"must be below {ranks}", rank)
    epoch, position = place(kind, total_samples, consumed_samples, micro * ranks)
    if kind == "single":
        for begin in range(position, total_samples, micro * ranks):
            step = range(begin, min(begin + micro * ranks, total_samples))
            if len(step) == micro * ranks or not drop_last:
                yield list(step[rank * micro : (rank + 1) * micro])
        return
    sampler = MegatronPretrainingRandomSampler(micro, ranks, kind == "cyclic sharded")
    own = sampler.order(total_samples, epoch)[position + rank :: ranks]
    for begin in range(0, own.size // micro * micro, micro):
        yield own[begin : begin + micro].tolist()


def place(kind: Kind, total_samples: Any, consumed_samples: Any, global_batch: int) -> tuple[int, int]:
    """Returns the epoch, and the position in it, of a run that has consumed `consumed_samples` samples.

    Raises:
        ArgumentTypeError: a number is not an integer.
        ArgumentRangeError: no sample remains, the dataset has less than a step, or a number is negative.
        ArgumentValueError: a shuffled epoch would be resumed within a step.
    """
    total = arguments.positive("total_samples", total_samples)
    consumed = arguments.at_least("consumed_samples", consumed_samples, 0)
    if kind == "single":
        if consumed >= total:
            raise ArgumentRangeError(
                "consumed_samples", f"must be below the {total} samples of the part", consumed
            )
        return 0, consumed
    active = total // global_batch * global_batch
    if not active:
        raise ArgumentRangeError("total_samples", f"must be at least one step of {global_batch}", total)
    epoch, position = divmod(consumed, active)
    if position % global_batch:
        raise ArgumentValueError(
            "consumed_samples",
            f"must be a multiple of a step of {global_batch} samples in an epoch of {active}",
            consumed,
        )
    return epoch, position


class ReplayedSampler(Sampler):
    """Base class of Megatron's samplers: their arguments, and where a `Loader` begins."""

    _kind: Kind

    def __init__(self, micro_batch_size: int, data_parallel_size: int, consumed_samples: int = 0) -> None:
        super().__init__()
        self.micro_batch_size: Final = arguments.positive("micro_batch_size", micro_batch_size)
        self.data_parallel_size: Final = arguments.positive("data_parallel_size", data_parallel_size)
        self._step: Final = self.micro_batch_size * self.data_parallel_size
        self._consumed: Final = arguments.at_least("consumed_samples", consumed_samples, 0)
        self.consumed_samples: Final = self._consumed % self._step

    def run_beginning(self, num_samples: int) -> tuple[int, int]:
        """Returns the epoch and the position at which a loader over so many samples begins."""
        return place(self._kind, num_samples, self._consumed, self._step)

    def _require_no_child(self, context: Context) -> None:
        if context.child is not None:
            problem = "replays the order of a whole dataset, but has a child that yields another one"
            raise CompositionError(type(self).__name__, problem, hint="leave the child out")


@final
class MegatronPretrainingSampler(ReplayedSampler):
    """Reads samples in sequence, a contiguous micro-batch per rank: `--dataloader-type single`.

    The order is the same on any number of ranks. On `data_parallel_size` ranks with a batch size of
    `micro_batch_size`, each rank reads the batches of the same rank of Megatron.

    Args:
        micro_batch_size: the samples of a rank in a step in Megatron.
        data_parallel_size: the number of data-parallel ranks in Megatron.
        consumed_samples: the samples that the run had consumed when it was last started in Megatron, where a
            `Loader` begins; the attribute is its remainder modulo a step, since steps are counted from there.

    Raises:
        ArgumentTypeError: an argument is not an integer.
        ArgumentRangeError: a number is not positive, or `consumed_samples` is negative.
        CompositionError: when the order is drawn: the sampler has a child.

    Source: `MegatronPretrainingSampler` of Megatron-LM.

    Example:
        >>> sampler = MegatronPretrainingSampler(micro_batch_size=2, data_parallel_size=2)
        >>> sampler.order(8)[::2].tolist(), sampler.order(8)[1::2].tolist()
        ([0, 1, 4, 5], [2, 3, 6, 7])
    """

    is_fixed: ClassVar[bool] = True
    _kind = "single"

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        self._require_no_child(context)
        return MicroBatches(
            len(layout), self.micro_batch_size, self.data_parallel_size, self.consumed_samples
        )


@final
class MegatronPretrainingRandomSampler(ReplayedSampler):
    """Shuffles samples in each epoch, within a bucket per rank or all together: `--dataloader-type cyclic`.

    Args:
        micro_batch_size: the samples of a rank in a step in Megatron.
        data_parallel_size: the number of data-parallel ranks in Megatron.
        data_sharding: whether each rank has its own bucket; False is `--no-data-sharding`.
        consumed_samples: the samples that the run of Megatron has consumed, where a `Loader` begins; the
            attribute is its remainder modulo a step.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: a number is not positive, or `consumed_samples` is negative.
        CompositionError: when the order is drawn: the sampler has a child.

    Source: `MegatronPretrainingRandomSampler` of Megatron-LM; the permutation is that of the torch installed.

    Example:
        >>> sampler = MegatronPretrainingRandomSampler(micro_batch_size=2, data_parallel_size=2)
        >>> sorted(sampler.order(9)[::2].tolist()), sorted(sampler.order(9)[1::2].tolist())
        ([0, 1, 2, 3], [4, 5, 6, 7])
    """

    def __init__(
        self,
        micro_batch_size: int,
        data_parallel_size: int,
        data_sharding: bool = True,
        consumed_samples: int = 0,
    ) -> None:
        super().__init__(micro_batch_size, data_parallel_size, consumed_samples)
        self.data_sharding: Final = arguments.boolean("data_sharding", data_sharding)
        self._kind = "cyclic sharded" if self.data_sharding else "cyclic"

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        self._require_no_child(context)
        ranks = self.data_parallel_size if self.data_sharding else 1
        bucket = len(layout) // (self.micro_batch_size * ranks) * self.micro_batch_size
        # One contiguous bucket per rank, all shuffled by the same permutation; positions alternate between
        # buckets. As in Megatron, the generator is seeded with the epoch only.
        shuffled = permuted_by_torch(bucket, context.epoch)[:, None] + np.arange(ranks) * bucket
        return Table(arguments.read_only(shuffled.reshape(-1)))


DataloaderType = Literal["single", "cyclic"]
"""The values of `--dataloader-type`."""


def loader(
    dataset: Any,
    micro_batch_size: int,
    data_parallel_size: int,
    *,
    consumed_samples: int = 0,
    dataloader_type: DataloaderType = "single",
    data_sharding: bool = True,
    **options: Any,
) -> Loader:
    """Makes a loader that continues the order of a Megatron run.

    On `data_parallel_size` ranks, each rank reads the batches that the same rank of Megatron would have read.
    On another number of ranks, or with another `batch_size`, the sequence of samples of all ranks together is
    the same. States work as in any loader: save them, and load them in a loader made by the same call.

    Args:
        dataset: a `MegatronDataset`, or any map-style dataset.
        micro_batch_size: `--micro-batch-size`.
        data_parallel_size: the number of data-parallel ranks of the Megatron run.
        consumed_samples: `consumed_train_samples` of its checkpoint.
        dataloader_type: `--dataloader-type`.
        data_sharding: False for `--no-data-sharding`.
        options: other arguments of `samplerkit.Loader`. By default, `batch_size` is `micro_batch_size`, and
            `tail` is `drop`.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: a number is out of range, or no sample remains to be read.
        ArgumentValueError: a choice is not known, or a shuffled epoch would be resumed within a step.

    Example:
        >>> resumed = loader(range(100, 116), 2, 2, consumed_samples=4)
        >>> [batch.tolist() for batch in resumed][:3]
        [[104, 106], [105, 107], [108, 110]]
    """
    arguments.choice("dataloader_type", dataloader_type, get_args(DataloaderType))
    sampler: Sampler
    if dataloader_type == "single":
        sampler = MegatronPretrainingSampler(micro_batch_size, data_parallel_size, consumed_samples)
    else:
        sampler = MegatronPretrainingRandomSampler(
            micro_batch_size, data_parallel_size, data_sharding, consumed_samples
        )
    return Loader(dataset, sampler, **{"batch_size": micro_batch_size, "tail": "drop", **options})
