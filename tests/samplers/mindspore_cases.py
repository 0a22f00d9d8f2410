"""The recorded runs of MindSpore 2.10.0, and the samplers of a recorded case in samplerkit."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import samplerkit as sk
from tests.testing.links import Backwards

DATA = Path(__file__).parents[1] / "data"


def recorded(name: str) -> list[dict[str, Any]]:
    """Reads the cases of `golden` or `errors`."""
    with gzip.open(DATA / f"mindspore_{name}.json.gz", "rt", encoding="utf-8") as file:
        cases: list[dict[str, Any]] = json.load(file)["cases"]
    return cases


class EvenOdd(sk.Sampler):
    """The recording's CustomEvenOdd."""

    def __iter__(self):
        return iter([*range(0, self.dataset_size, 2), *range(1, self.dataset_size, 2)])


@dataclass(frozen=True)
class Unsized:
    """An iterable without a length."""

    ids: list[int]

    def __iter__(self):
        return iter(self.ids)


CLASSES = {
    "Sequential": sk.SequentialSampler,
    "Random": sk.RandomSampler,
    "Subset": sk.SubsetSampler,
    "SubsetRandom": sk.SubsetRandomSampler,
    "WeightedRandom": sk.WeightedRandomSampler,
    "PK": sk.PKSampler,
    "Distributed": sk.DistributedSampler,
    "CustomReverse": Backwards,
    "CustomEvenOdd": EvenOdd,
}


def links(case: dict[str, Any]) -> list[dict[str, Any]]:
    """The samplers of a case, outermost first; one made of the dataset's arguments where it names none."""
    link = case["sampler"] or _of_dataset_arguments(case["dataset"]["args"])
    chain = []
    while link:
        chain.append(link)
        link = link.get("child")
    return chain


def num_shards(case: dict[str, Any]) -> int:
    """How many shards were recorded."""
    return next((s["args"]["num_shards"] for s in links(case) if s["args"].get("shard_id") == "*"), 1)


def sampler(
    case: dict[str, Any], shard: int, seeded: dict[str, Any] | None = None, **common: Any
) -> sk.Sampler:
    """The chain of a case, for one shard; `seeded` are made in place of those of that name, with `common`."""
    built = [_built(link, case["dataset"], shard, seeded or {}, common) for link in links(case)]
    for parent, child in zip(built[-2::-1], built[:0:-1], strict=True):
        parent.add_child(child)
    return built[0]


def recordings(case: dict[str, Any]) -> Iterator[tuple[int, int, Any]]:
    """Every epoch, shard, and recorded ids or None."""
    for epoch in range(case["num_epochs"]):
        for shard in range(num_shards(case)):
            yield epoch, shard, case["epochs"] and case["epochs"][epoch][shard]


def layout(case: dict[str, Any]) -> sk.Layout:
    """The layout of a case's dataset: what MindSpore calls mappable has no files."""
    dataset = case["dataset"]
    if dataset["kind"] == "mappable":
        return sk.Layout(dataset["n"])
    if dataset["kind"] == "labelled":
        return sk.Layout(len(dataset["labels"]))
    return sk.Layout(dataset["file_sizes"] if dataset["kind"] == "mindrecord" else dataset["parts"])


def is_shuffled(case: dict[str, Any]) -> bool:
    """Whether a random order is in the chain."""
    return any(
        link["type"] in {"Random", "SubsetRandom", "WeightedRandom", "PK"}
        or (link["type"] == "Distributed" and link["args"].get("shuffle", True) not in {False, "false"})
        for link in links(case)
    )


def draws_with_replacement(case: dict[str, Any]) -> bool:
    """Whether the same sample may be drawn twice."""
    return any(link["args"].get("replacement") or link["type"] == "PK" for link in links(case))


def _of_dataset_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """The sampler that a MindSpore dataset makes of its own arguments."""
    shuffle = arguments.get("shuffle", True)
    common = {"num_samples": arguments.get("num_samples")}
    if "num_shards" in arguments:
        shard = {"num_shards": arguments["num_shards"], "shard_id": arguments["shard_id"]}
        return {"type": "Distributed", "args": {**shard, "shuffle": shuffle, **common}}
    if shuffle in {False, "false"}:
        return {"type": "Sequential", "args": common}
    return {"type": "Random", "args": {"shuffle": shuffle, **common}}


def _built(
    link: dict[str, Any],
    dataset: dict[str, Any],
    shard: int,
    seeded: dict[str, Any],
    common: dict[str, Any],
) -> sk.Sampler:
    arguments = dict(link["args"])
    if arguments.get("shard_id") == "*":
        arguments["shard_id"] = shard
    if link["type"] == "Iter":
        ids = arguments.pop("ids")
        is_sized = arguments.pop("sized", True)
        return sk.IterSampler(ids if is_sized else Unsized(ids), **arguments)
    if link["type"] == "Distributed" and dataset["kind"] == "concat":
        # RULES: under ConcatDataset, global row g goes to shard g mod S, without padding: our offset 0.
        arguments.setdefault("offset", 0)
    if link["type"] == "PK":
        arguments["labels"] = dataset["labels"]
    if link["type"] in seeded:
        built: sk.Sampler = seeded[link["type"]](**arguments, **common)
        return built
    return CLASSES[link["type"]](**arguments)
