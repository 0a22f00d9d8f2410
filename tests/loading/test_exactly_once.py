"""Exactly once, exhaustively: every cut of every small run, resumed on every number of ranks and batch size.

The runs go through the public surface of `Loader`: what each rank reads in each step, the state after a step,
and a loader that loads it. What is delivered is counted with a Counter, where a loss or a repeat shows.
"""

import json
from collections import Counter
from functools import cache
from itertools import product

import numpy as np
import pytest

import samplerkit as sk
from tests.loading import numbers
from tests.loading.test_edits import ranks_of
from tests.loading.worker_kinds import with_threads_too, with_workers
from tests.numbers import Numbers

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


TAILS = ["pad", "drop", "ragged"]


def job(ranks, layout, tail, batch_size, **options):
    """The loaders of all ranks."""
    layout = sk.Layout(layout)
    sampler = sk.DistributedSampler(shuffle="files" if layout.has_files else "global", seed=3)
    options = {"batch_size": batch_size, "tail": tail, "collate_fn": list, **numbers.WORKERS, **options}
    return ranks_of(Numbers(layout), sampler, ranks, **options)


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize(
    "as_layout", [lambda size: size, lambda size: [size // 5, 0, size - size // 5]], ids=["plain", "files"]
)
def test_ranks_have_equal_steps_or_differ_by_one_as_the_tail_says(as_layout, tail):
    uneven = 0
    for size, ranks, batch_size in product(range(1, 17, 3), range(1, 6), range(1, 4)):
        read = [list(loader) for loader in job(ranks, as_layout(size), tail, batch_size)]
        steps = [len(batches) for batches in read]
        samples = [sum(map(len, batches)) for batches in read]
        assert max(samples) - min(samples) <= (tail == "ragged")
        assert max(steps) - min(steps) <= (tail == "ragged")
        uneven += len(set(steps)) > 1
        if tail == "drop":
            assert {len(batch) for batches in read for batch in batches} <= {batch_size}
        if tail == "ragged":
            assert Counter(sum(sum(read, []), [])) == Counter(range(size))
    # The control: there are cases in which ranks would wait for one another if they had to.
    assert (uneven > 0) == (tail == "ragged")


@pytest.mark.parametrize(
    ("tail", "samples"), [("pad", [1, 1, 1, 1, 1]), ("drop", [0, 0, 0, 0, 0]), ("ragged", [1, 1, 0, 0, 0])]
)
@pytest.mark.parametrize(
    ("layout", "workers"),
    [(2, 0), ([1, 1], 0), ([0, 2, 0], "2 threads")],
    ids=str,
)
def test_fewer_samples_or_files_than_ranks_end_with_a_pad_each_or_empty(layout, tail, samples, workers):
    loaders = job(5, layout, tail, 3, **with_workers(workers))
    for _ in range(2):  # the second epoch begins where the first one ended
        assert [sum(len(batch) for batch in loader) for loader in loaders] == samples
    real = sum(int((~loader.pads(step)).sum()) for loader in loaders for step in range(loader.steps_left))
    assert real == (0 if tail == "drop" else 2)


@pytest.mark.parametrize("tail", TAILS)
def test_an_empty_dataset_is_an_empty_epoch(tail):
    for loader in job(2, 0, tail, 3):
        assert list(loader) == []
        assert loader.epoch == 1


@pytest.mark.parametrize(("ranks", "batch_size"), [(4, 2), (3, 4), (7, 3)])
@with_threads_too
def test_a_metric_without_the_pads_is_that_of_one_process_and_one_with_them_is_not(ranks, batch_size):
    size = 10
    masked, unmasked = Counter(), Counter()
    for loader in job(ranks, size, "pad", batch_size):
        for batch in loader:
            pads = loader.pads(loader.step - 1)
            masked.update(sample for sample, pad in zip(batch, pads, strict=True) if not pad)
            unmasked.update(batch)
    assert masked == Counter(range(size))
    assert unmasked != masked
    assert unmasked.total() == -(-size // ranks) * ranks


HUGE = 2**40
SIZES = [2**33 + 1, 5, 2**32 + 7, 2**40]


@pytest.mark.parametrize(
    ("recipe", "layout"),
    [
        (sk.SequentialSampler(), sk.Layout(HUGE)),
        (sk.RandomSampler(seed=3), sk.Layout(HUGE)),
        (sk.RandomSampler(seed=3), sk.Layout(2**62)),
        (sk.DistributedSampler(shuffle="partial", seed=3, lanes=1), sk.Layout(SIZES)),
        (sk.DistributedSampler(num_samples=2**63 - 1, seed=3), sk.Layout(HUGE)),
    ],
    ids=["sequential", "global", "largest", "files", "as many as there are"],
)
def test_a_rank_receives_the_right_ids_far_beyond_32_bits(recipe, layout):
    """Its first batch after a resume, from some steps of another number of ranks."""
    step = (len(layout) // 3 * 2) // 1024
    saved = sk.Loader(layout, recipe, batch_size=256, world=sk.World(4, 0)).state_dict(step=step)
    with sk.Loader(Numbers(layout), recipe, batch_size=4, num_workers=1, world=sk.World(8, 3)) as loader:
        loader.load_state_dict(json.loads(json.dumps(saved)))
        received, position = next(iter(loader)).tolist(), saved["position"]
    assert position == 1024 * step > 2**32
    order = recipe.undealt_order(layout)
    assert received == order[position + 3 : position + 3 + 8 * 4 : 8].tolist()
    assert max(received) > 2**32
    # The control: ids that went through 32 bits anywhere would be others.
    assert received != [sample % 2**32 for sample in received]


@pytest.mark.parametrize("replacement", [True, False])
def test_weights_beyond_the_2_to_the_24_of_torch_multinomial_are_drawn_from(replacement):
    size = 2**24 + 5
    weights = np.zeros(size)
    heavy = [2**24 - 1, 2**24 + 2, 2**24 + 4]
    weights[heavy] = 1
    sampler = sk.WeightedRandomSampler(weights, 12 if replacement else 3, replacement, seed=3)
    ids = sampler.order(size)[:].tolist()
    assert set(ids) == set(heavy)
    assert replacement or sorted(ids) == heavy
