"""Label mixing, storage mixing and the effective batch."""

from __future__ import annotations

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.inspect.quality import effective_batch, label_mixing, storage_mixing
from samplerkit.inspect.quality.mixing import window_sizes
from tests.inspect import brute_force

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


def counted(sampler, labels, windows, epochs):
    ids = brute_force.epochs_of(sampler, LAYOUT, epochs)
    alike = brute_force.pair_means(labels[ids], windows, np.equal)
    _, sizes = np.unique(labels, return_counts=True)
    everywhere = (sizes * (sizes - 1)).sum() / (labels.size * (labels.size - 1))
    return ((1 - alike) / (1 - everywhere)).mean(axis=1)


@pytest.mark.parametrize("name", SAMPLERS)
def test_label_mixing_is_what_counting_pairs_gives(name):
    found = label_mixing(SAMPLERS[name], LAYOUT, 16, SORTED)
    values = counted(SAMPLERS[name], SORTED, window_sizes(2000, 16), 32)
    noise = values.std() / np.sqrt(32) + found.standard_error
    assert abs(found.value - values.mean()) <= 0.01 + 4 * noise


@pytest.mark.parametrize("name", SAMPLERS)
def test_unsorted_data_are_mixed_in_every_order(name):
    assert label_mixing(SAMPLERS[name], LAYOUT, 16, UNSORTED).value >= 0.98
    assert label_mixing(SAMPLERS[name], LAYOUT, 16, SORTED).value < 0.95


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


def test_a_batch_is_worth_what_the_means_of_batches_vary():
    sampler, size = SAMPLERS["partial"], 40
    found = effective_batch(sampler, LAYOUT, size, SORTED)
    ids = brute_force.epochs_of(sampler, LAYOUT, 200)
    # The variance of the mean of an indicator over whole batches, against that of random batches.
    ratios = []
    for label in range(10):
        indicator = (label == SORTED).astype(float)
        means = indicator[ids].reshape(-1, size).mean(axis=1)
        ratios.append(means.var() / (indicator.var(ddof=1) / size * (1 - size / 2000)))
    assert found.value == pytest.approx(size / np.mean(ratios), rel=0.15)


def test_a_random_batch_is_worth_itself_and_a_batch_of_one_label_one_sample():
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


@pytest.mark.parametrize(
    ("labels", "error"),
    [
        (SORTED[:-1], sk.DatasetError),
        (np.zeros(2000, dtype=int), sk.ArgumentValueError),
        (SORTED.astype(float), sk.ArgumentTypeError),
        (SORTED.reshape(2, -1), sk.ArgumentTypeError),
        ("labels", sk.ArgumentTypeError),
        (7, sk.ArgumentTypeError),
        ([[1, 2], [3]], sk.ArgumentTypeError),
    ],
    ids=["too few", "one label", "floats", "a matrix", "a string", "a number", "ragged"],
)
def test_bad_labels_are_refused(labels, error):
    with pytest.raises(error):
        label_mixing(sk.SequentialSampler(), LAYOUT, 16, labels)
