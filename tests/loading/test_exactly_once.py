"""Exactly once, exhaustively: every cut of every small run, resumed on every number of ranks and batch size.

The runs go through the public surface of `Loader`: what each rank reads in each step, the state after a step,
and a loader that loads it. What is delivered is counted with a Counter, where a loss or a repeat shows.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from itertools import product

import pytest

import samplerkit as sk

RANKS_AND_BATCHES = [(ranks, batch) for ranks in range(1, 5) for batch in range(1, 9) if ranks * batch <= 8]
MODES = {"global": sk.Layout, "files": lambda n: sk.Layout([n // 3, 0, n - n // 3])}


def loader(size, mode, num_samples, offset, tail, ranks, batch, rank):
    sampler = sk.DistributedSampler(shuffle=mode, num_samples=num_samples, offset=offset, seed=5)
    world = sk.World(ranks, rank)
    return sk.Loader(MODES[mode](size), sampler, batch_size=batch, tail=tail, world=world)


@cache
def read(setting, ranks, batch, saved=None):
    """What all ranks read in each step, and together; and the state before each step and at the end."""
    delivered, pads = [], 0
    runs = [loader(*setting, ranks, batch, rank) for rank in range(ranks)]
    for run in runs:
        if saved is not None:
            run.load_state_dict(json.loads(saved))
        for step in range(run.steps_left):
            is_pad = run.pads(step)
            delivered += [Counter()] if step == len(delivered) else []
            delivered[step].update(run.ids(step)[~is_pad].tolist())
            pads += int(is_pad.sum())
    steps = range(len(delivered) + 1)
    (same_on_every_rank,) = {tuple(json.dumps(run.state_dict(step=step)) for step in steps) for run in runs}
    return delivered, total(delivered), pads, same_on_every_rank


def expected(setting, ranks):
    size, mode, num_samples, *_ = setting
    first = loader(*setting, ranks, 1, 0)
    order = sk.DistributedSampler(ranks, 0, shuffle=mode, seed=5).undealt_order(MODES[mode](size))
    limit = size if num_samples is None else min(size, num_samples * ranks)
    assert len(first.order) == limit
    return Counter(order[:limit].tolist())


def total(counters):
    return sum(counters, Counter())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tail", ["pad", "drop", "ragged"])
@pytest.mark.parametrize(
    ("sizes", "least"),
    [((0, 5), 600), pytest.param((1, 12), 2_000, marks=pytest.mark.campaign)],
    ids=["to 5", "12"],
)
def test_nothing_is_lost_or_repeated_by_any_cut_and_any_resize(mode, tail, sizes, least):
    cases = pads_seen = 0
    for size, num_samples, offset in product(sizes, (None, 2), (-1, 1)):
        setting = (size, mode, num_samples, offset, tail)
        for ranks, batch in RANKS_AND_BATCHES:
            delivered, _, pads, states = read(setting, ranks, batch)
            full_epoch = expected(setting, ranks)
            pads_seen += pads
            for cut, state in enumerate(states[:-1]):
                before = total(delivered[:cut])
                for new_ranks, new_batch in RANKS_AND_BATCHES:
                    after, rest, more_pads, _ = read(setting, new_ranks, new_batch, state)
                    both = before + rest
                    cases += 1
                    pads_seen += more_pads
                    if tail == "drop":
                        missing = full_epoch - both
                        assert not both - full_epoch, (setting, ranks, batch, cut, new_ranks, new_batch)
                        assert missing.total() < new_ranks * new_batch
                    else:
                        assert both == full_epoch, (setting, ranks, batch, cut, new_ranks, new_batch)
                    if new_ranks * new_batch == ranks * batch:
                        assert after == delivered[cut:]
    print(f"{mode}, {tail}: {cases} cases, lost 0, repeated 0, pads {pads_seen}")
    assert cases > least
    assert (pads_seen > 0) == (tail == "pad")


@pytest.mark.parametrize("mode", MODES)
def test_the_state_at_the_end_of_an_epoch_says_which_epoch_ended_and_which_begins(mode):
    for size, (ranks, batch) in product(range(1, 13), RANKS_AND_BATCHES):
        states = read((size, mode, None, -1, "pad"), ranks, batch)[3]
        last = json.loads(states[-1])
        assert (last["epoch"], last["position"], last["ended"]) == (1, 0, 0)
        assert [json.loads(state)["position"] for state in states[:-1]] == [
            step * ranks * batch for step in range(len(states) - 1)
        ]
