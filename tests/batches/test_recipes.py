"""The batches of each recipe, over sets and over windows."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.batches.cutting import halved
from samplerkit.batches.packs.pack_plan import PackPlan
from samplerkit.batches.recipe import describe
from samplerkit.batches.set_plan import StaticPlan
from samplerkit.batches.window_plan import WindowPlan
from samplerkit.order.deal import World
from tests.batches import laws
from tests.chains import under

RNG = np.random.default_rng(7)
LENGTHS = np.clip(RNG.lognormal(3, 1, 300), 1, 200).astype(np.int64)
FILES = sk.Layout([120, 0, 80, 100])


SETS = {
    "random": sk.RandomSampler(seed=3),
    "adaptive": sk.RandomSampler(seed=3, shuffle="adaptive"),
    "distributed": sk.DistributedSampler(4, 1, seed=3),
    "a random subset": sk.SubsetRandomSampler(range(0, 300, 2), seed=3),
    "a subset": under(sk.RandomSampler(seed=3), sk.SubsetSampler([9, 4, 200, 5])),
    "a part of a subset": under(
        sk.RandomSampler(seed=3), under(sk.SequentialSampler(1, 50), sk.SubsetSampler(range(0, 300, 4)))
    ),
    "a split": under(sk.DistributedSampler(2, 0, seed=3), sk.SequentialSampler(0, 250)),
    "the end": under(sk.RandomSampler(seed=3), sk.SequentialSampler(40)),
    "dealt in sequence": under(sk.DistributedSampler(2, 0, shuffle=False), sk.RandomSampler(seed=3)),
}
ORDERS = {
    "files": sk.RandomSampler(shuffle="files", seed=3),
    "partial": sk.RandomSampler(shuffle="partial", partial_size=32, seed=3),
    "infile": sk.DistributedSampler(2, 0, shuffle="infile", seed=3),
    "mixed": sk.MixtureSampler([3, 0, 1, 1], num_samples=400, seed=3),
    "weighted": sk.WeightedRandomSampler(np.arange(1, 301), num_samples=500, seed=3),
    "replacement": sk.RandomSampler(replacement=True, seed=3),
    "cut": sk.DistributedSampler(2, 0, num_samples=60, shuffle="partial", seed=3),
    "a repeat": sk.SubsetRandomSampler([5, 5, 9], seed=3),
    "below the root": under(sk.RandomSampler(seed=3), sk.DistributedSampler(2, 0, seed=3)),
    "a part of what was shuffled": under(sk.SequentialSampler(0, 99), sk.RandomSampler(seed=3)),
    "another algorithm": sk.RandomSampler(seed=3, algorithm="mindspore-2.10"),
    "in storage order": sk.SequentialSampler(),
    "listed": under(sk.DistributedSampler(2, 0, shuffle=False), sk.SubsetSampler([7, 3, 9, 4])),
}


def undealt(sampler: sk.Sampler, epoch: int = 0) -> list[int]:
    return list(sampler.undealt_order(FILES, epoch))


PLANS = [
    (sk.TokenBatches(400, lengths=LENGTHS, pool=2), StaticPlan, 4096),
    (sk.PackBatches(100, lengths=LENGTHS, packs=2), PackPlan, 16_384),
]
"""Recipes, the plan of a set, and the window of any other order; `test_laws.py` has the laws."""


@pytest.mark.parametrize("name", SETS)
def test_a_chain_that_reads_a_set_has_the_same_number_of_batches_in_each_epoch(name):
    for recipe, kind, _ in PLANS:
        plans = recipe.over(SETS[name], FILES)
        first, second = plans.plan(0), plans.plan(1)
        assert isinstance(first, kind)
        assert len(first) == len(second)
        assert laws.read(first) != laws.read(second) or name == "a subset"  # of four samples
        assert laws.read(plans.plan(0)) == laws.read(first)


@pytest.mark.parametrize("name", ORDERS)
def test_every_other_chain_is_cut_into_windows_of_its_order(name):
    for recipe, _, window in PLANS:
        assert recipe.over(ORDERS[name], FILES, abreast=2).window == window
        assert isinstance(recipe.plan(ORDERS[name], FILES, 1), WindowPlan)


def test_without_shuffling_windows_stay_in_order_each_from_long_to_short():
    lengths = [3, 9, 1, 7, 5, 2]
    plan = sk.TokenBatches(9, lengths=lengths, window=3, abreast=2).plan(sk.SequentialSampler(), 6)
    assert laws.read(plan) == [[1], [0, 2], [3], [4], [5]]
    wide = sk.TokenBatches(100_000, lengths=[100_000, 34_463, 99_990], window=4)
    assert laws.read(wide.plan(sk.SequentialSampler(), 3)) == [[0], [2], [1]]  # more than 2^16 apart


def test_a_plan_depends_on_no_rank_and_only_on_the_first_number_of_ranks():
    recipe = sk.TokenBatches(400, lengths=LENGTHS, pool=2)
    plans = []
    for shards, shard in ((4, 0), (4, 3)):
        sampler = sk.DistributedSampler(shards, shard, seed=3)
        plans.append(laws.read(recipe.plan(sampler, 300)))
    assert plans[0] == plans[1]
    later = sk.DistributedSampler(3, 0, seed=3)
    assert laws.read(recipe.plan(later, 300)) != plans[0]
    first = sk.DistributedSampler(4, 0, seed=3).chain.constants()
    assert laws.read(recipe.plan(later, 300, constants=first)) == plans[0]
    assert laws.read(recipe.over(later, 300, abreast=4).plan(0)) == plans[0]
    assert (
        recipe.over(sk.RandomSampler(), 300, constants=sk.RandomSampler().chain.constants(World(8))).abreast
        == 8
    )


def test_pairs_of_lengths_keep_both_limits():
    pairs = np.stack([LENGTHS, LENGTHS[::-1]], axis=1)
    plans = sk.TokenBatches(900, lengths=pairs, count_multiple=2).over(sk.RandomSampler(seed=1), 300)
    plan = plans.plan(0)
    assert isinstance(plan, WindowPlan)
    laws.require_each_once(plan, list(range(300)))
    laws.require_limits(plan, 900)
    ids = plan[0]
    assert plan.shape(0) == (ids.size, *pairs[ids].max(axis=0).tolist())
    assert 0.7 < plan.efficiency() <= 1


def test_a_pair_whose_square_is_above_64_bits_is_above_the_budget():
    pairs = [(5, 3), (2**31 - 1, 2**31 - 1), (2**31 - 1, 2**30)]
    recipe = sk.TokenBatches(100, lengths=pairs, quadratic=10, long="alone")
    assert sorted(laws.read(recipe.plan(sk.SequentialSampler(), 3))) == [[0], [1], [2]]


def test_a_user_cost_limits_batches():
    def cost(pairs):
        return pairs[:, 0] * pairs[:, 1]

    pairs = np.stack([LENGTHS, LENGTHS[::-1]], axis=1)
    plan = sk.TokenBatches(30_000, lengths=pairs, cost=cost, window=300).plan(sk.RandomSampler(seed=1), 300)
    for count, first, second in map(plan.shape, range(len(plan))):
        assert count * first * second <= 30_000
    for power in (2, 1.5):  # costs that are integers, and floats
        recipe = sk.TokenBatches(40_000, lengths=LENGTHS, cost=lambda lengths, p=power: lengths**p, pool=1)
        powers = recipe.plan(sk.RandomSampler(), 300)
        assert isinstance(powers, StaticPlan)
        for count, longest in map(powers.shape, range(len(powers))):
            assert count * longest**power <= 40_000
    halves = sk.TokenBatches(2, lengths=[1] * 12, cost=lambda lengths: lengths / 2)
    assert [len(batch) for batch in halves.plan(sk.RandomSampler(), 12)] == [4, 4, 4]


@pytest.mark.parametrize("window", [None, 100])
def test_samples_above_the_budget_are_dropped_and_counted_or_truncated_or_alone(window):
    def plan(long, lengths=LENGTHS):
        return sk.TokenBatches(100, lengths=lengths, long=long, window=window).plan(sk.RandomSampler(), 300)

    above = np.flatnonzero(LENGTHS > 100)
    assert above.size
    dropped = plan("drop")
    assert dropped.dropped == above.size
    assert all(dropped.batch_of(id).size == 0 for id in above.tolist())
    pairs = np.stack([LENGTHS // 2, LENGTHS - LENGTHS // 2], axis=1)
    for alone in (plan("alone"), plan("alone", pairs)):
        assert all(alone[int(alone.batch_of(id)[0])].tolist() == [id] for id in above.tolist())
    truncated = plan("truncate")
    assert truncated.dropped == 0
    laws.require_limits(truncated, 100)
    assert truncated.shape(int(truncated.batch_of(int(above[0]))[0])) == (1, 100)


def test_the_repr_of_a_plan_has_the_digest_of_its_lengths():
    lengths = sk.TokenBatches(16, lengths=[3, 5]).plan(sk.RandomSampler(), 2)
    assert repr(lengths).startswith("StaticPlan(lengths ")
    classes = sk.ClassBatches(1, 1, labels=[0, 1]).plan(sk.RandomSampler(), 2)
    assert repr(classes) == "ClassPlan(no lengths, abreast=1)"


def test_buckets_hold_lengths_between_boundaries():
    boundaries, sizes = [10, 40, 200], [16, 8, 2]
    for window, short in ((None, "keep"), (90, "keep"), (None, "merge"), (90, "drop"), (None, "drop")):
        recipe = sk.BucketBatches(boundaries, sizes, lengths=LENGTHS, window=window, short=short)
        plan = recipe.plan(sk.RandomSampler(seed=1), 300)
        laws.require_each_once(plan, list(range(300)))
        for batch in plan:
            bucket = np.searchsorted(boundaries, LENGTHS[batch])
            assert len(batch) <= sizes[bucket.max()]
            assert short == "merge" or len({*bucket.tolist()}) == 1
            # In a window batches are halved to make whole groups, in a set not.
            assert short != "drop" or window or len(batch) == sizes[bucket.max()]
        assert plan.shape(0, of_bucket=True)[1] in boundaries


def test_batches_by_keys_hold_one_key():
    shapes = [(64, 64 + 32 * int(k)) for k in RNG.integers(0, 3, 300)]
    recipe = sk.BucketBatches(None, {(64, 64): 9, (64, 96): 6, (64, 128): 4}, keys=shapes, short="drop")
    plans = recipe.over(sk.RandomSampler(seed=1), 300)
    plan = plans.plan(0)
    laws.require_each_once(plan, list(range(300)))
    assert all(len({shapes[id] for id in batch}) == 1 for batch in laws.read(plan))
    assert {plan.shape(number) for number in range(len(plan))} == {(9, 64, 64), (6, 64, 96), (4, 64, 128)}
    assert (
        plans.digest
        != sk.BucketBatches(None, 1, keys=[(1, *k) for k in shapes]).over(sk.RandomSampler(), 300).digest
    )


@pytest.mark.parametrize("sampler", [SETS["random"], SETS["a random subset"]], ids=["all", "subset"])
def test_class_batches_hold_p_classes_with_k_different_samples_each(sampler):
    labels = RNG.integers(0, 7, 300)
    plans = sk.ClassBatches(3, 4, labels=labels, num_batches=70).over(sampler, 300)
    plan = plans.plan(2)
    batches = laws.require_access(plan)
    allowed = set(undealt(sampler))
    for batch in batches:
        assert sorted(Counter(labels[batch].tolist()).values()) == [4, 4, 4]
        assert len({*batch}) == 12
        assert {*batch} <= allowed
    laws.require_inverse(plan, 300)
    counts = Counter(label for batch in batches for label in set(labels[batch].tolist()))
    # A round has two batches: six of the seven classes.
    assert max(counts.values()) - min(counts.values()) <= 15
    assert laws.read(plans.plan(3)) != batches
    assert len(sk.ClassBatches(3, 4, labels=labels).plan(sk.RandomSampler(), 300)) == 25


@pytest.mark.parametrize(
    "recipe",
    [
        sk.TokenBatches(400, lengths=LENGTHS),
        sk.TokenBatches(400, lengths=LENGTHS, window=100),
        sk.PackBatches(64, lengths=LENGTHS, packs=2),
    ],
    ids=lambda recipe: recipe.words,
)
def test_num_batches_keeps_the_first_batches_of_a_plan(recipe):
    plan = replace(recipe, num_batches=5).plan(sk.RandomSampler(), 300)
    assert laws.require_same(plan) == laws.read(recipe.plan(sk.RandomSampler(), 300))[:5]
    assert len(plan) == 5
    laws.require_inverse(plan, 300)


def test_a_batch_is_halved_from_the_largest_and_keeps_every_sample():
    batches = [np.arange(8), np.arange(8, 11), np.arange(11, 12)]
    more = halved(batches, 6, multiple=2)
    assert [batch.tolist() for batch in more] == [[0, 1], [2, 3], [4, 5, 6, 7][:2], [6, 7], [8, 9, 10], [11]]
    assert len(halved(batches, 99)) == 12
    assert [*map(laws.listed, halved(batches, 2))] == [*map(laws.listed, batches)]


@pytest.mark.parametrize(("multiple", "sizes"), [(None, [3, 3, 3, 3, 6]), (2, [4, 2, 4, 2, 6])])
def test_batches_of_a_user_recipe_are_halved_in_the_middle_or_at_its_multiple(multiple, sizes):
    class OneBatch(sk.BatchRecipe):
        window, abreast = 6, 2

        def cut(self, ids, lengths, context):
            return [np.arange(ids.size)]

    recipe = OneBatch()
    if multiple:
        recipe.count_multiple = multiple
    assert [len(batch) for batch in recipe.plan(sk.RandomSampler(), 18)] == sizes


def test_the_description_of_a_recipe_is_short_and_differs_with_arguments():
    recipe = sk.TokenBatches(400, lengths=LENGTHS, pool=4)
    assert recipe.words == "batches-1: TokenBatches(max_tokens=400, pool=4)"
    assert "lengths" not in repr(recipe) + repr(sk.PackBatches(8, lengths=LENGTHS))
    assert "keys" not in repr(sk.BucketBatches(None, 2, keys=[1, 2]))
    assert sk.TokenBatches(400, pool=5).words != recipe.words
    long = sk.BucketBatches(list(range(1, 90)), list(range(1, 90)))
    other = sk.BucketBatches(list(range(1, 90)), list(range(2, 91)))
    assert len(long.words) < 160
    assert long.words != other.words
    assert describe("a" * 158, {}) == "a" * 158 + "()"
    assert len(describe("a" * 159, {})) < 159
    digests = {
        sk.TokenBatches(400, lengths=lengths).over(sk.RandomSampler(), 300).digest
        for lengths in (LENGTHS, LENGTHS + 1)
    }
    assert len(digests) == 2


@pytest.mark.parametrize("kind", [np.uint8, np.uint64, np.int32])
def test_numbers_of_batches_may_be_integers_of_any_type(kind):
    plan = sk.TokenBatches(12, lengths=[3, 4] * 5).plan(sk.RandomSampler(seed=7), 10)
    numbers = np.array([2, 0], kind)
    assert [batch.tolist() for batch in plan.batches(numbers)] == [plan[2].tolist(), plan[0].tolist()]
    with pytest.raises(sk.OutOfDatasetError, match="outside of a plan"):
        plan[2**63]


@pytest.mark.parametrize("abreast", [1, 8])
@pytest.mark.parametrize("recipe", [recipe for recipe, *_ in PLANS])
def test_a_batch_may_be_read_several_times_at_once(recipe, abreast):
    plan = recipe.over(sk.RandomSampler(seed=3), 300, abreast=abreast).plan(0)
    assert [*map(laws.listed, plan.batches([*range(len(plan))] * 2))] == laws.read(plan) * 2


class Pairs(sk.BatchRecipe):
    """Neighbours in pairs."""

    window = 4
    lengths = np.array([3, 3])

    def cut(self, ids, lengths, context):
        return np.split(np.arange(ids.size), range(2, ids.size, 2))


def test_a_batch_that_holds_a_sample_twice_is_found_once():
    plan = Pairs().plan(sk.SubsetSampler([0, 0, 1]), 2)
    assert sorted(batch.tolist() for batch in plan) == [[0, 0], [1]]
    assert plan.batch_of(0).size == 1
