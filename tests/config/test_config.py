"""Configs: what they say becomes live objects, and is said again."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import json
import pickle
from collections import UserDict
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pytest
import torch.utils.data
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

import samplerkit as sk
from samplerkit.config.datasets import DATASETS
from samplerkit.config.derive import argument_names, default_of
from samplerkit.config.loader import LOADER, LoaderOptions
from samplerkit.config.registry import SAMPLERS
from tests.config.json_schema import valid

SIZE = 30
LABELS = [number % 4 for number in range(SIZE)]
FILES = sk.Layout([5, 12, 0, 13])

MODES = ["global", "partial", "files", "infile", "adaptive"]
LINKS = [
    ({"kind": "sequential"}, sk.SequentialSampler),
    ({"kind": "sequential", "start_index": 3, "num_samples": 20}, lambda: sk.SequentialSampler(3, 20)),
    ({"kind": "random"}, sk.RandomSampler),
    (
        {"kind": "random", "replacement": True, "num_samples": 9, "seed": 4},
        lambda: sk.RandomSampler(True, 9, seed=4),
    ),
    *(
        (
            {"kind": "random", "shuffle": mode, "partial_size": 4, "adaptive_threshold": 8, "lanes": 3},
            lambda mode=mode: sk.RandomSampler(shuffle=mode, partial_size=4, adaptive_threshold=8, lanes=3),
        )
        for mode in MODES
    ),
    (
        {"kind": "random", "shuffle": "partial", "partial_size": 4, "pools": 2},
        lambda: sk.RandomSampler(shuffle="partial", partial_size=4, pools=2),
    ),
    ({"kind": "subset", "indices": [7, 2, 7]}, lambda: sk.SubsetSampler([7, 2, 7])),
    (
        {"kind": "subset_random", "indices": [9, 1, 5], "num_samples": 2, "seed": 3},
        lambda: sk.SubsetRandomSampler([9, 1, 5], 2, seed=3),
    ),
    (
        {"kind": "weighted_random", "weights": [1, 0.5, 0.0, 2]},
        lambda: sk.WeightedRandomSampler([1, 0.5, 0.0, 2]),
    ),
    (
        {"kind": "weighted_random", "weights": [1.0, 1.0, 5.0], "num_samples": 2, "replacement": False},
        lambda: sk.WeightedRandomSampler([1.0, 1.0, 5.0], 2, False),
    ),
    (
        {"kind": "pk", "num_val": 2, "shuffle": True, "labels": LABELS, "seed": 1},
        lambda: sk.PKSampler(2, None, True, labels=LABELS, seed=1),
    ),
    ({"kind": "iter", "sampler": [5, 1, 8], "num_samples": 2}, lambda: sk.IterSampler([5, 1, 8], 2)),
    *(
        (
            {"kind": "distributed", "num_shards": 3, "shard_id": 2, "shuffle": mode, "offset": offset},
            lambda mode=mode, offset=offset: sk.DistributedSampler(3, 2, mode, offset=offset),
        )
        for mode, offset in itertools.product([True, False, *MODES], [-1, 1])
    ),
    ({"kind": "distributed", "num_shards": "auto", "shard_id": "auto"}, sk.DistributedSampler),
]
OURS = sorted({link[0]["kind"] for link in LINKS})


def orders(sampler, dataset=FILES):
    return [list(sampler.order(dataset, epoch)) for epoch in range(3)]


# What a config says


@pytest.mark.parametrize(("section", "built"), LINKS, ids=[json.dumps(link[0])[:70] for link in LINKS])
def test_the_order_of_a_config_is_that_of_the_sampler_built_by_hand(section, built):
    assert orders(sk.load_config({"sampler": section}).sampler) == orders(built())


def test_a_file_a_mapping_and_text_say_the_same(tmp_path):
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


def test_sections_that_are_left_out_are_none_or_as_by_default():
    config = sk.Config.from_yaml("sampler: {kind: random}\nloader:\ndataset:\n")
    assert config.dataset is None
    assert config.loader == LoaderOptions()
    assert config.to_dict() == {"sampler": {"kind": "random"}}


def test_a_dataset_is_a_size_or_files_with_names():
    random = {"kind": "random"}
    assert sk.load_config({"sampler": random, "dataset": {"kind": "size", "size": 7}}).dataset == sk.Layout(7)
    named = {"kind": "layout", "sizes": [3, 4], "names": ["a", "b"]}
    assert sk.load_config({"sampler": random, "dataset": named}).dataset == sk.Layout([3, 4], ["a", "b"])


def test_auto_leaves_the_shard_to_the_running_job(monkeypatch):
    config = sk.Config.from_yaml("sampler: {kind: distributed, num_shards: auto, shard_id: auto}")
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "3")
    assert config.sampler.world() == sk.World(4, 3)


def test_a_config_and_its_loader_options_are_frozen():
    config = sk.Config.from_yaml("sampler: {kind: random}")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.sampler = None
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.loader.batch_size = 3


def test_what_to_dict_gives_can_be_changed_without_changing_the_config():
    config = sk.load_config({"sampler": {"kind": "subset", "indices": [1, 2]}})
    config.to_dict()["sampler"]["indices"].append(3)
    assert config.to_dict()["sampler"]["indices"] == [1, 2]


def test_configs_that_differ_are_not_equal():
    texts = ["{kind: random}", "{kind: random, seed: 1}", "{kind: sequential}", "{kind: iter, sampler: [1]}"]
    configs = [sk.Config.from_yaml(f"sampler: {text}") for text in texts]
    assert all(one != other for one, other in itertools.combinations(configs, 2))
    assert configs[0] != configs[0].to_dict()


def test_what_is_said_as_by_default_is_as_if_it_were_not_said():
    said = "{kind: distributed, shuffle: global, num_shards: auto, offset: -1, seed: 0, child: null}"
    config = sk.Config.from_yaml(f"sampler: {said}\nloader: {{batch_size: 1, timeout: 0}}")
    assert config == sk.Config.from_yaml("sampler: {kind: distributed, shuffle: true}")
    assert config.to_dict() == {"sampler": {"kind": "distributed"}}


def test_a_config_can_be_pickled_and_copied():
    config = sk.Config.from_yaml("sampler: {kind: random, child: {kind: subset, indices: [3, 4]}}")
    for other in (pickle.loads(pickle.dumps(config)), copy.deepcopy(config)):  # noqa: S301  # our own bytes
        assert other == config
        assert orders(other.sampler) == orders(config.sampler)


# Round trips


@st.composite
def chains(draw):
    """A legal chain of one to six links: as a config, and built by hand."""
    innermost = st.sampled_from(LINKS)
    section, build = draw(innermost.filter(lambda link: link[0].get("shuffle") != "partial"))
    sampler = build()
    for _ in range(draw(st.integers(0, 5))):
        count, seed = draw(st.integers(1, 20)), draw(st.integers(0, 2**64 - 1))
        shards = draw(st.integers(1, 3))
        above, parent = draw(
            st.sampled_from(
                [
                    ({"kind": "sequential", "num_samples": count}, sk.SequentialSampler(0, count)),
                    ({"kind": "random", "seed": seed}, sk.RandomSampler(seed=seed)),
                    ({"kind": "subset", "indices": [0] * count}, sk.SubsetSampler([0] * count)),
                    (
                        {"kind": "weighted_random", "weights": [0.5], "num_samples": count, "seed": seed},
                        sk.WeightedRandomSampler([0.5], count, seed=seed),
                    ),
                    ({"kind": "iter", "sampler": [0, 0]}, sk.IterSampler([0, 0])),
                    (
                        {"kind": "distributed", "num_shards": shards, "shard_id": 0, "seed": seed},
                        sk.DistributedSampler(shards, 0, seed=seed),
                    ),
                ]
            )
        )
        parent.add_child(sampler)
        section, sampler = {**above, "child": section}, parent
    return section, sampler


@settings(max_examples=100, deadline=None, derandomize=True)
@given(chains(), st.sampled_from([None, {"batch_size": 3}, {"num_workers": 2, "timeout": 5}]))
def test_every_chain_round_trips_through_dict_yaml_and_json(chain, loader):
    section, sampler = chain
    config = sk.load_config({"sampler": section, "loader": loader})
    written = config.to_dict()
    assert sk.load_config(written) == config
    assert sk.load_config(written).to_dict() == written
    assert sk.Config.from_yaml(yaml.safe_dump(written)) == config
    assert sk.Config.from_yaml(json.dumps(written)) == config
    assert valid(written, sk.Config.json_schema(), sk.Config.json_schema())
    assert orders(sk.load_config(written).sampler) == orders(sampler)


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


def test_tuples_ranges_numpy_values_paths_and_modes_are_welcome_in_a_mapping(tmp_path):
    np.save(tmp_path / "w.npy", np.ones(5))
    config = sk.load_config(
        {
            "dataset": {"kind": "layout", "sizes": np.array([20, 10])},
            "sampler": {
                "kind": "random",
                "seed": np.int64(3),
                "replacement": np.bool_(False),
                "shuffle": sk.Shuffle.GLOBAL,
                "child": {
                    "kind": "subset",
                    "indices": range(5, 15),
                    "child": {"kind": "weighted_random", "weights": tmp_path / "w.npy", "num_samples": 20},
                },
            },
        }
    )
    assert config.to_dict() == {
        "dataset": {"kind": "layout", "sizes": [20, 10]},
        "sampler": {
            "kind": "random",
            "seed": 3,
            "child": {
                "kind": "subset",
                "indices": list(range(5, 15)),
                "child": {
                    "kind": "weighted_random",
                    "weights": str(tmp_path / "w.npy"),
                    "num_samples": 20,
                },
            },
        },
    }
    assert sk.load_config(config.to_dict()) == config


def test_an_alias_stands_for_what_it_names():
    text = "sampler: {kind: subset, indices: &i [3, 4], child: {kind: subset, indices: *i}}"
    config = sk.Config.from_yaml(text.replace("*i", "[0, 1, 2, 5, 6]"))
    assert list(config.sampler.order(SIZE)) == [5, 6]
    assert sk.Config.from_yaml(text).to_dict()["sampler"]["child"]["indices"] == [3, 4]


# .npy files


ARRAYS = {
    "subset": ("indices", np.array([4, 2, 9])),
    "subset_random": ("indices", np.array([4, 2, 9], dtype=np.uint8)),
    "weighted_random": ("weights", np.array([0.0, 1.0, 3.0], dtype=np.float32)),
    "pk": ("labels", np.array(["a", "b", "c"] * 10)),
    "iter": ("sampler", np.array([4, 2, 9])),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_an_array_from_a_file_is_as_one_written_out(kind, tmp_path):
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


def test_a_path_starts_from_the_folder_of_the_config_file(tmp_path, monkeypatch):
    (tmp_path / "configs").mkdir()
    np.save(tmp_path / "configs" / "keep.npy", [3, 1])
    (tmp_path / "configs" / "run.yaml").write_text("sampler: {kind: subset, indices: keep.npy}")
    monkeypatch.chdir(tmp_path)
    for path in (Path("configs/run.yaml"), tmp_path / "configs" / "run.yaml"):
        config = sk.load_config(path)
        assert list(config.sampler.order(5)) == [3, 1]
        assert sk.load_config(config.to_dict()) == config


def test_a_path_in_a_mapping_or_in_text_starts_from_the_working_directory(tmp_path, monkeypatch):
    np.save(tmp_path / "keep.npy", [3, 1])
    monkeypatch.chdir(tmp_path)
    section = {"kind": "subset", "indices": "keep.npy"}
    config = sk.load_config({"sampler": section})
    assert config.to_dict()["sampler"] == section
    assert config == sk.Config.from_yaml("sampler: {kind: subset, indices: keep.npy}")
    assert list(config.sampler.order(5)) == [3, 1]


# Hydra and LightningCLI


@pytest.mark.parametrize("kind", OURS)
def test_hydra_and_lightning_spellings_name_every_sampler_of_ours(kind):
    section = next(link[0] for link in LINKS if link[0]["kind"] == kind)
    given = {name: value for name, value in section.items() if name != "kind"}
    target = f"samplerkit.{SAMPLERS[kind].make.__name__}"
    plain = sk.load_config({"sampler": section})
    hydra = sk.load_config({"sampler": {"_target_": target, **given}})
    lightning = sk.load_config({"sampler": {"class_path": target, "init_args": given}})
    assert plain == hydra == lightning
    assert hydra.to_dict()["sampler"]["kind"] == kind


def test_the_spellings_mix_along_a_chain():
    config = sk.load_config(
        {
            "sampler": {
                "_target_": "samplerkit.RandomSampler",
                "child": {
                    "class_path": "samplerkit.SubsetSampler",
                    "init_args": {"indices": [5, 6], "child": {"kind": "sequential", "start_index": 2}},
                },
            }
        }
    )
    assert sorted(config.sampler.order(SIZE)) == [7, 8]
    assert sk.load_config({"sampler": {"class_path": "samplerkit.RandomSampler"}}).sampler is not None


# A user's samplers


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@sk.register_sampler("tests_strided")
class Strided(sk.Sampler):
    """Every so many samples."""

    def __init__(
        self,
        step: int,
        num_samples: int | None = None,
        *,
        starts: Sequence[int] | None = None,
        colour: Colour = Colour.RED,
        pair: tuple[int, int] = (0, 0),
        mode: Literal["up", "down"] = "up",
        ratio: Annotated[float, Field(gt=0)] = 1.0,
        either: int | str = 0,
        model_config: str = "",
        copy: bool = False,
    ) -> None:
        super().__init__(num_samples)
        if step < 1:
            raise ValueError(f"a step of {step} goes nowhere")
        self.step, self.starts, self.colour, self.pair = step, starts, colour, pair
        self.rest = (mode, ratio, either, model_config, copy)

    def draw(self, layout, context):
        return np.arange(0, len(layout), self.step)


STRIDED = {
    "kind": "tests_strided",
    "step": 7,
    "starts": [1, 2],
    "colour": "blue",
    "pair": [3, 4],
    "mode": "down",
    "ratio": 2,
    "either": "x",
    "model_config": "y",
    "copy": True,
}


def test_a_registered_sampler_is_read_by_its_own_signature():
    config = sk.load_config({"sampler": {"kind": "random", "child": STRIDED}})
    strided = config.sampler.get_child()
    assert isinstance(strided, Strided)
    assert (strided.starts, strided.colour, strided.pair) == ([1, 2], Colour.BLUE, (3, 4))
    assert strided.rest == ("down", 2.0, "x", "y", True)
    assert sorted(config.sampler.order(SIZE)) == [0, 7, 14, 21, 28]
    assert config.to_dict()["sampler"]["child"] == STRIDED
    assert valid(config.to_dict(), sk.Config.json_schema(), sk.Config.json_schema())


def test_a_registered_sampler_is_named_by_its_module_and_name_in_the_other_spellings():
    target = f"{Strided.__module__}.Strided"
    for section in (
        {"_target_": target, "step": 7},
        {"class_path": target, "init_args": {"step": 7}},
    ):
        assert sk.load_config({"sampler": section}).to_dict()["sampler"] == {
            "kind": "tests_strided",
            "step": 7,
        }
    with pytest.raises(sk.ConfigError, match="names no class"):
        sk.load_config({"sampler": {"_target_": "samplerkit.Strided", "step": 7}})


@pytest.mark.parametrize(
    ("given", "place", "fragment"),
    [
        ({}, "sampler.step", "is missing"),
        (
            {"step": 0},
            "sampler",
            "refuses its arguments (ValueError: a step of 0 goes nowhere)",
        ),
        ({"step": "7"}, "sampler.step", "write 7 without quotes"),
        ({"step": 7, "stride": 7}, "sampler.stride", "is no key of tests_strided"),
        ({"step": 7, "colour": "pink"}, "sampler.colour", "must be 'red' or 'blue'"),
        ({"step": 7, "pair": [1]}, "sampler.pair[1]", "is missing"),
        ({"step": 7, "pair": [1, "2"]}, "sampler.pair[1]", "must be a valid integer"),
        ({"step": 7, "mode": "left"}, "sampler.mode", "must be 'up' or 'down'"),
        ({"step": 7, "ratio": 0}, "sampler.ratio", "must be greater than 0"),
        ({"step": 7, "either": 1.5}, "sampler.either", "must be a valid integer or a valid string"),
        ({"step": 7, "num_samples": -1}, "sampler.num_samples", "must be between 0"),
    ],
)
def test_a_mistake_in_a_registered_sampler_is_as_clear_as_in_ours(given, place, fragment):
    with pytest.raises(sk.ConfigError) as caught:
        sk.load_config({"sampler": {"kind": "tests_strided", **given}})
    assert caught.value.place == place
    assert fragment in str(caught.value)


def test_a_sampler_written_the_way_of_mindspore_is_registered_by_a_call():
    class Backwards(sk.Sampler):
        def __iter__(self):
            yield from range(self.dataset_size - 1, -1, -1)

    assert sk.register_sampler("tests_backwards", Backwards) is Backwards
    config = sk.load_config({"sampler": {"kind": "tests_backwards", "num_samples": 3}})
    assert list(config.sampler.order(5)) == [4, 3, 2]


def test_a_name_that_is_taken_a_class_that_is_no_sampler_and_a_signature_without_names_are_refused():
    class Fine(sk.Sampler):
        pass

    class Open(sk.Sampler):
        def __init__(self, **options: int) -> None:
            pass

    class Clash(sk.Sampler):
        def __init__(self, child: int) -> None:
            pass

    class Unknown(sk.Sampler):
        def __init__(self, other: NotThere) -> None:  # noqa: F821
            pass

    for kind, sampler, error, fragment in [
        ("random", Fine, ValueError, "kind: is taken"),
        ("tests_strided", Strided, ValueError, "kind: is taken"),
        ("", Fine, ValueError, "kind: must be a word"),
        (3, Fine, TypeError, "kind: must be a string"),
        ("tests_bad", int, TypeError, "sampler: must be a subclass"),
        ("tests_bad", Fine(), TypeError, "sampler: must be a subclass"),
        ("tests_bad", Open, TypeError, "options: cannot be given by name"),
        ("tests_bad", Clash, ValueError, "child: means something else"),
        ("tests_bad", Unknown, TypeError, "type hints: cannot be understood"),
    ]:
        with pytest.raises(error, match=fragment) as caught:
            sk.register_sampler(kind, sampler)
        assert isinstance(caught.value, sk.SamplerkitError)
    with pytest.raises(TypeError, match="must be a subclass"):
        sk.register_sampler("tests_bad")(len)
    assert "tests_bad" not in list(SAMPLERS)


# One definition of each argument


@pytest.mark.parametrize("kind", [*OURS, "tests_strided"])
def test_names_and_defaults_are_those_of_the_constructor(kind):
    constructor = SAMPLERS[kind]
    parameters = inspect.signature(constructor.make).parameters
    assert argument_names(constructor.model) == list(parameters)
    for name, parameter in parameters.items():
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        assert default_of(constructor.model, name) is default


# The schema


def test_the_schema_is_plain_json_and_follows_the_constructors():
    schema = sk.Config.json_schema()
    assert json.loads(json.dumps(schema)) == schema
    for kinds in (SAMPLERS, DATASETS):
        for kind in kinds:
            described = schema["$defs"][kind]
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


# The DataLoader


class Squares(torch.utils.data.Dataset):
    """A map-style dataset with whole batches."""

    targets = LABELS

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        return index

    def __getitems__(self, indices):
        return [int(index) for index in indices]


def test_the_dataloader_reads_in_the_order_of_the_sampler_epoch_after_epoch():
    config = sk.Config.from_yaml("sampler: {kind: random, seed: 5}\nloader: {batch_size: 8, drop_last: true}")
    loader = config.dataloader(Squares(), sk.World(2, 1))
    for epoch in range(3):
        expected = list(config.sampler.order(SIZE, epoch, world=sk.World(2, 1)))[:8]
        assert torch.cat(list(loader)).tolist() == expected


def test_the_dataloader_is_torchs_own_with_the_options_of_the_config():
    config = sk.Config.from_yaml(
        "sampler: {kind: sequential}\n"
        "loader: {batch_size: 5, num_workers: 1, prefetch_factor: 3, persistent_workers: true, timeout: 30}"
    )
    loader = config.dataloader(Squares(), sk.World(1, 0))
    assert type(loader) is torch.utils.data.DataLoader
    assert isinstance(loader.batch_sampler, sk.TorchBatchSampler)
    options = ("num_workers", "prefetch_factor", "persistent_workers", "timeout", "pin_memory")
    assert [getattr(loader, name) for name in options] == [1, 3, True, 30, False]
    assert torch.cat(list(loader)).tolist() == list(range(SIZE))


def test_a_config_makes_the_loader_that_can_be_resumed():
    config = sk.Config.from_yaml(
        "dataset: {kind: layout, sizes: [10, 0, 20]}\n"
        "sampler: {kind: random, shuffle: files, seed: 3}\n"
        "loader: {batch_size: 4, tail: ragged, num_workers: 1, after_break: continue}"
    )
    with config.make_loader(Squares(), sk.World(1, 0)) as loader:
        assert (loader.tail, loader.num_workers) == ("ragged", 1)
        first = [next(iter(loader)).tolist() for _ in range(3)]
    resumed = sk.load_config(config.to_dict()).make_loader(Squares(), sk.World(1, 0), num_workers=0)
    resumed.load_state_dict(loader.state_dict())
    rest = [batch.tolist() for batch in resumed]
    assert sum(first + rest, []) == list(config.sampler.order(config.dataset))


@pytest.mark.parametrize(
    "option", ["tail: drop", "after_break: continue", "bad_samples: skip", "run_ahead: true", "device: cpu"]
)
def test_a_plain_dataloader_refuses_what_it_does_not_know(option):
    config = sk.Config.from_yaml(f"sampler: {{kind: random}}\nloader: {{batch_size: 4, {option}}}")
    with pytest.raises(ValueError, match="make_loader"):
        config.dataloader(Squares())


def test_the_layout_in_the_config_tells_in_which_files_the_dataset_lies():
    config = sk.Config.from_yaml(
        "dataset: {kind: layout, sizes: [10, 0, 20]}\nsampler: {kind: random, shuffle: files}"
    )
    loader = config.dataloader(Squares(), sk.World(1, 0))
    assert torch.cat(list(loader)).tolist() == list(config.sampler.order(config.dataset))


def test_a_sampler_asks_the_dataset_for_its_labels_though_the_config_tells_the_files():
    config = sk.Config.from_yaml("dataset: {kind: layout, sizes: [10, 20]}\nsampler: {kind: pk, num_val: 1}")
    drawn = torch.cat(list(config.dataloader(Squares(), sk.World(1, 0)))).tolist()
    assert [LABELS[index] for index in drawn] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("said", "dataset"),
    [
        ("{kind: size, size: 29}", Squares()),
        ("{kind: layout, sizes: [10, 21]}", Squares()),
        ("{kind: layout, sizes: [10, 20]}", torch.utils.data.ConcatDataset([range(20), range(10)])),
    ],
)
def test_a_dataset_that_contradicts_the_config_is_refused(said, dataset):
    config = sk.Config.from_yaml(f"sampler: {{kind: random}}\ndataset: {said}")
    with pytest.raises(sk.ConfigError, match="dataset: says"):
        config.dataloader(dataset)


def test_a_dataset_that_agrees_with_the_config_or_has_no_length_is_read():
    class Endless(torch.utils.data.Dataset):
        def __getitem__(self, index):
            return index

    for said, dataset in [
        ("{kind: size, size: 30}", torch.utils.data.ConcatDataset([range(20), range(20, 30)])),
        ("{kind: layout, sizes: [20, 10]}", torch.utils.data.ConcatDataset([range(20), range(20, 30)])),
        ("{kind: size, size: 30}", Endless()),
    ]:
        config = sk.Config.from_yaml(f"sampler: {{kind: sequential}}\ndataset: {said}")
        assert torch.cat(list(config.dataloader(dataset, sk.World()))).tolist() == list(range(SIZE))
