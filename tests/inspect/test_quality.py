"""The figures of quality: closed forms against brute force, sampled ones with standard errors, labels."""

import itertools

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.inspect.quality import (
    effective_batch,
    file_mixing,
    label_mixing,
    mixing,
    spread,
    storage_mixing,
)
from samplerkit.inspect.quality.mixing import Observation, window_sizes
from samplerkit.inspect.quality.order_source import OrderSource
from samplerkit.inspect.quality.pairs import across, pair_distance, pair_weight
from tests.inspect import brute_force

EQUAL = {"8 files": [60] * 8, "24 files": [20] * 24, "40 files": [10] * 40}
NEARLY = {"20 files, two sizes": [36] * 7 + [35] * 13, "30 files, an empty one": [12] * 29 + [0]}
UNEQUAL = {"3 files": [100, 30, 170], "12 files": [5, 90, 30, 60, 15, 40, 2, 70, 20, 55, 33, 80]}
LAYOUTS = {**EQUAL, **NEARLY, **UNEQUAL}

PLAIN = {
    "false": {"shuffle": False},
    "files": {"shuffle": "files"},
    "infile": {"shuffle": "infile"},
    **{f"partial {b}": {"shuffle": "partial", "partial_size": b} for b in (7, 10, 33, 60, 90, 300)},
}
WOVEN = {
    "files, 2 lanes": {"shuffle": "files", "lanes": 2},
    "infile, 3 lanes": {"shuffle": "infile", "lanes": 3},
    "partial 9, 2 lanes": {"shuffle": "partial", "partial_size": 9, "lanes": 2},
    "partial 15, 3 lanes": {"shuffle": "partial", "partial_size": 15, "lanes": 3},
}
MODES = {**PLAIN, **WOVEN}

EPOCHS = 16
# If the sequence of files matters: the number of epochs of the closed forms, so that both use the same ones.
SAME_EPOCHS = 64


def sampler_of(mode):
    return sk.DistributedSampler(1, 0, seed=11, **MODES[mode])


def in_turn(modes, layouts):
    """Each mode with two layouts in turn, so that each layout occurs with several modes."""
    names = itertools.cycle(layouts)
    return [(next(names), mode) for mode in modes for _ in range(2)]


@pytest.mark.parametrize(
    ("files", "mode"), sorted({*in_turn(MODES, LAYOUTS), *itertools.product(UNEQUAL, WOVEN)})
)
def test_file_mixing_agrees_with_counting_pairs(files, mode):
    layout, sampler, batch_size = sk.Layout(LAYOUTS[files]), sampler_of(mode), 8
    figure = file_mixing(sampler, layout, batch_size)
    windows = window_sizes(len(layout), batch_size)
    assert tuple(point.window for point in figure.curve) == windows
    epochs = SAME_EPOCHS if files in UNEQUAL else EPOCHS
    counted = brute_force.file_mixing(sampler, layout, windows, epochs)
    error = 0.0 if figure.exact else 4 * figure.standard_error
    assert abs(figure.value - counted.mean()) <= 0.01 + error


@pytest.mark.parametrize(("files", "mode"), in_turn(["false", "infile", "partial 10", "partial 90"], LAYOUTS))
def test_spread_of_samples_that_stay_near_agrees_with_measuring_pairs(files, mode):
    layout, sampler = sk.Layout(LAYOUTS[files]), sampler_of(mode)
    if mode.startswith("partial"):
        # Without files, blocks are in storage order.
        layout = sk.Layout(len(layout))
    figure = spread(sampler, layout, 8)
    measured = brute_force.spread(sampler, layout, window_sizes(len(layout), 8), 8)
    assert figure.exact
    assert abs(figure.value - measured.mean()) <= 0.01


@pytest.mark.parametrize(
    ("files", "mode"),
    in_turn([mode for mode in MODES if MODES[mode]["shuffle"] in ("files", "partial")], {**EQUAL, **NEARLY}),
)
def test_spread_of_shuffled_files_agrees_with_measuring_pairs(files, mode):
    layout, sampler = sk.Layout(LAYOUTS[files]), sampler_of(mode)
    figure = spread(sampler, layout, 8)
    measured = brute_force.spread(sampler, layout, window_sizes(len(layout), 8), EPOCHS)
    # Some epochs are measured, whose sequences of files are a sample too.
    noise = measured.std() / np.sqrt(EPOCHS)
    assert abs(figure.value - measured.mean()) <= 0.02 + 2 * (noise + figure.standard_error)


def test_most_cases_have_a_closed_form():
    cases = [(sizes, mode) for sizes in EQUAL.values() for mode in PLAIN]
    exact = [mixing(sampler_of(mode), sk.Layout(sizes), 8).exact for sizes, mode in cases]
    assert all(exact)
    assert mixing(sampler_of("files, 2 lanes"), sk.Layout([10] * 40), 8).exact


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_sums_over_pairs_of_rows_agree_with_adding_them_up(lanes):
    for window in range(2, 14):
        for run in range(8):
            pairs = [(y - x) for x in range(run) for y in range(x + 1, run)]
            weights = [max(0, window - lanes * d) for d in pairs]
            assert pair_weight(run, window, lanes) == sum(weights)
            assert pair_distance(run, window, lanes) == sum(
                w * d for w, d in zip(weights, pairs, strict=True)
            )
        added = sum(max(0, window - lanes * (y - x)) for x in range(3) for y in range(5, 9))
        assert across(pair_weight, 3, 2, 4, window, lanes) == added


def test_closed_forms_reach_a_trillion_samples():
    layout = sk.Layout([10**8] * 10**4)
    for arguments in (
        {"shuffle": "files"},
        {"shuffle": "infile"},
        {"shuffle": "partial", "partial_size": 1000},
    ):
        figure = mixing(sk.RandomSampler(**arguments), layout, 8192)
        assert figure.exact
        assert 0 <= figure.value < 0.01
    blocks = mixing(sk.RandomSampler(shuffle="partial", partial_size=10**10), layout, 8192)
    assert blocks.exact
    assert blocks.value == pytest.approx(0.99, abs=0.001)


SORTED = np.repeat(np.arange(10), 200)
LAYOUT = sk.Layout([100] * 20)
UNSORTED = np.random.default_rng(2).permutation(SORTED)
SAMPLERS = {
    "false": sk.SequentialSampler(),
    "files": sk.RandomSampler(shuffle="files", seed=4),
    "infile": sk.RandomSampler(shuffle="infile", seed=4),
    "partial": sk.RandomSampler(shuffle="partial", partial_size=250, seed=4),
    "lanes": sk.DistributedSampler(4, 0, shuffle="partial", partial_size=50, seed=4),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_label_mixing_agrees_with_counting_pairs(name):
    figure = label_mixing(SAMPLERS[name], LAYOUT, 16, SORTED)
    values = brute_force.group_mixing(SAMPLERS[name], LAYOUT, SORTED, window_sizes(2000, 16), 32)
    noise = values.std() / np.sqrt(32) + figure.standard_error
    assert abs(figure.value - values.mean()) <= 0.01 + 4 * noise


def test_storage_mixing_is_the_label_mixing_of_no_shuffle():
    for labels in (SORTED, UNSORTED):
        stored = storage_mixing(LAYOUT, 16, labels)
        unshuffled = label_mixing(sk.SequentialSampler(), LAYOUT, 16, labels)
        assert (stored.value, stored.curve) == (unshuffled.value, unshuffled.curve)
    assert storage_mixing(LAYOUT, 16, UNSORTED).value > 0.98
    assert storage_mixing(LAYOUT, 16, SORTED).value < 0.5


def test_labels_are_integers_or_strings():
    words = np.array(["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"])[SORTED]
    sampler = SAMPLERS["files"]
    assert label_mixing(sampler, LAYOUT, 16, words) == label_mixing(sampler, LAYOUT, 16, SORTED.tolist())


def test_the_effective_batch_agrees_with_the_variance_of_batch_means():
    sampler, size = SAMPLERS["partial"], 40
    figure = effective_batch(sampler, LAYOUT, size, SORTED)
    ids = brute_force.epochs_of(sampler, LAYOUT, 200)
    # The variance of the mean of an indicator over whole batches, relative to that of random batches.
    ratios = []
    for label in range(10):
        indicator = (label == SORTED).astype(float)
        means = indicator[ids].reshape(-1, size).mean(axis=1)
        ratios.append(means.var() / (indicator.var(ddof=1) / size * (1 - size / 2000)))
    assert figure.value == pytest.approx(size / np.mean(ratios), rel=0.15)


def test_the_effective_batch_of_random_batches_is_their_size_and_of_one_label_a_sample():
    assert effective_batch(sk.RandomSampler(), LAYOUT, 40, SORTED).value == pytest.approx(40)
    assert effective_batch(sk.SequentialSampler(), LAYOUT, 20, SORTED).value < 1.5


def test_without_labels_samples_of_a_file_count_as_alike():
    by_files = effective_batch(SAMPLERS["files"], LAYOUT, 40)
    assert by_files.exact
    assert by_files.value < effective_batch(SAMPLERS["files"], LAYOUT, 40, UNSORTED).value / 5
    assert by_files.value == pytest.approx(
        effective_batch(SAMPLERS["files"], LAYOUT, 40, np.repeat(np.arange(20), 100)).value, rel=0.2
    )
    with pytest.raises(sk.DatasetError, match="are needed"):
        effective_batch(sk.SequentialSampler(), 2000, 40)


FIGURES = {"file_mixing": file_mixing, "spread": spread}


class Backwards(sk.Sampler):
    """A user's sampler, of which only the ids are known."""

    def __iter__(self):
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
