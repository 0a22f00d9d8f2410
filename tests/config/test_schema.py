"""The JSON Schema of configs takes what `load_config` takes, and refuses wrong names and types."""

from __future__ import annotations

import json

import pytest
import yaml

import samplerkit as sk
from samplerkit.config.datasets import DATASETS
from samplerkit.config.loader import LOADER
from samplerkit.config.registry import BATCHES, SAMPLERS
from tests.config.json_schema import valid
from tests.config.links import LINKS


def test_the_schema_is_plain_json_and_follows_the_constructors():
    schema = sk.Config.json_schema()
    assert json.loads(json.dumps(schema)) == schema
    for kinds in (SAMPLERS, DATASETS, BATCHES):
        for kind in kinds:
            # Of a name that two sections have, each is told by its section.
            described = schema["$defs"].get(kind) or schema["$defs"][f"{kinds.section}__{kind}"]
            assert described["properties"].keys() - {"child"} == {"kind", *kinds[kind].names}
            assert described["description"] == (kinds[kind].make.__doc__ or "").partition("\n")[0]
    assert list(schema["$defs"]["loader"]["properties"]) == LOADER.names
    assert schema["$defs"]["random"]["properties"]["partial_size"]["default"] == 1_000_000


@pytest.mark.parametrize(("section", "built"), LINKS)
def test_the_schema_takes_what_load_config_takes(section, built):  # noqa: ARG001
    schema = sk.Config.json_schema()
    given = {name: value for name, value in section.items() if name != "kind"}
    target = f"samplerkit.{SAMPLERS[section['kind']].make.__name__}"
    for spelled in (
        section,
        {"_target_": target, **given},
        {"class_path": target, "init_args": given},
        {"kind": "random", "child": section},
    ):
        assert valid({"sampler": spelled}, schema, schema)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "sampler: {}",
        "sampler: {kind: randon}",
        "sampler: {kind: random, sed: 3}",
        "sampler: {kind: random, seed: '3'}",
        "sampler: {kind: random, seed: true}",
        "sampler: {kind: random, shuffle: globl}",
        "sampler: {kind: random, child: {kind: subset}}",
        "sampler: {kind: subset, indices: keep.txt}",
        "sampler: {kind: distributed, num_shards: all}",
        "sampler: {_target_: os.system}",
        "sampler: {class_path: samplerkit.RandomSampler, seed: 3}",
        "sampler: {kind: random}\nloader: {batchsize: 3}",
        "sampler: {kind: random}\ndataset: {kind: size}",
        "sampler: {kind: random}\nmore: 3",
    ],
)
def test_the_schema_refuses_wrong_names_and_types(text):
    schema = sk.Config.json_schema()
    assert not valid(yaml.safe_load(text), schema, schema)
