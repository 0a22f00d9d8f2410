"""Mixtures: exact counts at every prefix, random access, sources read to their end before they begin anew."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset

import samplerkit as sk
from samplerkit.order.schedule import LONGEST_PERIOD, TreeSchedule, table_of

weights_lists = st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any)


@given(weights_lists)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_each_prefix_of_the_schedule_is_within_one_of_its_shares(weights):
    schedule = table_of(weights)
    counts = np.cumsum(schedule.sources[:, None] == np.arange(len(weights)), axis=0)
    positions = np.arange(1, schedule.period + 1)[:, None]
    # In integers: |count * period - position * weight| < period.
    assert (np.abs(counts * schedule.period - positions * np.array(weights)) < schedule.period).all()
    assert counts[-1].tolist() == weights


@given(weights_lists)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_without_a_table_each_prefix_is_near_its_shares_and_slots_lead_back(weights):
    schedule = TreeSchedule(weights)
    sources, turns = schedule.read(np.arange(schedule.period))
    counts = np.cumsum(sources[:, None] == np.arange(len(weights)), axis=0)
    assert counts[-1].tolist() == weights
    positions = np.arange(1, schedule.period + 1)[:, None]
    off = np.abs(counts * schedule.period - positions * np.array(weights)).max() / schedule.period
    assert off <= {1: 0, 2: 0.5, 3: 1}.get(np.count_nonzero(weights), 2)
    for source, weight in enumerate(weights):
        if weight:
            assert (
                schedule.slots(np.full(weight, source), np.arange(weight)).tolist()
                == np.flatnonzero(sources == source).tolist()
            )
            assert turns[sources == source].tolist() == list(range(weight))


@pytest.mark.parametrize("sizes", [[1281167, 50000], [1281167, 50000, 7654321, 1, 99991, 1000003]])
def test_real_sizes_are_mixed_in_proportion_each_sample_once(sizes):
    layout = sk.Layout(sizes)
    order = sk.MixtureSampler(seed=4).order(layout)
    assert len(order) == sum(sizes)
    middle = len(order) // 2
    counts = np.zeros(len(sizes), dtype=int)
    for begin in range(0, middle, 1 << 20):
        chunk = order[begin : min(middle, begin + (1 << 20))]
        counts += np.bincount(layout.file_of(chunk), minlength=len(sizes))
    assert np.abs(counts - middle * np.array(sizes) / sum(sizes)).max() <= 2
    some = np.random.default_rng(0).integers(0, len(order), 1000)
    _, positions = order.positions_of(order[some])
    assert sorted(positions.tolist()) == sorted(some.tolist())
    assert np.unique(order[:200_000]).size == 200_000


@pytest.mark.parametrize(
    "weights",
    [[0.7, 0.2, 0.1], [1 / 3, 2 / 3], [5, 0, 3], np.array([0.05] * 20), [0.123457, 0.954321, 0.777777]],
)
def test_each_prefix_of_the_order_is_within_one_of_the_weights(weights):
    layout = sk.Layout([400] * len(weights))
    ids = np.asarray(sk.MixtureSampler(weights, num_samples=5000).order(layout))
    counts = np.cumsum(layout.file_of(ids)[:, None] == np.arange(len(weights)), axis=0)
    shares = np.array(weights) / np.sum(weights)
    assert (np.abs(counts - np.arange(1, 5001)[:, None] * shares) < 1 + 1e-9).all()


def test_without_weights_each_sample_comes_once_in_proportion_to_the_sizes():
    layout = sk.Layout([30, 0, 10, 60])
    ids = sk.MixtureSampler(seed=1).order(layout)
    assert sorted(ids) == list(range(100))
    assert Counter(layout.file_of(ids[:50]).tolist()) == {0: 15, 2: 5, 3: 30}


def test_a_source_is_read_to_its_end_before_it_begins_anew_in_another_order():
    layout = sk.Layout([8, 100])
    ids = np.asarray(sk.MixtureSampler([1, 1], num_samples=64, seed=3).order(layout))
    small = ids[ids < 8].reshape(4, 8).tolist()
    assert all(sorted(read) == list(range(8)) for read in small)
    assert len({tuple(read) for read in small}) > 1


@pytest.mark.parametrize(("stop", "counts"), [("first", {0: 6, 1: 2}), ("all", {0: 30, 1: 10})])
def test_it_stops_before_the_first_source_begins_anew_or_after_all_are_read(stop, counts):
    layout = sk.Layout([6, 10])
    ids = np.asarray(sk.MixtureSampler([3, 1], stop=stop).order(layout))
    assert Counter(layout.file_of(ids).tolist()) == counts


@given(weights_lists, st.integers(1, 200), st.booleans(), st.integers(0, 3))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_positions_lead_back_to_their_ids(weights, num_samples, shuffle, epoch):
    layout = sk.Layout([3 + number for number in range(len(weights))])
    order = sk.MixtureSampler(weights, num_samples, shuffle=shuffle).order(layout, epoch)
    ids = np.asarray(order)
    which, positions = order.positions_of(np.arange(len(layout)))
    assert Counter(positions.tolist()) == Counter(range(num_samples))
    assert (ids[positions] == which).all()


def test_a_mixture_of_a_million_million_samples_is_read_anywhere():
    layout = sk.Layout([10**12, 3 * 10**12])
    order = sk.MixtureSampler([1, 1], stop="all", seed=5).order(layout)
    assert len(order) == 6 * 10**12
    middle = order[3 * 10**12 : 3 * 10**12 + 1000]
    assert Counter(layout.file_of(middle).tolist()) == {0: 500, 1: 500}
    assert order.positions_of(int(middle[7])).tolist().count(3 * 10**12 + 7) == 1


def test_a_mixture_goes_on_with_other_ranks_after_a_source_has_ended():
    dataset = ConcatDataset([range(5), range(100, 140)])
    recipe = sk.MixtureSampler([1, 1], stop="all", seed=2)
    whole = np.asarray(recipe.order(dataset)).tolist()
    received = []
    runs = [sk.Loader(dataset, recipe, batch_size=4, world=sk.World(2, rank)) for rank in range(2)]
    for step in range(6):  # the source of five samples began anew in the second step
        received += [run.ids(step).tolist() for run in runs]
    state = runs[0].state_dict(step=6)
    for rank in range(3):
        run = sk.Loader(dataset, recipe, batch_size=3, world=sk.World(3, rank))
        run.load_state_dict(state)
        received += [run.ids(step)[~run.pads(step)].tolist() for step in range(run.steps_left)]
    assert Counter(sum(received, [])) == Counter(whole)


@pytest.mark.parametrize("more", [0, 1])
def test_sizes_are_mixed_up_to_the_longest_period_and_not_beyond(more):
    layout = sk.Layout([LONGEST_PERIOD // 2 + 1, LONGEST_PERIOD // 2 - 1 + more])  # without a common divisor
    with pytest.raises(sk.DatasetError, match="common divisor") if more else nullcontext():
        assert len(sk.MixtureSampler(shuffle=False).order(layout)) == LONGEST_PERIOD


@pytest.mark.parametrize(
    ("make", "dataset", "kind", "message"),
    [
        (lambda: sk.MixtureSampler([1, 2]), 10, RuntimeError, "no parts"),
        (lambda: sk.MixtureSampler([1, 2]), sk.Layout([5]), RuntimeError, "one for each of the 1 sources"),
        (lambda: sk.MixtureSampler([1, 2]), sk.Layout([5, 0]), RuntimeError, "empty source"),
        (sk.MixtureSampler, sk.Layout([0, 0]), RuntimeError, "no samples"),
        (sk.MixtureSampler, sk.Layout([2**40 + 1, 2**40]), RuntimeError, "common divisor"),
        (lambda: sk.MixtureSampler([1, 1], stop="never"), sk.Layout([5, 5]), ValueError, "stop"),
        (lambda: sk.MixtureSampler([1, 1], stop=True), sk.Layout([5, 5]), TypeError, "stop"),
        (lambda: sk.MixtureSampler([1, float("nan")]), sk.Layout([5, 5]), RuntimeError, "NaN"),
        (lambda: sk.MixtureSampler([]), sk.Layout([5, 5]), RuntimeError, "empty"),
    ],
)
def test_what_cannot_be_mixed_is_refused(make, dataset, kind, message):
    with pytest.raises(kind, match=message) as caught:
        make().order(dataset)
    assert isinstance(caught.value, sk.SamplerkitError)
