"""Results of a config, and samplers of every kind: as a config writes them, and as built by hand."""

from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import samplerkit as sk
from samplerkit.config.registry import SAMPLERS


def valid(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value is valid in a JSON Schema, by the package `jsonschema`."""
    return Draft202012Validator(schema).is_valid(value)


def refused(load: Callable[..., Any], *arguments: Any) -> sk.ConfigError:
    """The error of a wrong config: one line, with no error of pydantic or of YAML behind it."""
    with pytest.raises(sk.ConfigError) as caught:
        load(*arguments)
    error = caught.value
    assert "\n" not in str(error)
    assert len(str(error)) < 300
    assert str(error).startswith(f"{error.place}: ")
    assert error.__suppress_context__ or error.__context__ is None
    return error


SIZE = 30
LABELS = [number % 4 for number in range(SIZE)]
FILES = sk.Layout([5, 12, 0, 13])
TREE = sk.Layout.tree({"web": 5, "more": sk.Layout.tree({"code": sk.Layout([12, 0]), "books": 13})})
"""The same files, in parts."""

INNER = {"kind": "mixture", "sources": {"code": None, "books": {"kind": "repeat", "repeats": 2}}, "lanes": 2}
MIXTURE = {
    "kind": "mixture",
    "sources": {"web": {"kind": "random", "seed": 5}, "more": INNER},
    "num_samples": 25,
    "weights": {"web": 1, "more": 2.5},
}
EDITS = [{"at": 4, "weights": {"web": 3, "more": 0.5}, "without": [2, 20]}, {"at": 8, "skip": 2}]
RAMP = [{"at": 12, "global_batch": 4}]

MODES = ["global", "partial", "files", "infile", "adaptive"]
LINKS = [
    {"kind": "sequential"},
    {"kind": "sequential", "start_index": 3, "num_samples": 20},
    {"kind": "random"},
    {"kind": "random", "replacement": True, "num_samples": 9, "seed": 4},
    *(
        {"kind": "random", "shuffle": mode, "partial_size": 4, "adaptive_threshold": 8, "lanes": 3}
        for mode in MODES
    ),
    {"kind": "random", "shuffle": "partial", "partial_size": 4, "pools": 2},
    {"kind": "subset", "indices": [7, 2, 7]},
    {"kind": "subset_random", "indices": [9, 1, 5], "num_samples": 2, "seed": 3},
    {"kind": "weighted_random", "weights": [1, 0.5, 0.0, 2]},
    {"kind": "weighted_random", "weights": [1.0, 1.0, 5.0], "num_samples": 2, "replacement": False},
    {"kind": "pk", "num_val": 2, "shuffle": True, "labels": LABELS, "seed": 1},
    {"kind": "iter", "sampler": [5, 1, 8], "num_samples": 2},
    *(
        {"kind": "distributed", "num_shards": 3, "shard_id": 2, "shuffle": mode, "offset": 1}
        for mode in [True, False, *MODES]
    ),
    {"kind": "block", "pool": 2, "seed": 7, "windows_per_block": 1},
    {"kind": "distributed", "num_shards": "auto", "shard_id": "auto"},
    MIXTURE,
    {"kind": "mixture", "sources": {"web": None, "more": None}, "stop": "once", "shuffle": False},
    {"kind": "mixture", "sources": {"web": None}, "stop": "all", "passes": "restart", "seed": 3},
    {"kind": "mixture", "sources": {"web": None, "more": None}, "num_samples": 9, "max_passes": {"web": 1}},
    {"kind": "ledger", "edits": EDITS + RAMP, "child": MIXTURE},
]


def built(link):
    """The sampler of a section by its class."""
    given = {name: None if value == "auto" else value for name, value in link.items() if name != "kind"}
    if "sources" in given:
        given["sources"] = {name: source and built(source) for name, source in given["sources"].items()}
    if "edits" in given:
        given["edits"] = [sk.Edit(**edit) for edit in given["edits"]]
        given["sampler"] = built(given.pop("child"))
    return getattr(sk, SAMPLERS[link["kind"]].make.__name__)(**given)


def orders(sampler, dataset=TREE):
    return [list(sampler.order(dataset, epoch)) for epoch in range(3)]
