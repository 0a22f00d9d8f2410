"""Megatron's two samplers as recipes, and a loader by them: which samples come when, on any ranks."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal, final, get_args

from samplerkit.compat.megatron.deals import Kind, MicroBatches, RankBuckets, permuted, place
from samplerkit.errors import CompositionError
from samplerkit.loading.loader import Loader
from samplerkit.order import arguments
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import Context


@final
class MegatronPretrainingSampler(Sampler):
    """Reads samples in turn, and gives each rank a contiguous micro-batch: `--dataloader-type single`.

    The order is the same on any number of ranks. On `data_parallel_size` ranks with a batch of
    `micro_batch_size` each rank reads what its rank of Megatron reads.

    Args:
        micro_batch_size: samples of a rank in a step over there.
        data_parallel_size: the number of data-parallel ranks over there.
        consumed_samples: where the run stood when it was last started there, and where a `Loader` begins; the
            attribute is its remainder modulo a step, since steps are counted from there.

    Raises:
        ArgumentTypeError: an argument is no integer.
        ArgumentRangeError: one is not positive, or `consumed_samples` is negative.
        CompositionError: when the order is asked for: it has a child.

    Source: `MegatronPretrainingSampler` of Megatron-LM.

    Example:
        >>> sampler = MegatronPretrainingSampler(micro_batch_size=2, data_parallel_size=2)
        >>> sampler.order(8)[::2].tolist(), sampler.order(8)[1::2].tolist()
        ([0, 1, 4, 5], [2, 3, 6, 7])
    """

    is_fixed: ClassVar[bool] = True

    def __init__(self, micro_batch_size: int, data_parallel_size: int, consumed_samples: int = 0) -> None:
        super().__init__()
        self.micro_batch_size: Final = arguments.positive("micro_batch_size", micro_batch_size)
        self.data_parallel_size: Final = arguments.positive("data_parallel_size", data_parallel_size)
        self._consumed: Final = arguments.at_least("consumed_samples", consumed_samples, 0)
        self.consumed_samples: Final = self._consumed % (self.micro_batch_size * self.data_parallel_size)

    def run_beginning(self, num_samples: int) -> tuple[int, int]:
        """Returns the epoch and the position at which a loader over so many samples begins."""
        step = self.micro_batch_size * self.data_parallel_size
        return place("single", num_samples, self._consumed, step)

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        _require_no_child(self, context)
        return MicroBatches(
            len(layout), self.micro_batch_size, self.data_parallel_size, self.consumed_samples
        )


@final
class MegatronPretrainingRandomSampler(Sampler):
    """Shuffles samples in each epoch, within a bucket of each rank or all: `--dataloader-type cyclic`.

    Args:
        micro_batch_size: samples of a rank in a step over there.
        data_parallel_size: the number of data-parallel ranks over there.
        data_sharding: whether each rank has a bucket of its own; False is `--no-data-sharding`.
        consumed_samples: where the run stands over there, and where a `Loader` begins.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: a number is not positive, or `consumed_samples` is negative.
        CompositionError: when the order is asked for: it has a child.

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
        super().__init__()
        self.micro_batch_size: Final = arguments.positive("micro_batch_size", micro_batch_size)
        self.data_parallel_size: Final = arguments.positive("data_parallel_size", data_parallel_size)
        self.data_sharding: Final = arguments.boolean("data_sharding", data_sharding)
        self.consumed_samples: Final = arguments.at_least("consumed_samples", consumed_samples, 0)

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments on which the order depends: where a run stands is said by its state."""
        given = super().arguments()
        return {name: value for name, value in given.items() if name != "consumed_samples"}

    def run_beginning(self, num_samples: int) -> tuple[int, int]:
        """Returns the epoch and the position at which a loader over so many samples begins."""
        step = self.micro_batch_size * self.data_parallel_size
        kind: Kind = "cyclic sharded" if self.data_sharding else "cyclic"
        return place(kind, num_samples, self.consumed_samples, step)

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        _require_no_child(self, context)
        ranks = self.data_parallel_size if self.data_sharding else 1
        bucket = len(layout) // (self.micro_batch_size * ranks) * self.micro_batch_size
        return RankBuckets(permuted(bucket, context.epoch), ranks)


def _require_no_child(sampler: Sampler, context: Context) -> None:
    if context.child is not None:
        problem = "replays an order over a whole dataset, and has a child that yields another one"
        raise CompositionError(type(sampler).__name__, problem, hint="leave the child out")


DataloaderType = Literal["single", "cyclic"]
"""What `--dataloader-type` may be."""


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
    """Makes a loader that reads what a run of Megatron would have read from here on.

    On `data_parallel_size` ranks each reads, batch by batch, what its rank of Megatron would have read. On
    other ranks, or with another `batch_size`, the sequence of samples of all ranks together is the same. Its
    states are those of any loader: save them, and give them to a loader that was made by the same call.

    Args:
        dataset: a `MegatronDataset`, or any map-style dataset.
        micro_batch_size: `--micro-batch-size`.
        data_parallel_size: the data-parallel ranks of the run over there.
        consumed_samples: `consumed_train_samples` of its checkpoint.
        dataloader_type: `--dataloader-type`.
        data_sharding: False for `--no-data-sharding`.
        options: other arguments of `samplerkit.Loader`. `batch_size` is `micro_batch_size` where it is left
            out, and `tail` is `drop`.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: a number is out of range, or nothing is left to read.
        ArgumentValueError: a choice is not known, or a shuffled epoch would be entered within a step.

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
