"""The ledger: edits of a run, held against a count one by one."""

from __future__ import annotations

import pickle
from functools import cache

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.order.removal import Holes
from samplerkit.samplers.edit import chained
from tests.samplers.ledger_walk import walk

CHAINS = [
    lambda rng: sk.SequentialSampler(),
    lambda rng: sk.RandomSampler(seed=int(rng.integers(9))),
    lambda rng: sk.RandomSampler(shuffle="partial", lanes=int(rng.integers(1, 6)), partial_size=3),
    lambda rng: sk.RandomSampler(shuffle="files", lanes=int(rng.integers(1, 6))),
    lambda rng: sk.SubsetSampler([3, 1, 2, 3]),
    lambda rng: sk.RandomSampler(num_samples=3),
]


def random_case(number):
    """A chain over a small layout, with skips in the order of their positions."""
    rng = np.random.default_rng(number)
    layout = sk.Layout([*rng.integers(1, 9, rng.integers(1, 6)).tolist(), 4])
    chain = CHAINS[number % len(CHAINS)](rng)
    ats = np.sort(rng.integers(0, 40, rng.integers(0, 6)))
    edits = [sk.Edit(at=at, skip=rng.integers(1, 30)) for at in ats.tolist()]
    return chain, layout, edits


def base_of(chain, layout):
    """The id at each position of a run without edits."""
    size = len(chain.order(layout))
    epoch_of = cache(lambda epoch: chain.order(layout, epoch)[:])
    return lambda position: epoch_of(position // size)[position % size]


def lanes_of(chain, layout):
    return chain.woven_lanes(layout, chain.run_constants())


def test_skips_are_what_counting_one_by_one_says_and_the_inverse_finds_them():
    cases = 120
    for number in range(cases):
        chain, layout, edits = random_case(number)
        ledger = sk.Ledger(chain, edits)
        size = len(chain.order(layout))
        wanted = walk(base_of(chain, layout), lanes_of(chain, layout), edits, 50)
        epochs = [ledger.order(layout, epoch) for epoch in range(-(-50 // size))]
        assert np.concatenate(epochs)[:50].tolist() == wanted, number
        for order in epochs:
            ids = order[:]
            which, places = order.positions_of(np.arange(len(layout)))
            assert which.size == ids.size
            assert (ids[places] == which).all(), number
    print(f"{cases} cases")


def test_a_ledger_without_edits_reads_what_its_sampler_reads():
    chain, layout = sk.RandomSampler(seed=3), sk.Layout([5, 7])
    for epoch in range(3):
        assert sk.Ledger(chain).order(layout, epoch)[:].tolist() == chain.order(layout, epoch)[:].tolist()


def test_what_is_before_an_edit_stays_as_it_was():
    chain = sk.RandomSampler(seed=3, shuffle="partial", lanes=3)
    layout = sk.Layout([50] * 7)
    plain, edited = chain.order(layout)[:], sk.Ledger(chain, [sk.Edit(at=100, skip=30)]).order(layout)[:]
    assert (plain[:100] == edited[:100]).all()
    assert edited[100:320].tolist() == plain[130:].tolist()


def test_skips_at_far_positions_cost_nothing():
    ledger = sk.Ledger(sk.RandomSampler(seed=1), [sk.Edit(at=10**15, skip=10**14)])
    assert ledger.order(10**9, epoch=10**6)[5] == sk.RandomSampler(seed=1).order(10**9, epoch=1_100_000)[5]


@pytest.mark.parametrize(
    ("said", "error", "place"),
    [
        ({"at": -1, "skip": 1}, sk.ArgumentRangeError, "at"),
        ({"at": 2**62 + 1, "skip": 1}, sk.ArgumentRangeError, "at"),
        ({"at": 1.5, "skip": 1}, sk.ArgumentTypeError, "at"),
        ({"at": 1}, sk.ArgumentValueError, "edit"),
        ({"at": 1, "skip": 0}, sk.ArgumentRangeError, "skip"),
        ({"at": 2**61, "skip": 2**62}, sk.ArgumentRangeError, "skip"),
        ({"at": 1, "weights": [1, 2]}, sk.ArgumentTypeError, "weights"),
        ({"at": 1, "weights": {"web": -1.0, "code": 2}}, sk.ArgumentRangeError, "weights[0]"),
        ({"at": 1, "weights": {"web": 0.0}}, sk.ArgumentRangeError, "weights"),
        ({"at": 1, "without": [-1]}, sk.ArgumentRangeError, "without"),
        ({"at": 1, "without": [0.5]}, sk.ArgumentTypeError, "without[0]"),
        ({"at": 1, "source": "new"}, sk.ArgumentValueError, "source"),
        ({"at": 1, "global_batch": 0}, sk.ArgumentRangeError, "global_batch"),
    ],
)
def test_an_edit_that_cannot_be_meant_is_an_error_that_names_what(said, error, place):
    with pytest.raises(error) as raised:
        sk.Edit(**said)
    assert raised.value.place == place


def test_edits_out_of_order_are_refused_and_the_one_is_named():
    with pytest.raises(sk.ArgumentValueError, match=r"edits\[2\].at: lies before the edit ahead of it, at 9"):
        sk.Ledger(edits=[sk.Edit(at=5, skip=1), sk.Edit(at=9, skip=1), sk.Edit(at=6, skip=1)])


@pytest.mark.parametrize(
    "make",
    [
        lambda: sk.Ledger(sk.DistributedSampler(2, 0)),
        lambda: sk.Ledger(sk.Ledger(sk.SequentialSampler())),
        lambda: sk.DistributedSampler(2, 0).add_child(sk.Ledger(sk.SequentialSampler())),
        lambda: sk.Ledger().order(3),
    ],
)
def test_a_ledger_stands_outermost_over_a_chain_that_is_not_dealt(make):
    with pytest.raises(sk.CompositionError):
        make()


def test_an_edit_is_a_value_that_travels_and_digests_name_what_was_said():
    edits = [
        sk.Edit(at=1, skip=4),
        sk.Edit(at=2, weights={"web": 1, "code": 3}, without=[5, 3, 3]),
        sk.Edit(at=2, global_batch=64),
    ]
    assert pickle.loads(pickle.dumps(edits)) == edits  # noqa: S301  # our own bytes
    assert edits[1] == sk.Edit(at=2, weights={"code": 3.0, "web": 1.0}, without=np.array([3, 5]))
    assert len({edit.digest for edit in edits}) == 3
    assert len({*chained(edits), *chained(edits[::-1])}) == 7
    ledger = sk.Ledger(sk.SequentialSampler(), edits[:1])
    again = pickle.loads(pickle.dumps(ledger))  # noqa: S301  # our own bytes
    assert again.order(9)[:].tolist() == ledger.order(9)[:].tolist()


def test_holes_in_any_order_are_those_of_a_set():
    rng = np.random.default_rng(5)
    for _ in range(300):
        begins = rng.integers(0, 40, rng.integers(0, 8))
        ends = begins + rng.integers(0, 9, begins.size)
        holes = Holes().and_rows(begins[:3], ends[:3]).and_rows(begins[3:], ends[3:])
        gone = {row for begin, end in zip(begins, ends, strict=True) for row in range(begin, end)}
        left = np.array([row for row in range(80) if row not in gone])
        assert holes.rows(np.arange(left.size)).tolist() == left.tolist()
        counts, is_kept = holes.kept(np.arange(80))
        assert is_kept.tolist() == [row not in gone for row in range(80)]
        assert counts.tolist() == [int((left < row).sum()) for row in range(80)]
