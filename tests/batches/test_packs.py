"""Packs: each kept token once, over sets and over windows, and what becomes of long documents."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import samplerkit as sk
from tests.batches import laws
from tests.batches.test_laws import cuts, whole_sets
from tests.testing.strategies import Case, chains

RNG = np.random.default_rng(7)
LENGTHS = np.clip(RNG.lognormal(3, 1, 300), 0, 200).astype(np.int64).tolist()
LENGTHS[17] = 0


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


@settings(max_examples=25, deadline=None)
@given(packed())
def test_every_law_holds_over_every_legal_chain(drawn):
    case, recipe, lengths = drawn
    sampler, constants = case.sampler(), case.constants()
    plans = recipe.over(sampler, case.dataset, constants=constants)
    plan = plans.plan(case.epoch)
    expected = list(sampler.undealt_order(case.dataset, case.epoch, constants=constants))
    laws.require_packs(plan, recipe, expected, lengths)
    if len(case.layout):
        laws.require_inverse(plan, len(case.layout))
    laws.require_resume(plans, case.epoch)


def small_sets(most: int) -> Iterator[list[int]]:
    """All sets of up to `most` documents of four lengths, one of them longer than two packs of 6."""
    for counts in product(range(most + 1), repeat=4):
        if sum(counts) <= most:
            yield np.repeat([14, 6, 3, 2], counts).tolist()


def check(every: int) -> tuple[int, int]:
    """All small plans of packs, each one inverted and resumed; counted."""
    cases = states = 0
    choices = product(
        small_sets(7), (1, 2, 3), (None, 1, 3, 6), ("split", "drop", "truncate"), (1, 2), (1, 3)
    )
    for lengths, abreast, window, long, packs, multiple in islice(choices, 0, None, every):
        recipe = sk.PackBatches(
            6,
            lengths=lengths,
            packs=packs,
            window=window,
            long=long,
            abreast=abreast,
            length_multiple=multiple,
        )
        plans = recipe.over(sk.RandomSampler(seed=cases), len(lengths))
        plan = plans.plan(cases % 3)
        batches = laws.require_packs(plan, recipe, list(range(len(lengths))), lengths)
        laws.require_inverse(plan, len(lengths), batches)
        states += laws.require_resume(plans, cases % 3, batches)
        cases += 1
    return cases, states


ALL = 330 * 3 * 4 * 3 * 2 * 2


def test_a_part_of_all_small_plans_of_packs_keeps_every_law():
    assert check(every=1009)[0] == -(-ALL // 1009)


def test_a_chain_that_shuffles_nothing_is_packed_in_its_order():
    recipe = sk.PackBatches(10, lengths=[4, 6, 25, 5, 5, 1], window=3)
    plan = recipe.plan(sk.SequentialSampler(), 6)
    assert [(batch.ids.tolist(), batch.starts.tolist()) for batch in plan] == [
        ([2], [0]),
        ([2], [10]),
        ([1, 0], [0, 0]),
        ([2], [20]),
        ([3, 4], [0, 0]),
        ([5], [0]),
    ]


def main() -> None:
    """Looks at all small plans: twenty minutes or so."""
    cases, states = check(every=1)
    assert cases == ALL
    print(f"{cases:,} plans of packs, resumed from {states:,} states, no law broken")


if __name__ == "__main__":
    main()
