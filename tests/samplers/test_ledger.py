"""The ledger: edits of a run, held against a count one by one."""

from __future__ import annotations

import os
import pickle
from functools import cache, partial

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.order.keys import Key, path_number
from samplerkit.order.mixing.removed_positions import RemovedRows
from samplerkit.samplers.mixing.edit import chained
from tests.order.throwing import die
from tests.samplers.ledger_walk import walk, walk_mixture

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
    cases = int(os.environ.get("SAMPLERKIT_LEDGERS", "60"))
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


def mixture_case(number):
    """A tree with a mixture, integers for weights, and edits of weights and skips."""
    rng = np.random.default_rng(1000 + number)
    names = ["web", "code", "books"][: int(rng.integers(2, 4))]
    tree = sk.Layout.tree({name: int(rng.integers(1, 9)) for name in names})
    lanes, seed = int(rng.integers(1, 5)), int(rng.integers(99))
    shares = [rng.integers(0, 9, len(names)).tolist() for _ in range(7)]
    shares = [one if any(one) else [1] * len(names) for one in shares]
    mix = sk.MixtureSampler(
        dict.fromkeys(names, sk.SequentialSampler()),
        30,
        weights=dict(zip(names, shares[0], strict=True)),
        lanes=lanes,
        seed=seed,
    )
    ats = np.sort(rng.integers(0, 70, rng.integers(0, 7))).tolist()
    said = [
        (at, shares[1 + at % 6] if rng.integers(2) else None, int(rng.integers(0, 30) * rng.integers(2)))
        for at in ats
    ]
    said = [(at, given, left or 3 * (given is None)) for at, given, left in said]
    edits = [
        sk.Edit(
            at=at,
            weights=None if given is None else dict(zip(names, given, strict=True)),
            skip=left or None,
        )
        for at, given, left in said
    ]
    return tree, mix, shares[0], said, edits


def test_weights_and_skips_of_a_mixture_are_what_counting_each_draw_says_and_the_inverse_finds_them():
    cases = int(os.environ.get("SAMPLERKIT_LEDGERS", "16"))
    for number in range(cases):
        tree, mix, weights, said, edits = mixture_case(number)
        sizes, starts = np.diff(tree.part_starts).tolist(), tree.part_starts.tolist()
        sources = [
            lambda place, size=size, start=start: place % size + start
            for size, start in zip(sizes, starts, strict=False)
        ]
        key = Key(mix.seed, 0, 0, "dice")
        read = walk_mixture(partial(die, key, index=path_number(())), sources, weights, mix.lanes, said, 90)
        ledger = sk.Ledger(mix, edits)
        epochs = [ledger.order(tree, epoch) for epoch in range(3)]
        assert np.concatenate(epochs).tolist() == [id for _, id in read], number
        for order in epochs:
            which, places = order.positions_of(np.arange(len(tree)))
            assert which.size == 30
            assert (order[places] == which).all(), number
    print(f"{cases} cases")


def test_a_new_source_is_read_from_its_edit_on_and_ids_stay():
    corpus = sk.Layout.tree({"web": 100, "code": 50, "new": 30})
    mix = sk.MixtureSampler({"web": None, "code": None}, 2000, weights={"web": 3, "code": 1})
    edit = sk.Edit(at=1000, source="new", weights={"web": 1, "code": 1, "new": 2})
    ids = sk.Ledger(mix, [edit]).order(corpus)[:]
    assert (ids[:1000] == mix.order(corpus)[:1000]).all()
    assert (ids[:1000] < 150).all()
    assert np.count_nonzero(ids[1000:] >= 150) == pytest.approx(500, abs=9)


# fmt: off
GOLDEN = {
    "a mixture of new weights, a new source and skips": (
        [
            [
                129, 27, 53, 75, 2, 26, 127, 76, 1, 28, 51, 77, 6, 32, 54, 122, 106, 31, 57, 81,
                115, 30, 110, 147, 5, 108, 56, 140, 111, 149, 143, 138, 144, 120, 55, 82, 114, 107,
                116, 130, 145, 117, 136, 126, 146, 36, 142, 79
            ],
            [
                7, 141, 133, 118, 4, 159, 61, 80, 170, 33, 58, 109, 121, 179, 124, 104, 158, 35,
                168, 125, 150, 137, 112, 128, 8, 152, 60, 83, 155, 39, 169, 135, 9, 156, 59, 172,
                123, 103, 134, 85, 153, 40, 154, 84, 10, 165, 65, 162
            ],
        ],
        ["55a61a681de76168", "4f06ef5747d9d038", "1991ae9329677f96", "09db35083c6de2ae"],
    ),
    "a mixture that ids leave in passes under way and to come": (
        [
            [
                129, 27, 53, 75, 2, 26, 127, 76, 1, 28, 54, 77, 6, 32, 57, 122, 106, 30, 56, 81,
                5, 149, 61, 147, 144, 36, 143, 140, 145, 141, 136, 138, 146, 137, 142, 82, 139, 34,
                133, 130, 4, 33, 58, 80, 148, 131, 134, 135
            ],
            [
                8, 135, 132, 132, 142, 145, 60, 131, 138, 130, 147, 85, 149, 40, 143, 136, 148, 140,
                133, 137, 9, 134, 146, 84, 141, 139, 65, 131, 142, 135, 144, 86, 144, 37, 138, 137,
                132, 146, 145, 89, 10, 38, 136, 148, 141, 147, 140, 139
            ],
        ],
        ["55a61a681de76168", "d88af9f0f80fac70", "284e87e46b1f095b"],
    ),
    "a chain with a skip": (
        [[1, 5, 8, 4, 10, 6, 2, 9, 7, 4, 2, 8], [7, 6, 0, 5, 10, 3, 1, 9, 11, 9, 6, 4]],
        ["55a61a681de76168", "da363b32a1cb55a2"],
    ),
}
# fmt: on


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_vectors_pin_what_edited_runs_read_and_the_digests_of_edits(name):
    layout = sk.Layout.tree({"web": sk.Layout([40, 60]), "code": 50, "new": 30})
    web = sk.RandomSampler(shuffle="partial", partial_size=4, seed=2)
    sources, weights = {"web": web, "code": None}, {"web": 3, "code": 1}
    edits = [
        sk.Edit(at=10, skip=9),
        sk.Edit(at=20, weights={"web": 1, "code": 2.5}),
        sk.Edit(at=52, source="new", weights={"web": 1, "code": 1, "new": 1}, skip=3),
    ]
    if name.startswith("a mixture that ids leave"):
        edits = [
            sk.Edit(at=10, skip=9, without=range(3, 90, 4)),
            sk.Edit(at=20, weights={"web": 1, "code": 2.5}, without=range(100, 130)),
        ]
    ledger = sk.Ledger(sk.MixtureSampler(sources, 48, weights=weights, lanes=4, seed=11), edits)
    if name == "a chain with a skip":
        layout, ledger = 12, sk.Ledger(sk.RandomSampler(seed=4), [sk.Edit(at=5, skip=3)])
    read = [ledger.order(layout, epoch)[:].tolist() for epoch in range(2)]
    assert (read, ledger.digests) == GOLDEN[name]


CORPUS = sk.Layout.tree({"web": 100, "code": 50, "new": 30})


@pytest.mark.parametrize(
    ("said", "error", "message"),
    [
        ({"weights": {"web": 1, "kode": 1}}, sk.ArgumentValueError, "name no source of the mixture.*kode"),
        ({"weights": {"web": 1}}, sk.ArgumentValueError, "lack a source.*code"),
        ({"weights": {"web": 1, "code": 1, "new": 1}}, sk.ArgumentValueError, "name no source.*new"),
        ({"source": "web", "weights": {"web": 1, "code": 1}}, sk.ArgumentValueError, "that is there"),
        ({"source": "x", "weights": {"web": 1, "x": 1}}, sk.ArgumentValueError, "no part of the dataset"),
        ({"without": [180]}, sk.ArgumentValueError, "not in a dataset of 180"),
    ],
)
def test_an_edit_that_does_not_go_with_the_mixture_is_refused_by_its_place(said, error, message):
    mix = sk.MixtureSampler({"web": None, "code": None}, 200, weights={"web": 3, "code": 1})
    with pytest.raises(error, match=f"edit at 10: .*{message}"):
        sk.Ledger(mix, [sk.Edit(at=10, **said)]).order(CORPUS)


def test_weights_need_a_mixture_whose_passes_run_on():
    for more in ({"passes": "restart"}, {"stop": "once"}):
        given = {} if "stop" in more else {"weights": {"web": 3, "code": 1}}
        mix = sk.MixtureSampler({"web": None, "code": None}, **given, **more)
        edits = [sk.Edit(at=10, weights={"web": 1, "code": 1})]
        with pytest.raises(sk.NotSupportedError, match="edit at 10"):
            sk.Ledger(mix, edits).order(CORPUS)
        assert sk.Ledger(mix, [sk.Edit(at=10, skip=5)]).order(CORPUS)[10] == mix.order(CORPUS)[15]


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
        holes = RemovedRows().and_rows(begins[:3], ends[:3]).and_rows(begins[3:], ends[3:])
        gone = {row for begin, end in zip(begins, ends, strict=True) for row in range(begin, end)}
        left = np.array([row for row in range(80) if row not in gone])
        assert holes.rows(np.arange(left.size)).tolist() == left.tolist()
        counts, is_kept = holes.kept(np.arange(80))
        assert is_kept.tolist() == [row not in gone for row in range(80)]
        assert counts.tolist() == [int((left < row).sum()) for row in range(80)]
