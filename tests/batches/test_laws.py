"""The laws of plans, over chains that Hypothesis draws and over small cases."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import samplerkit as sk
from samplerkit.batches.token_batches import TokenBatches
from tests.batches import laws
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
