"""Sampled figures: what they estimate, and their standard errors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.inspect.quality import file_mixing, mixing, spread
from samplerkit.inspect.quality.mixing import Observation, window_sizes
from samplerkit.inspect.quality.order_source import OrderSource
from tests.inspect import brute_force

LAYOUT = sk.Layout([100] * 20)
FIGURES = {"file_mixing": file_mixing, "spread": spread}


class Backwards(sk.Sampler):
    """A user's sampler, of which only the ids are known."""

    def __iter__(self) -> Iterator[int]:
        yield from range(self.dataset_size - 1, -1, -1)


class Hidden(sk.Sampler):
    """A mode within a user's class, so that there is no closed form."""

    def __init__(self, **arguments):
        super().__init__()
        self.inner = sk.RandomSampler(**arguments)

    def draw(self, layout, context):
        return self.inner.draw(layout, context)


CHAINS = {
    "a user's own": Backwards(),
    "two pools": sk.RandomSampler(shuffle="partial", partial_size=150, pools=2),
    "a part": sk.RandomSampler(shuffle="files", num_samples=1500),
    "infile in lanes": sk.DistributedSampler(4, 0, shuffle="infile"),
}


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize(
    "arguments",
    [
        {"shuffle": "files"},
        {"shuffle": "infile"},
        {"shuffle": "partial", "partial_size": 70},
        {"shuffle": "partial", "partial_size": 250, "lanes": 2},
        {"shuffle": "global"},
    ],
    ids=str,
)
def test_a_sampled_figure_agrees_with_the_closed_form_within_its_standard_error(name, arguments):
    closed = FIGURES[name](sk.RandomSampler(seed=5, **arguments), LAYOUT, 16)
    figure = FIGURES[name](Hidden(seed=5, **arguments), LAYOUT, 16)
    assert closed.exact
    assert not figure.exact
    assert 0 < figure.standard_error < 0.03
    assert abs(figure.value - closed.value) <= 4 * figure.standard_error + 0.003
    for sampled, exact in zip(figure.curve, closed.curve, strict=True):
        assert sampled.window == exact.window
        assert abs(sampled.value - exact.value) <= 5 * sampled.standard_error + 0.005


def test_standard_errors_are_neither_too_small_nor_too_large():
    arguments = {"shuffle": "partial", "partial_size": 120}
    true = spread(sk.RandomSampler(**arguments), LAYOUT, 16).value
    sources = [OrderSource.of(Hidden(seed=seed, **arguments), LAYOUT, None) for seed in range(60)]
    windows = window_sizes(len(LAYOUT), 16)
    figures = [Observation(source, windows, 16).spread() for source in sources]
    scores = np.array([(figure.value - true) / figure.standard_error for figure in figures])
    # The deviation of sixty normal scores is outside of this range once in ten thousand times.
    assert 0.65 < scores.std() < 1.45
    assert abs(scores.mean()) < 0.7


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("chain", CHAINS)
def test_the_figures_of_a_chain_without_a_closed_form_agree_with_counting_pairs(chain, name):
    sampler = CHAINS[chain]
    figure = FIGURES[name](sampler, LAYOUT, 16)
    assert not figure.exact or (chain, name) == ("infile in lanes", "file_mixing")
    if len(sampler.undealt_order(LAYOUT)) != len(LAYOUT):
        return
    windows = window_sizes(len(LAYOUT), 16)
    counted = getattr(brute_force, name)(sampler, LAYOUT, windows, 32)
    noise = counted.std() / np.sqrt(32) + figure.standard_error
    assert abs(figure.value - counted.mean()) <= 0.01 + 4 * noise


def test_a_part_of_the_samples_is_compared_with_a_full_shuffle_of_that_part():
    # A random order of only two files mixes fully, although it reads a tenth of the dataset.
    part = sk.SubsetRandomSampler(np.arange(200))
    assert mixing(part, LAYOUT, 16).value == 1
    shuffled = part.order(LAYOUT, 0)
    for measure in (file_mixing, spread):
        assert measure(shuffled, LAYOUT, 16).value == pytest.approx(1, abs=0.03)
    in_sequence = sk.SubsetSampler(np.arange(200))
    assert mixing(in_sequence, LAYOUT, 16).value == pytest.approx(
        mixing(sk.SequentialSampler(), sk.Layout([100] * 2), 16).value, abs=0.03
    )


@pytest.mark.parametrize(
    "sampler",
    [
        sk.RandomSampler(replacement=True),
        sk.RandomSampler(num_samples=500),
        sk.WeightedRandomSampler(np.arange(1, 2001)),
        sk.SubsetRandomSampler(np.arange(0, 2000, 3)),
        sk.DistributedSampler(4, 0, num_samples=100),
    ],
    ids=repr,
)
def test_a_random_draw_mixes_fully_by_definition_and_as_measured(sampler):
    assert mixing(sampler, LAYOUT, 16).value == 1
    assert mixing(sampler, LAYOUT, 16).exact
    for measure in (file_mixing, spread):
        measured = measure(sampler.undealt_order(LAYOUT, 1), LAYOUT, 16)
        assert abs(measured.value - 1) < 0.03 + 4 * measured.standard_error


def test_the_world_decides_the_lanes():
    sampler = sk.RandomSampler(shuffle="files")
    alone, eight = mixing(sampler, LAYOUT, 16), mixing(sampler, LAYOUT, 16, world=sk.World(8, 3))
    assert eight.value > alone.value + 0.2
    assert eight == mixing(sk.DistributedSampler(8, 0, shuffle="files"), LAYOUT, 16)


def test_a_layout_of_one_file_or_none_has_only_the_spread():
    for dataset in (2000, sk.Layout([2000]), sk.Layout([0, 2000, 0])):
        figure = mixing(sk.SequentialSampler(), dataset, 16)
        assert [part.name for part in figure.parts] == ["spread"]
        with pytest.raises(sk.DatasetError, match="fewer than two files"):
            file_mixing(sk.SequentialSampler(), dataset, 16)
    # With one sample, no two can be in different files.
    assert [part.name for part in mixing(sk.RepeatSampler(40), 1, 16).parts] == ["spread"]


def test_a_figure_is_plain_data_and_one_line():
    figure = mixing(sk.RandomSampler(shuffle="files"), LAYOUT, 16)
    plain = figure.to_dict()
    assert plain["name"] == "mixing"
    assert [part["name"] for part in plain["parts"]] == ["file_mixing", "spread"]
    assert plain["curve"][0] == {"window": 16, "value": figure.curve[0].value, "standard_error": 0.0}
    assert figure.weakest == figure.curve[0]
    assert "\n" not in str(figure)
