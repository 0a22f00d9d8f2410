"""A loader that resumes where a run of Megatron stands."""

from __future__ import annotations

from typing import Any, Literal, get_args

from samplerkit.compat.megatron.samplers import MegatronPretrainingRandomSampler, MegatronPretrainingSampler
from samplerkit.loading.loader import Loader
from samplerkit.order import arguments
from samplerkit.samplers.base import Sampler

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
