"""The recommended mode: the cheapest that reaches a mixing within the budget, or why there is none."""

import json
import sys

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.inspect.quality import mixing, recommend
from samplerkit.inspect.quality.order_source import PlainMode
from samplerkit.inspect.quality.recommend import held_at_once
from samplerkit.order.modes import Mode, Shuffle

LAYOUT = sk.Layout([1437] * 64)


@pytest.mark.parametrize("required", [0.1, 0.4, 0.7, 0.95, 1.0])
def test_the_cheapest_candidate_that_reaches_the_mixing_is_chosen(required):
    advice = recommend(LAYOUT, 32, mixing=required)
    assert advice.chosen is not None
    assert advice.chosen.mixing >= required
    cheaper = advice.candidates[: advice.candidates.index(advice.chosen)]
    assert all(candidate.mixing < required for candidate in cheaper)
    costs = [(candidate.samples, candidate.files) for candidate in advice.candidates]
    assert costs == sorted(costs)


def test_a_recommended_mode_mixes_as_much_as_stated():
    advice = recommend(LAYOUT, 32, mixing=0.7, lanes=4)
    figure = mixing(sk.DistributedSampler(4, 0, **advice.chosen.arguments), LAYOUT, 32)
    assert figure.value == pytest.approx(advice.chosen.mixing, abs=0.02)


def test_a_block_as_large_as_the_files_does_not_count_as_better_than_a_smaller_one():
    scored = {c.partial_size: c.mixing for c in recommend(LAYOUT, 32).candidates if c.partial_size}
    assert scored[1437] < scored[1078]
    assert scored[1437] < 0.5 * scored[2156]
    # So a bisection between 1,078 and 2,156 could take the wrong side.
    assert recommend(LAYOUT, 32, mixing=0.3).chosen.partial_size == 1078


@pytest.mark.parametrize("budget", [{"cache_files": 4}, {"cache_samples": 6000}])
def test_within_a_budget_nothing_larger_is_chosen(budget):
    advice = recommend(LAYOUT, 32, mixing=0.6, **budget)
    assert advice.chosen is not None
    assert advice.chosen.files <= budget.get("cache_files", 64)
    assert advice.chosen.samples <= budget.get("cache_samples", len(LAYOUT))


def test_if_nothing_fits_the_reason_names_the_best_that_fits_and_the_cheapest_that_meets():
    advice = recommend(LAYOUT, 32, mixing=0.9, cache_files=4)
    assert advice.chosen is None
    best = max((c for c in advice.candidates if c.fits), key=lambda c: c.mixing)
    meeting = next(c for c in advice.candidates if c.meets)
    assert advice.reason == (
        f"nothing mixes .900 within 4 files; the best that fits is {best}; "
        f"the cheapest that meets it is {meeting}"
    )
    assert best.files <= 4 < meeting.files


def test_a_dataset_without_files_has_blocks_in_batches():
    advice = recommend(100_000, 32, mixing=0.4)
    assert advice.chosen.shuffle is sk.Shuffle.GLOBAL
    sizes = [c.partial_size for c in advice.candidates if c.partial_size]
    assert sizes == [128, 512, 2048, 8192, 32768]
    shuffles = {c.shuffle.value for c in advice.candidates}
    assert shuffles == {"false", "partial", "global"}


def test_a_recommendation_is_plain_data_and_arguments_of_a_sampler():
    advice = recommend(LAYOUT, 32)
    plain = json.loads(json.dumps(advice.to_dict()))
    assert plain["chosen"]["shuffle"] == "partial"
    assert len(plain["candidates"]) == len(advice.candidates)
    for candidate in advice.candidates:
        sk.DistributedSampler(1, 0, **candidate.arguments).order(LAYOUT)


# Over many files: fast counts agree with counts file by file.

SIZES = {
    "equal": [100] * 24,
    "unequal": [3, 250, 1, 40, 99, 180, 7, 64, 64, 120, 31, 200],
    "with empty files": [0, 50, 0, 0, 70, 20, 90, 0, 33, 61],
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
@pytest.mark.parametrize(("lanes", "block"), [(1, 7), (3, 50), (1, 100), (3, 150)])
def test_the_most_files_of_a_block_agree_with_a_count(sizes, lanes, block):
    layout = sk.Layout(sizes)
    plain = PlainMode(Mode(Shuffle.PARTIAL, block), layout, lanes, 0)
    most = 0
    for epoch in range(4):
        file = np.repeat(np.arange(len(sizes)), plain.file_sizes(epoch))
        for start, end in zip(plain.lane_starts, plain.lane_starts[1:], strict=False):
            pieces = [file[at : min(at + block, end)] for at in range(start, end, block)]
            most = max(most, *(np.unique(piece).size for piece in pieces))
    assert held_at_once(plain)[0] == most


def test_for_many_files_fewer_epochs_lead_to_the_same_recommendation(monkeypatch):
    sizes = 200 + np.random.default_rng(1).integers(0, 101, 150)
    full = recommend(sk.Layout(sizes), 64, lanes=4)
    for module in ("closed", "mixing"):  # the package has a function named mixing
        monkeypatch.setattr(sys.modules[f"samplerkit.inspect.quality.{module}"], "MANY_FILES", 20)
    less = recommend(sk.Layout(sizes), 64, lanes=4)
    assert str(less.chosen)[:20] == str(full.chosen)[:20]
    for one, other in zip(less.candidates, full.candidates, strict=True):
        assert (one.shuffle, one.partial_size, one.files) == (other.shuffle, other.partial_size, other.files)
        assert one.mixing == pytest.approx(other.mixing, abs=0.02)
