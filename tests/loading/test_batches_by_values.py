"""All small runs with batches, each law where it lives, so that none of 43,476 settings is left out.

    python -m tests.loading.test_batches_by_values

What a run reads is a plan (which samples are in a batch), dealt (which batches in which step), from a state
on. How integers are dealt knows no plan: each chain of a start and two resizes is checked once for each
number of batches. Of each plan all batches are checked, and what a state at each position leads to. What
joins the two, `Reading`, is tested once a state, with other ranks and another tail each time; and real
loaders at random (`tests/campaigns/ledgers`).
"""

import json
from functools import cache
from itertools import combinations, islice, pairwise, product
from typing import NamedTuple

import numpy as np

import samplerkit as sk
from samplerkit.batches.plan import BatchPlan, BatchSamples
from samplerkit.loading.run.batch_unit import EpochBatches
from samplerkit.loading.run.delivery import Delivery, Reading
from samplerkit.loading.run.run import Run
from samplerkit.loading.state.state import Place
from samplerkit.order.typing import Ids, as_array
from tests.chains import under

BUDGET = 12
TAILS = ("pad", "drop", "ragged", "split")


ORDERS = {
    "global": lambda n: sk.RandomSampler(seed=5),
    "partial": lambda n: sk.RandomSampler(seed=5, shuffle="partial", partial_size=4),
    "files": lambda n: sk.DistributedSampler(shuffle="files", seed=5),
    "mixture": lambda n: sk.MixtureSampler([2, 0, 1], num_samples=max(1, n), seed=5),
    "weighted": lambda n: sk.WeightedRandomSampler(np.arange(1, n + 1), num_samples=n, seed=5),
    "subset": lambda n: under(sk.RandomSampler(seed=5), sk.SubsetSampler(range(0, n, 2))),
    "below the root": lambda n: under(sk.SequentialSampler(), sk.DistributedSampler(2, shuffle=True, seed=5)),
    "in order": lambda n: sk.SequentialSampler(),
}
RECIPES = {
    "static": lambda lengths: sk.TokenBatches(BUDGET, lengths=lengths, waste=0, pool=1),
    "windows": lambda lengths: sk.TokenBatches(BUDGET, lengths=lengths, window=5),
    "buckets": lambda lengths: sk.BucketBatches([5, 6, 12], [2, 2, 1], lengths=lengths),
}


def plans():
    """All sets of up to twelve samples of up to three lengths, each order, each recipe."""
    for counts in product(range(13), repeat=3):
        if 1 <= sum(counts) <= 12:
            lengths = tuple(
                np.random.default_rng(sum(counts)).permutation(np.repeat([12, 6, 5], counts)).tolist()
            )
            for order, recipe in product(ORDERS, RECIPES):
                # A mixture wants samples in both of its parts.
                if order != "mixture" or len(lengths) >= 3:
                    yield lengths, order, recipe


class Dealt(NamedTuple):
    """The numbers that all ranks read in each step, and the position before each step and at the end."""

    steps: list[list[int]]
    positions: list[int]


@cache
def dealt(tail: str, count: int, start: int, ranks: int) -> Dealt:
    """What is dealt from a position on; equal steps on all ranks, and pads that are numbered as pads."""
    delivery = Delivery(count, start, ranks, 1, tail)
    steps: list[list[int]] = [[] for _ in range(delivery.job_steps)]
    for rank in range(ranks):
        if tail != "ragged":
            assert delivery.steps(rank) == len(steps)
        for step in range(delivery.steps(rank)):
            (number,) = as_array(delivery.dealt(rank, step)).tolist()
            # The last step of `split` reads parts of the remaining batches: `require_parts`.
            is_split = tail == "split" and not delivery.is_full(step)
            steps[step] += [] if is_split else [number]
    if tail == "split" and (rest := (count - start) % ranks):
        steps[-1] = list(range(count - rest, count))
    assert all(pad < start + len(steps) * ranks for step in steps for pad in step if pad >= count)
    assert all(delivery.is_over_after(done) == (done == len(steps)) for done in range(1, len(steps) + 1))
    return Dealt(steps, [delivery.position_after(done) for done in range(len(steps) + 1)])


@cache
def require_chains(tail: str, count: int, first: int, ranks: tuple[int, ...]) -> int:
    """Every cut, a resize, every cut, a second resize: each batch once, but for those that `drop` omits."""

    def require_rest(before: list[int], at: int, of: int) -> Dealt:
        rest = dealt(tail, count, at, of)
        end = count - (count - at) % of if tail == "drop" else count
        read = before + [number for step in rest.steps for number in step if number < count]
        assert sorted(read) == list(range(end)), (tail, count, first, at, of)
        return rest

    cases = 0
    chain = require_rest([], 0, first)
    for cut, at in enumerate(chain.positions[:-1]):
        before = sum(chain.steps[:cut], [])
        for second in ranks:
            part = require_rest(before, at, second)
            for more, later in enumerate(part.positions[:-1]):
                seen = before + sum(part.steps[:more], [])
                for third in ranks:
                    require_rest(seen, later, third)
                    cases += 1
    return cases


def require_plan(plan: BatchPlan, lengths: Ids, order: Ids, ranks: int) -> BatchSamples:
    """The batches hold the order once and keep their limit, and those of a group are neighbours by length."""
    samples = plan.samples(np.arange(len(plan)))
    counts = np.bincount(samples.ids, minlength=lengths.size)
    assert not (missing := np.bincount(order, minlength=lengths.size) - counts).min(initial=0)
    assert missing.sum() == plan.dropped
    assert np.unique(samples.positions).size == samples.positions.size
    sizes = np.diff(samples.edges)
    assert (sizes * np.maximum.reduceat(lengths[samples.ids], samples.edges[:-1]) <= BUDGET).all()
    if plan.window is None:
        uppers = plan.measure.upper(np.maximum.reduceat(lengths[samples.ids], samples.edges[:-1]))
        groups = uppers[: len(plan) // ranks * ranks].reshape(-1, ranks)
        spans = sorted(zip(groups.min(axis=1).tolist(), groups.max(axis=1).tolist(), strict=True))
        assert all(shorter[1] <= longer[0] for shorter, longer in pairwise(spans))
    return samples


def require_parts(units: EpochBatches, lengths: Ids, first: int, ranks: int) -> None:
    """What `split` makes of the last batches: the same samples, within limits, a part a rank, pads marked."""
    last = units.plan.samples(np.arange(first, len(units.plan)))
    parts = units.parts(first, ranks)
    assert len(parts) == ranks
    real = [part.ids for part in parts if (part.draws < units.num_draws).all()]
    assert sorted(np.concatenate(real).tolist()) == sorted(last.ids.tolist())
    assert len(real) == min(ranks, last.ids.size)
    assert all((part.draws >= units.num_draws).all() for part in parts[len(real) :])
    assert all(part.ids.size and lengths[part.ids].max() * part.ids.size <= BUDGET for part in parts)


def require_glue(units: EpochBatches, position: int, ranks: int, tail: str) -> None:
    """What `Reading` reads of a step is what is dealt in it; pads repeat whole batches and are marked."""
    count = len(units.plan)
    steps = [[] for _ in dealt(tail, count, position, ranks).steps]
    for rank in range(ranks):
        reading = Reading(units, Delivery(units.total, position, ranks, 1, tail), rank)
        for step, samples in reading.samples():
            is_pad = samples.draws >= units.num_draws
            assert is_pad.all() or not is_pad.any()
            steps[step] += [] if is_pad.any() else samples.ids.tolist()
    for read, numbers in zip(steps, dealt(tail, count, position, ranks).steps, strict=True):
        real = np.array([number for number in numbers if number < count])
        assert sorted(read) == sorted(units.plan.samples(real).ids.tolist())


def require_all(lengths: tuple[int, ...], order: str, recipe: str) -> tuple[int, int]:
    """Each start, cut and tail of one plan; gives the number of chains and of states."""
    ranks_of = (2,) if order == "below the root" else (1, 2, 3, 4)
    layout = sk.Layout([len(lengths) // 3, 0, len(lengths) - len(lengths) // 3])
    sizes, sampler, batches = np.array(lengths), ORDERS[order](len(lengths)), RECIPES[recipe](lengths)
    chains = states = 0
    for first in ranks_of:
        run = Run.of(sampler, layout, sk.World(first, 0), batches)
        other, units = run, run.epoch(0)
        plan, count = units.plan, len(units.plan)
        whole = require_plan(plan, sizes, run.epoch(0).order[:], first)
        for left, ranks in combinations(range(1, 5), 2):
            if left <= count and ranks in ranks_of:
                require_parts(units, sizes, count - left, ranks)
        for position in range(count):
            saved = json.loads(json.dumps(run.state(Place(0, position)).to_dict()))
            other, _ = other.restored(saved)
            rest, begin = other.epoch(0).plan, whole.edges[position]
            samples = rest.samples(np.arange(position, count))
            assert not rest.has(count)
            assert np.array_equal(samples.edges + begin, whole.edges[position:])
            assert np.array_equal(samples.ids, whole.ids[begin:])
            assert np.array_equal(samples.positions, whole.positions[begin:])
            # Other ranks and another tail each time.
            require_glue(other.epoch(0), position, ranks_of[states % len(ranks_of)], TAILS[states // 4 % 4])
            states += 1
        chains += sum(require_chains(tail, count, first, ranks_of) for tail in TAILS)
    return chains, states


def check(every, first=3):
    """Checks one plan in so many, from a number on; counts settings, chains and states."""
    total = np.zeros(3, dtype=np.int64)
    for plan in islice(dict.fromkeys(plans()), first, None, every):
        total += (len(TAILS), *require_all(*plan))
    return total.tolist()


def summary(total):
    return "{:,} settings, {:,} chains of two resizes, {:,} states, lost 0, repeated 0".format(*total)


def test_dealing_several_steps_at_once_equals_dealing_each():
    cases = 0
    for tail, total, ranks, size, lanes in product(TAILS, (0, 1, 7, 12), (1, 2, 3, 4), (1, 3), (1, 2, 3)):
        for start, ramp in product((0, 5), ((), ((6, 12),))):
            if start > total or (ramp and 12 % ranks):
                continue
            delivery = Delivery(total, start, ranks, size, tail, rotation=1, lanes=lanes, ramp=ramp)
            for rank, first, stride in product(range(ranks), range(3), (1, 2)):
                steps = range(first, delivery.steps(rank), stride)
                if steps:
                    expected = [as_array(delivery.dealt(rank, step)).tolist() for step in steps]
                    assert [as_array(dealt).tolist() for dealt in delivery.dealt_in(rank, steps)] == expected
                    cases += 1
    assert cases > 1000


def test_no_plan_or_state_of_small_runs_loses_or_repeats_a_sample():
    assert check(every=997)[1] > 1000


PARTS = 101
"""A prime: each part meets every order and recipe."""


def main():
    """Checks all settings, and prints a line for each part of them."""
    total = np.zeros(3, dtype=np.int64)
    for part in range(PARTS):
        total += check(PARTS, part)
        print(f"part {part}: {summary(total.tolist())}", flush=True)


if __name__ == "__main__":
    main()
