"""Bins of a histogram equal those of best-fit decreasing over a list; and runs that are permuted."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from samplerkit.batches.packs.best_fit import Bins
from samplerkit.batches.packs.pack_plan import IN_A_TABLE, GroupedPermutation
from samplerkit.order.keys import Key
from tests.batches.laws import best_fit


def test_bins_are_exactly_those_of_best_fit_over_a_list():
    for seed in range(400):
        rng = np.random.default_rng(seed)
        capacity = int(rng.integers(1, 40))
        items = np.sort(rng.integers(1, rng.integers(1, capacity + 1) + 1, rng.integers(0, 60)))[::-1]
        values, counts = np.unique(items, return_counts=True)
        bins = Bins(values[::-1], counts[::-1], capacity)
        expected = best_fit(items.tolist(), capacity)
        in_bins, edges = bins.items(np.arange(bins.count))
        assert [part.tolist() for part in np.split(in_bins, edges[1:-1])][: bins.count] == expected
        inverse = bins.bin_of(np.arange(items.size))
        assert inverse.tolist() == [
            number for item in range(items.size) for number, part in enumerate(expected) if item in part
        ]


def test_the_time_does_not_grow_with_the_number_of_items():
    """With 10^9 times as many items of each size there are still only a few entries per size."""
    values = np.arange(512, 0, -1)
    few = Bins(values, np.full(512, 3), 512)
    many = Bins(values, np.full(512, 3 * 10**9), 512)
    assert many.count > 10**9 * few.count // 2
    assert many._copies.size < 6 * 512
    items, _ = many.items(np.array([many.count - 1, many.count // 2]))
    assert set(many.bin_of(items).tolist()) == {many.count - 1, many.count // 2}


SIZES = {
    "small": [0, 1, 2, 5, 0, IN_A_TABLE],
    "around the size of tables": [IN_A_TABLE, IN_A_TABLE + 1, 3, IN_A_TABLE + 2],
    "large": [1, 5000, 20_000],
}


@pytest.mark.parametrize("name", SIZES)
def test_every_run_is_permuted_within_itself_and_back(name):
    starts = np.append(0, np.cumsum(SIZES[name]))
    runs, other = (GroupedPermutation(starts, Key(1, epoch, 0, "batch members")) for epoch in (0, 1))
    places = np.arange(starts[-1])
    moved = runs.permuted(places)
    for first, end in pairwise(starts):
        assert sorted(moved[first:end].tolist()) == list(range(first, end))
    assert runs.permuted(moved, inverse=True).tolist() == places.tolist()
    assert (
        GroupedPermutation(starts, Key(1, 0, 0, "batch members")).permuted(moved, inverse=True).tolist()
        == places.tolist()
    )
    assert moved.tolist() != other.permuted(places).tolist()
    some = np.random.default_rng(0).permutation(places)[:50]
    assert runs.permuted(some).tolist() == moved[some].tolist()


def test_a_run_of_more_than_two_thousand_million_places_is_permuted_too():
    starts = np.array([0, 5, 3 * 10**9, 3 * 10**9 + 1000])
    runs = GroupedPermutation(starts, Key(1, 0, 0, "batch members"))
    places = np.array([0, 4, 5, 17, 2 * 10**9, 3 * 10**9 - 1, 3 * 10**9, 3 * 10**9 + 999])
    moved = runs.permuted(places)
    assert runs.permuted(moved, inverse=True).tolist() == places.tolist()
    assert np.searchsorted(starts, moved, side="right").tolist() == [1, 1, 2, 2, 2, 2, 3, 3]
