"""The orders that, dealt as a loader deals, give each rank what Megatron's samplers give it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, final, get_args

import numpy as np
import torch

from samplerkit.errors import ArgumentRangeError, ArgumentValueError
from samplerkit.order import arguments
from samplerkit.order.caching import cached_property
from samplerkit.order.order import Located, Order
from samplerkit.order.sequences import found
from samplerkit.order.typing import Ids

Kind = Literal["single", "cyclic", "cyclic sharded"]
"""`--dataloader-type single`; `cyclic` with and without `--no-data-sharding`."""


@final
class MicroBatches(Order):
    """All ids in turn, such that a rank of the job reads a contiguous micro-batch of each step.

    A loader deals the positions of a step like cards. So position k W + r of a step holds its sample
    r mb + k.

    Args:
        size: the number of samples.
        micro_batch_size: mb, samples a rank and step.
        ranks: W, the number of data-parallel ranks.
        phase: the position at which the first whole step begins; those before stand as they are.

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
        return self._swapped(positions, self._ranks, self._micro)

    def locate(self, ids: Ids) -> Located:
        return found(self._swapped(ids, self._micro, self._ranks), (ids >= 0) & (ids < self._size))

    def _swapped(self, numbers: Ids, columns: int, rows: int) -> Ids:
        """Transposes the steps, written row by row, of so many columns."""
        step, place = np.divmod(numbers - self._phase, columns * rows)
        row, column = np.divmod(place, columns)
        swapped = self._phase + step * (columns * rows) + column * rows + row
        is_whole = (numbers >= self._phase) & (numbers < self._end)
        return np.where(is_whole, swapped, numbers)


@final
class RankBuckets(Order):
    """Ids shuffled within one contiguous bucket a rank, all by one permutation.

    Args:
        shuffled: the permutation, int64 of shape (samples of a bucket,).
        count: the number of buckets, which a loader's positions go round.
    """

    def __init__(self, shuffled: Ids, count: int) -> None:
        self._shuffled, self._count = shuffled, count

    @property
    def recipe(self) -> tuple[object, ...]:
        return self._shuffled, self._count

    def __len__(self) -> int:
        return self._shuffled.size * self._count

    def ids_at(self, positions: Ids) -> Ids:
        row, bucket = np.divmod(positions, self._count)
        return bucket * self._shuffled.size + self._shuffled[row]

    def locate(self, ids: Ids) -> Located:
        which = np.flatnonzero((ids >= 0) & (ids < len(self)))
        bucket, number = np.divmod(ids[which], max(1, self._shuffled.size))
        return which, self._rows[number] * self._count + bucket

    @cached_property
    def _rows(self) -> Ids:
        return np.argsort(self._shuffled)


def permuted(size: int, epoch: int) -> Ids:
    """Returns torch's permutation by a generator that is seeded with the epoch alone, as over there."""
    generator = torch.Generator()
    generator.manual_seed(epoch)
    shuffled: Ids = torch.randperm(size, generator=generator).numpy()
    return shuffled


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
    """Yields the micro-batches that a rank reads over there, to the end of the epoch: to compare logs with.

    Its quirks are in it, which no loader of ours has: with `drop_last=False` late ranks get short batches or
    none of the last step; and unsharded `cyclic` may give ranks unequal numbers of batches.

    Args:
        kind: `single`, `cyclic` or `cyclic sharded`.
        total_samples: samples of the dataset.
        consumed_samples: those that all ranks have consumed.
        micro_batch_size: samples of a rank in a step.
        data_parallel_rank: this rank.
        data_parallel_size: the number of ranks.
        drop_last: whether the last samples of `single`, which fill no step, are left out.

    Raises:
        ArgumentTypeError: a number is no integer.
        ArgumentRangeError: a number is out of range; or nothing is left, or less than a step.
        ArgumentValueError: no such kind.

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
    if kind == "cyclic":
        mine = permuted(total_samples // micro * micro, epoch)[position:][rank::ranks]
    else:
        bucket = total_samples // (micro * ranks) * micro
        mine = rank * bucket + permuted(bucket, epoch)[position // ranks :]
    for begin in range(0, mine.size // micro * micro, micro):
        yield mine[begin : begin + micro].tolist()


def place(kind: Kind, total_samples: Any, consumed_samples: Any, global_batch: int) -> tuple[int, int]:
    """Returns the epoch and the position in it at which a run stands that has consumed so many samples.

    Raises:
        ArgumentTypeError: a number is no integer.
        ArgumentRangeError: nothing is left, the dataset has less than a step, or a number is negative.
        ArgumentValueError: a shuffled epoch would be entered within a step.
    """
    total = arguments.positive("total_samples", total_samples)
    consumed = arguments.at_least("consumed_samples", consumed_samples, 0)
    if kind == "single":
        if consumed >= total:
            raise ArgumentRangeError(
                "consumed_samples", f"must be below the {total} samples there are", consumed
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
