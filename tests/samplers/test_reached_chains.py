"""The chains over which laws are asked reach every sampler, every mode and every way to deal."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, seed, settings

import samplerkit as sk
from samplerkit.order.modes import FILE_AWARE
from samplerkit.testing.links import Backwards, EvenOdd, Rotated
from samplerkit.testing.strategies import Case, chains
from tests.samplers.test_laws import LAW

REACHED = {
    "no samples": lambda case: len(case.layout) == 0,
    "one sample": lambda case: len(case.layout) == 1,
    "files": lambda case: case.layout.num_files > 1,
    "four samplers": lambda case: len(case.links) == 4,
    "no distributed sampler, dealt all the same": lambda case: case.dealer is None and case.num_shards > 1,
    "two distributed samplers": lambda case: sum(link.is_distributed for link in case.links) == 2,
    "a deal below the root": lambda case: not case.deals_at_the_root and case.num_shards > 2,
    "a deal that asks the job": lambda case: (
        case.dealer is not None and case.links[case.dealer].arguments["num_shards"] is None
    ),
    "an empty shard": lambda case: len(case.undealt()) > 0 and min(case.lengths()) == 0,
    "a pad": lambda case: case.deals_at_the_root and sum(case.lengths()) > len(case.undealt()),
    "files below a parent": lambda case: any(
        link.arguments.get("shuffle") in FILE_AWARE for link in case.links[1:]
    ),
    "a limit": lambda case: (case.constants().limit or 99) < len(case.layout),
    **{
        kind.__name__: lambda case, kind=kind: any(link.make is kind for link in case.links)
        for kind in (
            sk.DistributedSampler,
            sk.IterSampler,
            sk.MixtureSampler,
            sk.PKSampler,
            sk.FoldSampler,
            sk.RandomSampler,
            sk.RepeatFactorSampler,
            sk.RepeatSampler,
            sk.WindowSampler,
            sk.BlockSampler,
            sk.SequentialSampler,
            sk.SubsetRandomSampler,
            sk.SubsetSampler,
            sk.WeightedRandomSampler,
            EvenOdd,
            Rotated,
            Backwards,
        )
    },
    **{
        f"shuffle {mode.value}": lambda case, mode=mode: any(
            link.arguments.get("shuffle") is mode and len(case.layout) > 4 for link in case.links
        )
        for mode in sk.Shuffle
    },
}


def test_the_chains_reach_every_sampler_every_mode_and_every_way_to_deal():
    reached = Counter()

    # Draws depend on the imported modules too, whose numbers Hypothesis tries: so there are some rounds.
    # What was reached three times is asked no more, since some of it evaluates orders.
    for number in range(36):

        @seed(number)
        @settings(LAW, max_examples=100, derandomize=False, database=None)
        @given(chains())
        def look(case):
            reached.update(name for name, holds in REACHED.items() if reached[name] < 3 and holds(case))

        look()
        if all(reached[name] >= 3 for name in REACHED):
            break
    assert {name: reached[name] for name in REACHED if reached[name] < 3} == {}


def test_a_case_says_all_that_makes_an_order():
    assert set(Case.__dataclass_fields__) == {"links", "dataset", "epoch", "num_shards", "by_world"}
