"""A recorded case of MindSpore, by the samplers of samplerkit.compat.mindspore."""

import hashlib
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset

import samplerkit as sk
from samplerkit.compat import mindspore as ds
from tests.samplers import mindspore_cases

SEEDED = {
    "Random": ds.RandomSampler,
    "SubsetRandom": ds.SubsetRandomSampler,
    "WeightedRandom": ds.WeightedRandomSampler,
    "PK": ds.PKSampler,
    "Distributed": ds.DistributedSampler,
}


def dataset(case: dict[str, Any]) -> Any:
    """Returns the dataset of a case, of the kind by which MindSpore chooses its rules."""
    if case["dataset"]["kind"] == "concat":
        return ConcatDataset([range(size) for size in case["dataset"]["parts"]])  # type: ignore[arg-type]
    return mindspore_cases.layout(case)


def sampler(case: dict[str, Any], shard: int, *, quirks: bool) -> sk.Sampler:
    """The chain of a case, for one shard."""
    common = {"seed": case["seed"], "quirks": quirks}
    if case["sampler"] is None:
        given = case["dataset"]["args"].items()
        return ds.dataset_sampler(
            **{name: shard if value == "*" else value for name, value in given}, **common
        )
    return mindspore_cases.sampler(case, shard, SEEDED, **common)


def read(case: dict[str, Any], epoch: int, shard: int, *, quirks: bool) -> Any:
    """Our ids for one shard of a case in one epoch, or the error."""
    try:
        return sampler(case, shard, quirks=quirks).order(dataset(case), epoch)[:]
    except sk.SamplerkitError as error:
        return error


def is_recorded(ids: Any, recorded: Any) -> bool:
    """Whether ids are the recorded ones; of long lists a digest is recorded."""
    if isinstance(ids, sk.SamplerkitError):
        return False
    if isinstance(recorded, dict):
        digest = hashlib.sha256(ids.astype("<i8").tobytes()).hexdigest()
        return ids.size == recorded["n"] and digest == recorded["sha256_le_i64"]
    return bool(np.array_equal(ids, recorded))
