"""Configs: the objects that they make, arrays in files that they name, and round trips in each spelling."""

import copy
import json
import pickle
from collections import UserDict
from contextlib import nullcontext

import numpy as np
import pytest
import yaml

import samplerkit as sk
from samplerkit.config import reading
from samplerkit.config.datasets import DATASETS
from samplerkit.config.registry import BATCHES, SAMPLERS
from samplerkit.config.sections import LOADER, MIN_QUALITY, LoaderOptions
from tests.config.answers import FILES, LINKS, SIZE, built, orders, valid


def test_a_file_a_mapping_and_text_make_the_same_config(tmp_path):
    text = """
    dataset: {kind: layout, sizes: [5, 12, 0, 13]}
    sampler:
      kind: distributed
      shuffle: adaptive
      num_shards: auto
      shard_id: auto
    loader: {batch_size: 256, num_workers: 4}
    """
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8-sig")
    loaded = yaml.safe_load(text)
    configs = [
        sk.load_config(path),
        sk.load_config(str(path)),
        sk.load_config(loaded),
        sk.load_config(UserDict(loaded)),
        sk.Config.from_yaml(text),
    ]
    assert all(config == configs[0] and hash(config) == hash(configs[0]) for config in configs)
    assert configs[0].dataset == FILES
    assert configs[0].sampler.get_shuffle_mode() is sk.Shuffle.ADAPTIVE
    assert configs[0].loader == LoaderOptions(batch_size=256, num_workers=4)


def test_the_result_of_to_dict_can_be_changed_without_changing_the_config():
    config = sk.load_config({"sampler": {"kind": "subset", "indices": [1, 2]}})
    config.to_dict()["sampler"]["indices"].append(3)
    assert config.to_dict()["sampler"]["indices"] == [1, 2]


def test_writing_default_values_does_not_change_the_config():
    section = "{kind: distributed, shuffle: global, num_shards: auto, offset: -1, seed: 0, child: null}"
    config = sk.Config.from_yaml(f"sampler: {section}\nloader: {{batch_size: 1, timeout: 0}}")
    assert config == sk.Config.from_yaml("sampler: {kind: distributed, shuffle: true}")
    assert config.to_dict() == {"sampler": {"kind": "distributed"}}


def test_a_config_can_be_pickled_and_copied():
    config = sk.Config.from_yaml("sampler: {kind: random, child: {kind: subset, indices: [3, 4]}}")
    for other in (pickle.loads(pickle.dumps(config)), copy.deepcopy(config)):  # noqa: S301  # our own bytes
        assert other == config
        assert orders(other.sampler) == orders(config.sampler)


ARRAYS = {
    "subset": ("indices", np.array([4, 2, 9])),
    "subset_random": ("indices", np.array([4, 2, 9], dtype=np.uint8)),
    "weighted_random": ("weights", np.array([0.0, 1.0, 3.0], dtype=np.float32)),
    "pk": ("labels", np.array(["a", "b", "c"] * 10)),
    "iter": ("sampler", np.array([4, 2, 9])),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_an_array_from_a_file_equals_one_in_the_config(kind, tmp_path):
    name, array = ARRAYS[kind]
    path = tmp_path / "array.npy"
    np.save(path, array)
    more = {"num_val": 2} if kind == "pk" else {}
    from_file = sk.load_config({"sampler": {"kind": kind, name: str(path), **more}})
    written_out = sk.load_config({"sampler": {"kind": kind, name: array.tolist(), **more}})
    given = sk.load_config({"sampler": {"kind": kind, name: array, **more}})
    assert orders(from_file.sampler) == orders(written_out.sampler) == orders(given.sampler)
    assert from_file.to_dict()["sampler"][name] == str(path)
    assert given == written_out
    assert sk.load_config(from_file.to_dict()) == from_file


def test_a_path_in_a_mapping_or_in_text_starts_from_the_working_directory(tmp_path, monkeypatch):
    np.save(tmp_path / "keep.npy", [3, 1])
    monkeypatch.chdir(tmp_path)
    section = {"kind": "subset", "indices": "keep.npy"}
    config = sk.load_config({"sampler": section})
    assert config.to_dict()["sampler"] == section
    assert config == sk.Config.from_yaml("sampler: {kind: subset, indices: keep.npy}")
    assert list(config.sampler.order(5)) == [3, 1]


SCHEMA = sk.Config.json_schema()


@pytest.mark.parametrize(
    "spelled",
    [
        "{kind: random, seed: 1, child: %s}",
        "{_target_: samplerkit.RandomSampler, seed: 1, child: %s}",
        "{class_path: samplerkit.RandomSampler, init_args: {seed: 1, child: %s}}",
    ],
)
def test_a_hundred_nested_samplers_are_read_and_written(spelled):
    text = "null"
    for _ in range(100):
        text = spelled % text
    config = sk.Config.from_yaml(f"sampler: {text}")
    assert sorted(config.sampler.order(SIZE)) == list(range(SIZE))
    assert sk.load_config(config.to_dict()) == config
    assert json.dumps(config.to_dict()).count("random") == 100


def test_a_mapping_may_have_tuples_ranges_numpy_values_paths_and_modes(tmp_path):
    np.save(tmp_path / "w.npy", np.ones(5))
    weights = {"kind": "weighted_random", "weights": tmp_path / "w.npy", "num_samples": 20}
    subset = {"kind": "subset", "indices": range(5, 15), "child": weights}
    plain = {"kind": "random", "seed": 3, "child": {**subset, "indices": [*range(5, 15)]}}
    plain["child"]["child"] = {**weights, "weights": str(tmp_path / "w.npy")}
    others = {"seed": np.int64(3), "replacement": np.bool_(False), "shuffle": sk.Shuffle.GLOBAL}
    dataset = {"kind": "layout", "sizes": np.array([20, 10])}
    config = sk.load_config({"dataset": dataset, "sampler": {"kind": "random", **others, "child": subset}})
    assert config.to_dict() == {"dataset": {"kind": "layout", "sizes": [20, 10]}, "sampler": plain}
    assert sk.load_config(config.to_dict()) == config


def test_aliases_are_read_up_to_a_number_of_values(monkeypatch):
    text = "sampler: {kind: subset, indices: &i [3, 4], child: {kind: subset, indices: *i}}"
    config = sk.Config.from_yaml(text.replace("*i", "[0, 1, 2, 5, 6]"))
    assert list(config.sampler.order(SIZE)) == [5, 6]
    for most in (3, 2):
        monkeypatch.setattr(reading, "MAX_REPEATS", most)  # a list and its two numbers come again
        with (
            nullcontext() if most == 3 else pytest.raises(sk.ConfigError, match="repeats more than 2 values")
        ):
            assert sk.Config.from_yaml(text).to_dict()["sampler"]["child"]["indices"] == [3, 4]


def test_the_schema_is_plain_json_and_follows_the_constructors():
    schema = sk.Config.json_schema()
    assert json.loads(json.dumps(schema)) == schema
    assert "null" not in json.dumps(schema["$defs"]["random"]["properties"]["shuffle"])
    for kinds in (SAMPLERS, DATASETS, BATCHES):
        for kind in kinds:
            # A name that two sections have has the section in front of it.
            described = schema["$defs"].get(kind) or schema["$defs"][f"{kinds.section}__{kind}"]
            assert described["properties"].keys() - {"child"} == {"kind", *kinds[kind].names}
            assert described["description"] == (kinds[kind].make.__doc__ or "").partition("\n")[0]
    for section in (LOADER, MIN_QUALITY):
        assert list(schema["$defs"][section.name]["properties"]) == section.names
    assert {"type": "number"} in schema["properties"]["min_quality"]["anyOf"]
    partial_size = schema["$defs"]["random"]["properties"]["partial_size"]
    assert partial_size == {"default": 1_000_000, "type": "integer"}  # titles would repeat the names


@pytest.mark.parametrize("section", LINKS, ids=lambda link: json.dumps(link)[:70])
def test_each_spelling_of_a_sampler_gives_the_one_built_by_hand(section):
    given = {name: value for name, value in section.items() if name != "kind"}
    target = f"samplerkit.{SAMPLERS[section['kind']].make.__name__}"
    spellings = [section, {"_target_": target, **given}, {"class_path": target}]
    spellings[2] |= {"init_args": given} if given else {}
    for spelled in (*spellings, {"kind": "random", "child": section}):
        assert valid({"sampler": spelled}, SCHEMA)
    plain, hydra, lightning = (sk.load_config({"sampler": spelled}) for spelled in spellings)
    assert plain == hydra == lightning
    assert hydra.to_dict()["sampler"]["kind"] == section["kind"]
    written = plain.to_dict()
    again = sk.Config.from_yaml(yaml.safe_dump(written))
    assert again.to_dict() == written
    assert again == sk.Config.from_yaml(json.dumps(written)) == plain
    assert orders(plain.sampler) == orders(again.sampler) == orders(built(section))


@pytest.mark.parametrize(
    "text",
    [
        "sampler: {kind: randon}",
        "sampler: {kind: random, sed: 3}",
        "sampler: {kind: random, shuffle: globl}",
        "sampler: {kind: random, child: {kind: subset}}",
        "sampler: {kind: distributed, num_shards: all}",
        "sampler: {_target_: os.system}",
        "sampler: {class_path: samplerkit.RandomSampler, seed: 3}",
        "sampler: {kind: random}\nloader: {batchsize: 3}",
        "sampler: {kind: random}\ndataset: {kind: size}",
    ],
)
def test_the_schema_refuses_wrong_names_and_types(text):
    assert not valid(yaml.safe_load(text), SCHEMA)


def test_a_validator_checks_each_nested_sampler_once():
    section = {"kind": "random", "sed": 3}
    for _ in range(20):
        section = {"kind": "random", "child": section}
    # By a choice among 19 kinds at each level it would be checked 19 ** 20 times.
    assert not valid({"sampler": section}, SCHEMA)


def test_numbers_in_a_mapping_are_written_as_they_were():
    sampler = {"kind": "mixture", "sources": {"web": None, "code": None}, "weights": {"web": 3, "code": 1}}
    assert repr(sk.load_config({"sampler": sampler}).to_dict()["sampler"]) == repr(sampler)
