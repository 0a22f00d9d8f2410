"""Whether the quality figures tell, before a training, which orders it will suffer from.

Run it with `pytest -m statistics -rP tests/campaigns/test_quality_predicts.py`. docs/quality.md has
the same at full size.
"""

from __future__ import annotations

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.inspect.quality import label_mixing, storage_mixing
from samplerkit.inspect.quality.mixing import ALREADY_MIXED
from tests.campaigns.digit_orders import (
    BATCH_SIZE,
    SEEDS,
    correlation,
    layout_of,
    orders,
    permuted_on_disk,
    sorted_digits,
    spearman,
    train_all,
    unsorted,
)

pytestmark = pytest.mark.statistics

FEWEST = {"accuracy": 0.8, "loss_area": 0.9}


def shown(title, trained, figures):
    found = {
        (figure, outcome): correlation(trained, figure, outcome) for figure in figures for outcome in FEWEST
    }
    for (figure, outcome), value in found.items():
        print(f"{title}: {figure} with {outcome}, {len(trained)} orders, {SEEDS} seeds: {value}")
    return found


@pytest.mark.parametrize("num_files", [8, 20])
def test_mixing_and_label_mixing_rank_orders_of_sorted_digits_as_training_does(num_files):
    digits = sorted_digits()
    trained = train_all(digits, layout_of(num_files, len(digits.labels)))
    assert len(trained) >= 20
    found = shown(f"{num_files} files", trained, ["mixing", "label_mixing"])
    for (_, outcome), value in found.items():
        assert value.value >= FEWEST[outcome]


def test_label_mixing_ranks_orders_of_files_that_are_permuted_on_disk():
    digits, layout = permuted_on_disk(sorted_digits(), layout_of(20, 1437))
    found = shown("20 files permuted on disk", train_all(digits, layout), ["label_mixing"])
    for (_, outcome), value in found.items():
        assert value.value >= FEWEST[outcome]


def test_on_unsorted_digits_every_order_is_as_good_and_the_figures_say_so():
    digits, layout = unsorted(sorted_digits()), layout_of(20, 1437)
    # The range of many means is mostly noise: twice the seeds, for less of it.
    trained = train_all(digits, layout, 2 * SEEDS)
    accuracy = [float(one.accuracy.mean()) for one in trained]
    labels = digits.labels.numpy()
    print(f"unsorted: accuracy from {min(accuracy):.2f} to {max(accuracy):.2f} %")
    assert max(accuracy) - min(accuracy) <= 0.5
    assert min(one.label_mixing for one in trained) >= 0.98
    assert storage_mixing(layout, BATCH_SIZE, labels).value >= ALREADY_MIXED


def test_a_figure_that_knows_nothing_of_the_order_does_not_pass():
    # The negative control: the same orders, with figures dealt out at random.
    digits, layout = sorted_digits(), layout_of(8, 1437)
    labels = digits.labels.numpy()
    figures = [
        label_mixing(sk.DistributedSampler(1, 0, **arguments), layout, BATCH_SIZE, labels).value
        for _, arguments in orders(8)
    ]
    generator = np.random.default_rng(0)
    passed = sum(abs(spearman(generator.permutation(figures), figures)) >= 0.8 for _ in range(1000))
    assert passed == 0
