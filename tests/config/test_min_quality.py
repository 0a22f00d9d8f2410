"""A config whose order mixes too little fails when it is loaded, or when it meets its dataset."""

import json

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.inspect.quality import mixing, recommend
from tests.config.answers import refused
from tests.numbers import Numbers

TRAP = {"kind": "random", "shuffle": "partial", "partial_size": 1437}
FILES = {"kind": "layout", "sizes": [1437] * 8}
SIZE = 8 * 1437
SORTED = np.repeat(np.arange(8), 1437)
UNSORTED = np.random.default_rng(1).permutation(SORTED)


def written(min_quality, sampler=None, **sections):
    return {
        "dataset": FILES,
        "sampler": sampler or TRAP,
        "loader": {"batch_size": 32},
        "min_quality": min_quality,
        **sections,
    }


class Digits(Numbers):
    """A dataset with labels."""

    def __init__(self, targets):
        super().__init__(sk.Layout(len(targets)))
        self.targets = targets


def test_an_order_that_falls_short_fails_with_the_figure_the_weakest_window_and_the_hint():
    figure = mixing(sk.RandomSampler(shuffle="partial", partial_size=1437), sk.Layout([1437] * 8), 32)
    caught = refused(sk.load_config, written(0.3))
    assert caught.place == "min_quality.mixing"
    assert str(refused(sk.Config.from_yaml, json.dumps(written(0.3)))) == str(caught)
    message = str(caught)
    assert f"mixing is {figure.value:.3f}".replace("0.", ".") in message
    assert "falls short of .300" in message
    assert f"windows of {figure.weakest.window} samples" in message
    advice = recommend(sk.Layout([1437] * 8), 32, mixing=0.3)
    assert caught.hint == f"the cheapest mode that meets it is {advice.reason}"


@pytest.mark.parametrize("min_quality", [0.3, {"mixing": 0.3}, {"mixing": 0.3, "batch_size": 32}])
def test_an_order_that_is_good_enough_loads(min_quality):
    config = sk.load_config(written(min_quality, {**TRAP, "partial_size": 1500}))
    assert config.min_quality.mixing == 0.3
    assert [figure.name for figure in config.check_quality()] == ["mixing"]
    assert sk.load_config(config.to_dict()) == config
    assert sk.load_config(json.loads(json.dumps(config.to_dict()))) == config


def test_the_batch_is_that_of_all_ranks():
    sampler = {"kind": "distributed", "shuffle": "partial", "partial_size": 700, "num_shards": 4, "lanes": 1}
    alone = {**sampler, "num_shards": 1}
    reached = mixing(sk.RandomSampler(shuffle="partial", partial_size=700), sk.Layout([1437] * 8), 128).value
    sk.load_config(written(reached - 1e-6, sampler))
    with pytest.raises(sk.ConfigError, match="falls short"):
        sk.load_config(written(reached - 1e-6, alone))
    sk.load_config(written({"mixing": reached - 1e-6, "batch_size": 128}, alone))


@pytest.mark.parametrize("method", ["dataloader", "make_loader"])
def test_without_a_dataset_section_the_dataset_is_checked_when_a_loader_is_made_in_its_world(method):
    sections = {"sampler": {"kind": "random", "shuffle": "files"}, "loader": {"batch_size": 32}}
    config = sk.load_config({**sections, "min_quality": 0.5})
    data = Digits(SORTED)
    data.layout = sk.Layout([1437] * 8)
    with pytest.raises(sk.ConfigError, match=r"min_quality\.mixing: falls short"):
        getattr(config, method)(data)
    assert getattr(config, method)(data, sk.World(4, 0)) is not None
    assert config.check_quality(data, sk.World(4, 0))[0].value > 0.5
    with pytest.raises(sk.ConfigError, match="dataset: is missing"):
        config.check_quality()


def test_data_that_is_mixed_in_storage_is_reported_as_such(tmp_path):
    np.save(tmp_path / "labels.npy", UNSORTED)
    section = {"mixing": 0.5, "labels": str(tmp_path / "labels.npy")}
    with pytest.raises(sk.ConfigError, match="already mixed in storage") as caught:
        sk.load_config(written(section))
    assert "label_mixing" in caught.value.hint
    section["label_mixing"] = section.pop("mixing")
    config = sk.load_config(written(section))
    assert config.check_quality()[0].value > 0.98
    assert sk.load_config(config.to_dict()) == config


def test_labels_are_read_from_the_dataset_when_a_loader_is_made():
    config = sk.load_config(written({"label_mixing": 0.5}))
    assert config.check_quality() == []
    assert config.make_loader(Digits(UNSORTED)) is not None
    with pytest.raises(sk.ConfigError, match=r"min_quality\.label_mixing"):
        config.make_loader(Digits(SORTED))


@pytest.mark.parametrize("targets", [np.linspace(0, 1, SIZE), [[0, 1]] * SIZE, [[1], [2, 3]] * (SIZE // 2)])
def test_targets_that_are_not_classes_are_ignored(targets):
    config = sk.load_config(written({"label_mixing": 0.5}))
    assert config.make_loader(Digits(targets)) is not None
    with pytest.raises(sk.ConfigError, match="falls short"):
        sk.load_config(written(0.5), check_quality=False).check_quality(Digits(targets))


def test_a_sampler_that_needs_the_labels_of_the_dataset_waits_for_it():
    config = sk.load_config(written(0.9, {"kind": "pk", "num_val": 1}))
    with pytest.raises(sk.ConfigError, match="cannot be computed"):
        config.check_quality()
    in_turn = sk.load_config(written({"label_mixing": 0.5}, {"kind": "pk", "num_val": 2}))
    assert in_turn.check_quality() == []
