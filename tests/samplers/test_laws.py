"""The laws of DESIGN.md, over every legal chain of samplers; and the shares of ranks."""

import pickle
import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, seed, settings

import samplerkit as sk
from samplerkit.order.modes import FILE_AWARE
from samplerkit.order.sequences import Table
from samplerkit.samplers.iteration import seeded_generators
from tests.order.test_source_draws import WEIGHTS
from tests.samplers.dealing import dealt, woven
from tests.testing.links import Backwards, EvenOdd, Rotated
from tests.testing.strategies import MAX_SHARDS, chains


def reaching(strategy, kinds, most):
    """Cases, drawn until each kind occurs: the first few of each; and how often each occurred.

    Kinds with enough cases are not checked again, since some checks evaluate orders.
    """
    cases, reached = [], Counter()
    for number in range(36):

        @seed(number)
        @settings(max_examples=100, deadline=None, derandomize=False, database=None)
        @given(strategy)
        def draw(case):
            is_of = [name for name, holds in kinds.items() if reached[name] < most and holds(case)]
            reached.update(is_of)
            if is_of:
                cases.append(case)

        draw()
        if all(reached[name] >= min(3, most) for name in kinds):
            break
    return cases, reached


@cache
def drawn():
    """Chains, drawn once for all laws: it takes longer to draw a chain than to look at it."""
    return reaching(chains(), REACHED, most=8)


def law(is_held=lambda case: True):
    """Checks a law on all chains of a kind; an error names its chain."""

    def of(test):
        def every_chain():
            for case in filter(is_held, drawn()[0]):
                try:
                    test(case)
                except BaseException as error:
                    error.add_note(f"the chain is {case}")
                    raise

        every_chain.of_one = test
        return every_chain

    return of


def deals_at_the_root(case):
    return case.deals_at_the_root


@law()
def test_no_rank_is_in_the_order(case):
    assert len({tuple(case.undealt(shard)) for shard in case.shards}) == 1
    assert len({case.constants(shard) for shard in case.shards}) == 1


@law(deals_at_the_root)
def test_no_number_of_ranks_is_in_the_order_once_the_run_has_started(case):
    undealt, constants = list(case.undealt()), case.constants()
    for other in range(max(1, case.offset), MAX_SHARDS + 1):
        links = case.links
        if case.dealer is not None:
            arguments = {**links[-1].arguments, "num_shards": other, "shard_id": 0}
            links = (*links[:-1], replace(links[-1], arguments=arguments))
        resumed = replace(case, links=links, num_shards=other).sampler()
        assert list(resumed.undealt_order(case.dataset, case.epoch, constants=constants)) == undealt


@law(deals_at_the_root)
def test_each_shard_is_the_dealt_view_of_the_global_order(case):
    undealt = list(case.undealt())
    for shard in case.shards:
        assert list(case.order(shard)) == dealt(undealt, shard, case.num_shards, case.offset)


@law(lambda case: not case.deals_at_the_root)
def test_a_distributed_sampler_below_the_root_makes_an_order_of_its_shards_woven(case):
    assert list(case.undealt()) == woven([list(case.order(shard)) for shard in case.shards])


@law(lambda case: case.deals_at_the_root and case.dealer is not None)
def test_num_samples_of_a_distributed_sampler_limits_all_shards_together(case):
    root = case.links[-1]
    num_samples = root.arguments.get("num_samples")
    unlimited = replace(root, arguments={**root.arguments, "num_samples": None})
    without = replace(case, links=(*case.links[:-1], unlimited))
    total = num_samples * case.num_shards if num_samples else None
    assert list(case.undealt()) == list(without.undealt())[:total]
    if num_samples:
        assert max(case.lengths()) <= num_samples


@law()
def test_positions_in_any_sequence_equal_iteration(case):
    randomly = random.Random(1)
    for shard in case.shards:
        order = case.order(shard)
        ids = list(order)
        positions = [randomly.randrange(-len(ids), len(ids)) for _ in ids]
        assert order[np.array(positions, dtype=np.int64)].tolist() == [ids[p] for p in positions]
        assert [order[p] for p in positions] == [ids[p] for p in positions]
        assert order[::-2].tolist() == ids[::-2]
        assert np.asarray(order).tolist() == ids


@law()
def test_an_order_is_the_same_each_time_it_is_made(case):
    sampler = case.sampler()
    first = sampler.order(case.dataset, case.epoch, world=case.world(0))
    ids = list(first)
    with suppress(sk.OutOfDatasetError):
        list(sampler.order(case.dataset, case.epoch + 1, world=case.world(0)))
    again = sampler.order(case.dataset, case.epoch, world=case.world(0))
    assert list(first) == list(again) == list(case.order()) == ids


@law()
def test_every_position_is_found_by_its_id(case):
    for order in (case.undealt(), *map(case.order, case.shards)):
        ids = list(order)
        requested = range(-1, len(case.layout) + 1)
        which, positions = order.positions_of(np.array(requested))
        expected = [(i, p) for i, sought in enumerate(requested) for p, id in enumerate(ids) if id == sought]
        assert list(zip(which.tolist(), positions.tolist(), strict=True)) == expected


def test_no_global_generator_is_read_or_touched():
    def states():
        return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()  # noqa: NPY002

    seen = []
    for start in (1, 2):
        random.seed(start)
        np.random.seed(start)  # noqa: NPY002  # the legacy global generator is just what is watched here
        torch.manual_seed(start)
        before = states()
        seen.append([list(case.order()) for case in drawn()[0]])
        assert states() == before
    assert seen[0] == seen[1]


def test_the_generators_of_a_users_sampler_get_seeds_that_never_change():
    own = [random.Random(), np.random.RandomState(), np.random.default_rng(), torch.Generator()]
    user = SimpleNamespace(**{str(number): each for number, each in enumerate(own)})
    with seeded_generators(user, seed=2**63, epoch=3):
        shared = [random.getrandbits(32), np.random.bytes(4).hex(), int(torch.randint(2**31, ()))]  # noqa: NPY002
        drawn = [own[0].getrandbits(32), own[1].bytes(4).hex(), own[2].bytes(4).hex()]
        drawn.append(int(torch.randint(2**31, (), generator=own[3])))
    assert shared == [1150318009, "a9581388", 1211936821]
    assert drawn == [734682574, "5055a015", "f5b2ffd9", 2064861315]


def drawn_by(case, depth, child, lanes):
    """What one sampler draws by itself, read from a child that is written down."""
    link = case.links[depth].build()
    below = replace(case, links=case.links[:depth])
    layout = case.layout if child is None else sk.Layout(len(child))
    if depth and below.dealer is None:
        layout = below.undealt().layout
    order = None if child is None else Table(np.array(child, dtype=np.int64))
    positions = link.draw(layout, sk.Context(case.epoch, depth, lanes, case.dataset, order))
    return [p if child is None else child[p] for p in np.asarray(positions).tolist()]


def evaluated(case, shard):
    """The order of one shard, by plain lists."""
    ids = None
    for depth, link in enumerate(case.links):
        inner = link.is_distributed and depth != case.dealer
        num_shards = link.arguments["num_shards"] if inner else case.num_shards
        ids = drawn_by(case, depth, ids, num_shards)
        if not link.is_distributed:
            continue
        num_samples = link.arguments.get("num_samples")
        if num_samples:
            ids = ids[: num_samples * num_shards]
        shard_id = link.arguments["shard_id"] if inner else shard
        ids = dealt(ids, shard_id, num_shards, link.arguments["offset"])
    return ids if case.dealer is not None else dealt(ids, shard, case.num_shards, -1)


@law()
def test_a_parent_reads_its_child_at_the_positions_that_it_draws(case):
    for shard in case.shards:
        assert list(case.order(shard)) == evaluated(case, shard)


@law()
def test_an_order_is_equal_to_the_order_of_the_same_recipe(case):
    one, other = case.order(), case.order()
    assert one == other
    assert hash(one) == hash(other)
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301  # pickled in the same line


@law()
def test_the_orders_of_two_epochs_are_equal_only_if_they_hold_the_same_ids(case):
    with suppress(sk.OutOfDatasetError):  # a sampler may draw too few samples for the one above it
        one, other = case.order(), replace(case, epoch=case.epoch + 1).order()
        # The other way round does not hold: two permutations of few ids may be the same by chance.
        assert one != other or one[:].tolist() == other[:].tolist()


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
    _, reached = drawn()
    assert {name: reached[name] for name in REACHED if reached[name] < 3} == {}


BATCH, BATCHES = 32, 3000
DUE = 20
"""Reads of a source that are due to a rank, from which on it counts as unseen when there are none."""

NOISE = 0.12
"""Four times the spread of a variance of so many batches."""

CELLS = [
    ("[3, 1]", 4),
    ("[.7, .2, .1]", 10),
    ("[sqrt 2, 1, pi]", 6),
    ("ten by Zipf", 16),
    ("64 equal ones", 2),
    ("[.9, .09, .01]", 256),
]


@pytest.mark.parametrize("has_lanes", [False, True], ids=["one lane", "a lane a rank"])
@pytest.mark.parametrize(("title", "ranks"), CELLS)
def test_every_rank_reads_every_source_as_evenly_as_independent_draws(title, ranks, has_lanes):
    weights, batches = WEIGHTS[title], BATCHES // ranks
    names = [f"s{number}" for number in range(len(weights))]
    size = BATCHES * BATCH
    tree = sk.Layout.tree(dict.fromkeys(names, size))
    mixture = sk.MixtureSampler(
        dict.fromkeys(names, sk.SequentialSampler()),
        batches * BATCH * ranks,
        weights=dict(zip(names, weights, strict=True)),
        lanes=ranks if has_lanes else 1,
    )
    sources = mixture.order(tree)[:] // size
    # Positions are dealt to ranks like cards.
    dealt = sources.reshape(-1, BATCH, ranks)
    for number, share in enumerate((np.array(weights) / sum(weights)).tolist()):
        counts = np.count_nonzero(dealt == number, axis=1)
        if share * BATCH * batches >= DUE:
            assert counts.sum(axis=0).all()
        variance = np.mean((counts - BATCH * share) ** 2)
        assert variance / (BATCH * share * (1 - share)) <= 1 + NOISE
        # By how much a rank's count is off its share, in samples, after each of its batches.
        off = np.cumsum(counts, axis=0) - BATCH * share * np.arange(1, batches + 1)[:, None]
        if has_lanes:
            assert np.sqrt(np.mean(off**2)) <= 3
