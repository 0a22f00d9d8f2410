"""Exactly once with batches, over small sets: every cut, two resizes, every tail.

    python -m tests.loading.test_batches_exactly_once 8    # of each order, recipe and tail so many settings

The runs go through the public surface of `Loader`: what each rank reads in each step, the state after a step,
and a loader that loads it. All 43,476 settings would take three hours: `test_batches_by_values` asks them all
of the values that loaders stand on.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from functools import cache
from itertools import islice, pairwise, product
from typing import NamedTuple

import numpy as np
import pytest

import samplerkit as sk

BUDGET = 12
TAILS = ("pad", "drop", "ragged", "split")


def child(parent, below):
    parent.add_child(below)
    return parent


ORDERS = {
    "global": lambda n: sk.RandomSampler(seed=5),
    "partial": lambda n: sk.RandomSampler(seed=5, shuffle="partial", partial_size=4),
    "files": lambda n: sk.DistributedSampler(shuffle="files", seed=5),
    "mixture": lambda n: sk.MixtureSampler([2, 0, 1], num_samples=max(1, n), seed=5),
    "weighted": lambda n: sk.WeightedRandomSampler(np.arange(1, n + 1), num_samples=n, seed=5),
    "subset": lambda n: child(sk.RandomSampler(seed=5), sk.SubsetSampler(range(0, n, 2))),
    "below the root": lambda n: child(sk.SequentialSampler(), sk.DistributedSampler(2, shuffle=True, seed=5)),
    "in order": lambda n: sk.SequentialSampler(),
}
RECIPES = {
    "static": lambda lengths: sk.TokenBatches(BUDGET, lengths=lengths, waste=0, pool=1),
    "windows": lambda lengths: sk.TokenBatches(BUDGET, lengths=lengths, window=5),
    "buckets": lambda lengths: sk.BucketBatches([5, 6, 12], [2, 2, 1], lengths=lengths),
}


class Setting(NamedTuple):
    """A run, but for its ranks."""

    lengths: tuple[int, ...]
    order: str
    recipe: str
    tail: str

    def loader(self, ranks, rank):
        size = len(self.lengths)
        layout = sk.Layout([size // 3, 0, size - size // 3])
        recipe = RECIPES[self.recipe](self.lengths)
        world = sk.World(ranks, rank)
        return sk.Loader(layout, ORDERS[self.order](size), batches=recipe, tail=self.tail, world=world)


def settings():
    """All sets of up to twelve samples of up to three lengths, each order, each recipe, each tail."""
    for counts in product(range(13), repeat=3):
        if 1 <= sum(counts) <= 12:
            lengths = tuple(
                np.random.default_rng(sum(counts)).permutation(np.repeat([12, 6, 5], counts)).tolist()
            )
            for order, recipe, tail in product(ORDERS, RECIPES, TAILS):
                # A mixture wants samples in both of its parts.
                if order != "mixture" or len(lengths) >= 3:
                    yield Setting(lengths, order, recipe, tail)


class Read(NamedTuple):
    """What all ranks read in each step, the pads, and the state before each step and at the end."""

    steps: list[list[tuple[int, ...]]]
    pads: int
    states: tuple[str, ...]


def read(loaders, saved=None):
    """Reads what is left; the ranks agree on every state, and but for `ragged` on the number of steps."""
    steps, pads, said = [], 0, set()
    for run in loaders:
        if saved is not None:
            run.load_state_dict(json.loads(saved))
        for step in range(run.steps_left):
            ids, are_pads = run.ids(step), run.pads(step)
            assert ids.size
            assert are_pads.all() or not are_pads.any()
            steps += [[]] if step == len(steps) else []
            pads += int(are_pads.any())
            steps[step] += [] if are_pads.any() else [tuple(ids.tolist())]
    for run in loaders:
        said.add(tuple(json.dumps(run.state_dict(step=step)) for step in range(len(steps) + 1)))
        if run.tail != "ragged":
            assert run.steps_left == len(steps)
    (states,) = said
    return Read(steps, pads, states)


def flat(steps):
    return Counter(id for step in steps for batch in step for id in batch)


def require_start(setting, first, ranks_of, runs):
    """Every cut and resize, twice, of a run that began on so many ranks; counts the cases."""
    again = cache(lambda ranks, state: read(runs[ranks], state))
    fresh = [setting.loader(first, rank) for rank in range(first)]
    whole = read(fresh)
    plan, order = fresh[0].plan, Counter(list(fresh[0].order))
    batches = [tuple(batch.tolist()) for batch in plan]
    wanted = flat([batches])
    assert not wanted - order
    assert (order - wanted).total() == plan.dropped
    require_alike(setting, plan, first, whole)

    def require_rest(before, at, steps, ranks):
        end = len(batches) - (len(batches) - at) % ranks if setting.tail == "drop" else len(batches)
        assert before + flat(steps) + flat([batches[end:]]) == wanted, (setting, first, at, ranks)

    cases = 0
    require_rest(Counter(), 0, whole.steps, first)
    for cut, state in enumerate(whole.states[:-1]):
        before = flat(whole.steps[:cut])
        for second in ranks_of:
            part = again(second, state)
            require_rest(before, cut * first, part.steps, second)
            assert second != first or part.steps == whole.steps[cut:]
            for more, later in enumerate(part.states[:-1]):
                seen, at = before + flat(part.steps[:more]), cut * first + more * second
                for third in ranks_of:
                    require_rest(seen, at, again(third, later).steps, third)
                    cases += 1
    last = json.loads(whole.states[-1])
    assert (last["epoch"], last["position"]) == (int(bool(whole.steps)), 0)
    return cases


def require_all(setting):
    """Every number of ranks at the first start."""
    # Below the root the number of shards is a constant.
    ranks_of = [2] if setting.order == "below the root" else range(1, 5)
    # The loaders that go on are the same ones for each start: what a state says is all that they may keep.
    runs = {ranks: [setting.loader(ranks, rank) for rank in range(ranks)] for ranks in ranks_of}
    return sum(require_start(setting, first, ranks_of, runs) for first in ranks_of)


def require_alike(setting, plan, ranks, whole):
    """No batch is over its limit, also where it was split, and batches of a step are neighbours by length."""
    for batch in (batch for step in whole.steps for batch in step):
        assert max(setting.lengths[id] for id in batch) * len(batch) <= BUDGET
    for step, of_step in enumerate(whole.steps[: len(plan) // ranks]):
        assert of_step == [tuple(plan[ranks * step + rank].tolist()) for rank in range(ranks)]
    if plan.window is None:
        uppers = [plan.shape(number, of_bucket=True)[1] for number in range(len(plan) // ranks * ranks)]
        spans = sorted((min(group), max(group)) for group in zip(*[iter(uppers)] * ranks, strict=True))
        assert all(shorter[1] <= longer[0] for shorter, longer in pairwise(spans)), (setting, spans)


def check(chosen):
    """Looks at some settings; gives their number and that of their cases."""
    cases = [require_all(setting) for setting in chosen]
    return f"{len(cases)} settings, {sum(cases):,} cases, lost 0, repeated 0"


def of_each_kind(count, seed):
    """Chooses so many settings of each order, recipe and tail."""
    kinds = defaultdict(list)
    for setting in settings():
        kinds[setting[1:]].append(setting)
    for kind, several in enumerate(kinds.values()):
        for number in np.random.default_rng((seed, kind)).choice(len(several), count, replace=False):
            yield several[number]


def test_nothing_is_lost_or_repeated_by_two_resizes_of_batches():
    print(check(islice(settings(), 3, None, 4999)))


@pytest.mark.campaign
def test_nothing_is_lost_or_repeated_by_loaders_of_each_kind():
    print(check(of_each_kind(1, seed=0)))


if __name__ == "__main__":
    for batch in range(int(sys.argv[1])):
        print(check(of_each_kind(1, seed=batch)), flush=True)
