"""The laws of plans, and packs: each token is read once, and long documents are handled as requested."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import samplerkit as sk
from samplerkit.batches.packs.best_fit import Bins
from samplerkit.batches.packs.pack_plan import IN_A_TABLE, GroupedPermutation
from samplerkit.batches.token_batches import TokenBatches
from samplerkit.batches.window_plan import WindowContext
from samplerkit.order.keys import Key
from tests.batches import laws
from tests.batches.laws import best_fit
from tests.testing.strategies import Case, SamplerCall, chains

BUDGET = 12


@st.composite
def recipes(draw: st.DrawFn, size: int) -> TokenBatches:
    long = draw(st.sampled_from(["raise", "drop", "truncate", "alone"]))
    longest = BUDGET if long == "raise" else BUDGET + 6
    multiple = draw(st.sampled_from([1, 2, 3]))
    return TokenBatches(
        BUDGET if long != "raise" or multiple == 1 else BUDGET + multiple,
        lengths=draw(st.lists(st.integers(0, longest), min_size=size, max_size=size)),
        max_samples=draw(st.none() | st.integers(1, 5)),
        count_multiple=draw(st.sampled_from([1, 1, 2, 4])),
        length_multiple=multiple,
        waste=draw(st.sampled_from([0, 0.01, 0.3, 0.9])),
        pool=draw(st.sampled_from([1, 2, 16])),
        window=draw(st.none() | st.integers(1, 9)),
        abreast=draw(st.none() | st.integers(1, 5)),
        short=draw(st.sampled_from(["merge", "keep", "drop"])),
        long=long,
        num_batches=None,
    )


@st.composite
def whole_sets(draw: st.DrawFn) -> Case:
    """Chains that fix a set, which plans take as one window."""
    size = draw(st.integers(0, 24))
    seed = {"seed": draw(st.integers(0, 3))}
    some = st.lists(st.integers(0, max(0, size - 1)), min_size=1, unique=True)
    leaves = [SamplerCall(sk.RandomSampler, seed), SamplerCall(sk.SequentialSampler, {})]
    if size:
        subset = {"indices": draw(some)}
        leaves += [SamplerCall(sk.SubsetSampler, subset), SamplerCall(sk.SubsetRandomSampler, subset | seed)]
        leaves += [SamplerCall(sk.SequentialSampler, {"start_index": size // 2})]
    roots = [SamplerCall(sk.RandomSampler, seed), SamplerCall(sk.DistributedSampler, seed)]
    links = (draw(st.sampled_from(leaves)), draw(st.sampled_from(roots)))
    return Case(links, size, draw(st.integers(0, 5)), num_shards=draw(st.integers(1, 4)), by_world=True)


@st.composite
def batched(draw: st.DrawFn) -> tuple[Case, TokenBatches]:
    """A legal chain, half of them one that reads a set whole, and a recipe."""
    case = draw(chains() | whole_sets())
    return case, draw(recipes(len(case.layout)))


def cuts(case: Case) -> bool:
    return any(link.arguments.get("num_samples") for link in case.links)


@settings(max_examples=40, deadline=None)
@given(batched())
def test_every_law_holds_over_every_legal_chain(drawn):
    case, recipe = drawn
    # A set has no first samples: `num_samples` is refused there, and cuts windows.
    recipe = replace(recipe, window=recipe.window or 5) if cuts(case) else recipe
    plan, expected = laws.planned(case, recipe)
    laws.require_each_once(plan, expected)
    if recipe.long != "alone":
        laws.require_limits(plan, recipe.max_tokens)


@pytest.mark.parametrize("short", ["merge", "keep", "drop"])
@pytest.mark.parametrize("lengths", [[], [6], [12, 6, 6, 5, 5, 5], [12, 12, 6] + [5] * 9, [6] * 11])
def test_every_law_holds_of_small_static_plans(lengths, short):
    for abreast, pool, multiple in product(range(1, 5), (1, 2), (1, 2)):
        recipe = TokenBatches(
            BUDGET, lengths=lengths, waste=0, pool=pool, abreast=abreast, short=short, count_multiple=multiple
        )
        plan = recipe.over(sk.RandomSampler(seed=3), len(lengths)).plan(1)
        laws.require_each_once(plan, list(range(len(lengths))))
        laws.require_inverse(plan, len(lengths))
        laws.require_limits(plan, BUDGET)
        assert short != "merge" or sum(map(len, laws.read(plan))) == len(lengths)


@st.composite
def packed(draw: st.DrawFn) -> tuple[Case, sk.PackBatches, list[int]]:
    """A legal chain, half of them one that reads a set whole, and a recipe."""
    case = draw(chains() | whole_sets())
    size = len(case.layout)
    lengths = draw(st.lists(st.integers(0, 30), min_size=size, max_size=size))
    multiple = draw(st.sampled_from([1, 2, 3]))
    recipe = sk.PackBatches(
        12,
        lengths=lengths,
        packs=draw(st.integers(1, 3)),
        window=5 if cuts(case) else draw(st.none() | st.integers(1, 9)),
        long=draw(st.sampled_from(["split", "drop", "truncate"])),
        length_multiple=multiple,
        abreast=draw(st.none() | st.integers(1, 5)),
    )
    return case, recipe, lengths


@settings(max_examples=40, deadline=None)
@given(packed())
def test_every_law_holds_for_packs_over_every_legal_chain(drawn):
    case, recipe, lengths = drawn
    laws.require_packs(*laws.planned(case, recipe), recipe, lengths)


@pytest.mark.parametrize("long", ["split", "drop", "truncate"])
@pytest.mark.parametrize("window", [None, 4])
def test_every_law_holds_of_documents_of_several_packs(long, window):
    lengths = [4, 6, 25, 5, 0, 36, 5, 36, 12, 1]
    for packs, multiple in product((1, 2), (1, 3)):
        recipe = sk.PackBatches(
            12, lengths=lengths, packs=packs, window=window, long=long, length_multiple=multiple
        )
        plans = recipe.over(sk.RandomSampler(seed=3), len(lengths))
        laws.require_packs(plans.plan(1), [*range(len(lengths))], recipe, lengths)
        laws.require_inverse(plans.plan(1), len(lengths))
        laws.require_resume(plans, 1)


def test_a_chain_that_shuffles_nothing_is_packed_in_its_order():
    recipe = sk.PackBatches(10, lengths=[4, 6, 25, 5, 5, 1], window=3)
    plan = recipe.plan(sk.SequentialSampler(), 6)
    window = recipe.cut(np.arange(3), np.array([4, 6, 25]), WindowContext(0, 0, 0, 1))
    assert [batch.tolist() for batch in window] == [batch.ids.tolist() for batch in plan][:4]
    assert [(batch.ids.tolist(), batch.starts.tolist()) for batch in plan] == [
        ([2], [0]),
        ([2], [10]),
        ([1, 0], [0, 0]),
        ([2], [20]),
        ([3, 4], [0, 0]),
        ([5], [0]),
    ]


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
