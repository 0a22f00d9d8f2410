"""A recorded case of MindSpore's, said in samplerkit.compat.mindspore."""

from __future__ import annotations

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


def num_shards(case: dict[str, Any]) -> int:
    """How many shards were recorded."""
    return mindspore_cases.num_shards(case)


def dataset(case: dict[str, Any]) -> Any:
    """What stands for the case's dataset: MindSpore's kinds are told by it."""
    if case["dataset"]["kind"] == "concat":
        return ConcatDataset([range(size) for size in case["dataset"]["parts"]])  # type: ignore[arg-type]
    return mindspore_cases.layout(case)


def sampler(case: dict[str, Any], shard: int, *, quirks: bool) -> sk.Sampler:
    """The chain of a case, for one shard."""
    common = {"seed": case["seed"], "quirks": quirks}
    if case["sampler"] is None:
        return ds.dataset_sampler(**_of_shard(case["dataset"]["args"], shard), **common)
    built = [_built(link, case, shard, common) for link in mindspore_cases.links(case)]
    for parent, child in zip(built[-2::-1], built[:0:-1], strict=True):
        parent.add_child(child)
    return built[0]


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


def _of_shard(arguments: dict[str, Any], shard: int) -> dict[str, Any]:
    return {name: shard if value == "*" else value for name, value in arguments.items()}


def _built(link: dict[str, Any], case: dict[str, Any], shard: int, common: dict[str, Any]) -> sk.Sampler:
    arguments = _of_shard(link["args"], shard)
    if link["type"] == "Iter":
        ids = arguments.pop("ids")
        is_sized = arguments.pop("sized", True)
        return ds.IterSampler(ids if is_sized else mindspore_cases.Unsized(ids), **arguments)
    if link["type"] == "PK":
        arguments["labels"] = case["dataset"]["labels"]
    if link["type"] in SEEDED:
        return SEEDED[link["type"]](**arguments, **common)
    return mindspore_cases.CLASSES[link["type"]](**arguments)
