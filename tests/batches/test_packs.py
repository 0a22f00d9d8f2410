"""Packs of sets and of windows: each token is read once, and long documents are handled as requested."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import samplerkit as sk
from samplerkit.batches.window_plan import WindowContext
from tests.batches import laws
from tests.batches.test_laws import cuts, whole_sets
from tests.testing.strategies import Case, chains


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
def test_every_law_holds_over_every_legal_chain(drawn):
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
