"""Caps on passes over a source: checked against a walk, as edits, across ranks and resumes, and refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.order.keys import Key
from samplerkit.order.mixing.source_draws import SourceDraws
from samplerkit.order.mixing.weights import thresholds
from tests.numbers import Numbers
from tests.order.throwing import values_of

FAR = 2**40

NAMES = ("web", "wiki", "code", "books")


def case(seed: int, **more: Any) -> tuple[sk.MixtureSampler, sk.Layout]:
    """A random mixture with caps, of which some hold within its epochs, and its layout."""
    rng = np.random.default_rng(seed)
    names = NAMES[: rng.integers(2, 5)]
    sizes = {name: int(rng.integers(1, 60)) for name in names}
    capped = [name for name in names[1:] if rng.random() < 0.7] or [names[1]]
    lanes = int(rng.choice([1, 2, 3, 8]))
    weights = dict(zip(names, rng.dirichlet(np.ones(len(names))).tolist(), strict=True))
    mixture = sk.MixtureSampler(
        dict.fromkeys(names),
        num_samples=int(rng.integers(20, 400)),
        weights=weights,
        max_passes={name: int(rng.integers(1, 6)) for name in capped},
        lanes=lanes,
        seed=seed,
        **more,
    )
    return mixture, sk.Layout.tree(sizes)


def layout_part(layout: sk.Layout, ids: np.ndarray) -> np.ndarray:
    """The number of the part that each id is of."""
    return np.searchsorted(layout.part_starts, ids, side="right") - 1


def walked(mixture: sk.MixtureSampler, layout: sk.Layout, end: int) -> tuple[list[int], dict[str, int]]:
    """The source of each position, drawn one after another, and where each source stopped."""
    draws, names, lanes = SourceDraws(Key(mixture.seed, 0, 0, "dice")), list(mixture.sources), mixture.lanes
    shares = [mixture.weights[name] for name in names]
    most = [mixture.max_passes.get(name, FAR) * len(layout.parts[name]) for name in names]
    turns, read, stops = Counter[tuple[int, int]](), list[int](), dict[str, int]()
    rows, lane_of = np.divmod(np.arange(end), lanes)
    ends = thresholds(shares)
    for position, value in enumerate(values_of(draws, lane_of, rows).tolist()):
        lane = position % lanes
        while True:
            source = int(np.searchsorted(ends, value, side="right")) - 1
            if turns[lane, source] * lanes + lane < most[source]:
                break
            shares[source], stops[names[source]] = 0, position
            ends = thresholds(shares)
        turns[lane, source] += 1
        read.append(source)
    return read, stops


def require_a_walk(seed: int) -> int:
    mixture, layout = case(seed)
    size = mixture.num_samples
    expected, stops = walked(mixture, layout, 3 * size)
    orders = [mixture.order(layout, epoch) for epoch in range(3)]
    ids = np.concatenate([order[:] for order in orders])
    assert layout_part(layout, ids).tolist() == expected
    times = np.bincount(ids, minlength=len(layout))
    for name, start, stop in zip(mixture.sources, layout.part_starts, layout.part_starts[1:], strict=False):
        mine, cap = times[start:stop], mixture.max_passes.get(name)
        if cap is None:
            continue
        assert mine.max() <= cap
        if name in stops:
            # Lanes are within a few samples of one another, so little of the last pass is left out.
            assert cap * mine.size - mine.sum() <= 12 * (mixture.lanes - 1)
    middle = orders[1]
    at = np.random.default_rng(seed).integers(0, size, 40)
    assert (middle[at] == ids[size : 2 * size][at]).all()
    which, positions = middle.positions_of(np.arange(len(layout)))
    assert sorted(positions.tolist()) == list(range(size))
    assert (middle[positions] == which).all()
    return len(stops)


def test_random_mixtures_with_caps_read_what_a_walk_reads_and_no_sample_more_often():
    assert sum(map(require_a_walk, range(25))) > 15


@pytest.mark.parametrize("seed", range(5))
def test_edits_move_the_position_of_a_cap_and_no_sample_comes_more_often(seed):
    mixture, layout = case(seed)
    rng = np.random.default_rng(seed)
    edits = []
    for at in sorted(rng.integers(0, 2 * mixture.num_samples, 4).tolist()):
        kind = rng.integers(0, 3)
        said = {"skip": int(rng.integers(1, 90))}
        if kind == 1:
            said = {"weights": {name: float(rng.random()) + 0.01 for name in mixture.sources}}
        elif kind == 2:
            said = {"without": np.flatnonzero(rng.random(len(layout)) < 0.2)}
            # Of each source something is left.
            said["without"] = np.setdiff1d(said["without"], layout.part_starts)
        edits.append(sk.Edit(at=at, **said))
    ledger = sk.Ledger(mixture, edits)
    orders = [ledger.order(layout, epoch) for epoch in range(5)]
    ids = np.concatenate([order[:] for order in orders])
    first = edits[0].at
    plain = np.concatenate([mixture.order(layout, epoch)[:] for epoch in range(5)])
    assert (ids[:first] == plain[:first]).all()
    times = np.bincount(ids, minlength=len(layout))
    part = layout_part(layout, np.arange(len(layout)))
    passes = np.concatenate([order.passes_at(np.arange(len(order))) for order in orders])
    for number, name in enumerate(mixture.sources):
        if (cap := mixture.max_passes.get(name)) is not None:
            assert times[part == number].max() <= cap
            assert passes[layout_part(layout, ids) == number].max(initial=0) < cap
    at = rng.integers(0, len(orders[1]), 30)
    assert (orders[1][at] == orders[1][:][at]).all()


def test_resumes_on_other_numbers_of_ranks_read_the_run_that_was_never_left():
    layout = sk.Layout.tree({"web": 500, "wiki": 30, "code": 40})
    mixture = sk.MixtureSampler(
        {"web": None, "wiki": None, "code": None},
        240,
        weights={"web": 1, "wiki": 1, "code": 1},
        max_passes={"wiki": 4, "code": 4},
    )
    constants = sk.RunConstants(lanes=4)
    whole = [mixture.undealt_order(layout, epoch, constants=constants)[:] for epoch in range(3)]
    seen, state = list[int](), None
    for num_shards, steps in ((4, 17), (2, 11), (3, 13), (4, 19)):
        loaders = [rank_of(layout, mixture, num_shards, rank, state) for rank in range(num_shards)]
        parts = zip(*(endless(loader) for loader in loaders), strict=True)
        for step in islice(parts, steps):
            seen += sorted(np.concatenate(step).tolist())
        state = loaders[0].state_dict()
    # Which rank reads which sample of a step is for the deal to say.
    assert seen == np.sort(np.concatenate(whole).reshape(-1, 12), axis=1).reshape(-1).tolist()
    wiki = np.bincount(seen)[500:530]
    assert wiki.max() == 4
    assert wiki.sum() > 100


def rank_of(layout: Any, mixture: Any, num_shards: int, rank: int, state: Any) -> sk.Loader:
    batch = 12 // num_shards
    loader = sk.Loader(Numbers(layout), mixture, batch_size=batch, world=sk.World(num_shards, rank))
    if state is not None:
        loader.load_state_dict(state)
    return loader


def endless(loader: sk.Loader) -> Iterator[np.ndarray]:
    while True:
        for batch in loader:
            yield batch.numpy()


def test_the_files_of_a_layout_have_caps_by_number():
    layout = sk.Layout([300, 20])
    capped = sk.MixtureSampler([1, 1], 200, max_passes={1: 2}, lanes=1)
    ids = np.concatenate([capped.order(layout, epoch)[:] for epoch in range(3)])
    assert np.bincount(ids)[300:].tolist() == [2] * 20


def test_caps_of_all_sources_are_the_end_of_the_run():
    layout = sk.Layout.tree({"web": 50, "wiki": 30})
    caps = {"web": 2, "wiki": 2}
    mixture = sk.MixtureSampler(
        {"web": None, "wiki": None}, 80, weights={"web": 1, "wiki": 1}, max_passes=caps
    )
    read = np.concatenate([mixture.order(layout, epoch)[:] for epoch in range(2)])
    assert np.bincount(read).tolist() == [2] * 80
    with pytest.raises(sk.ArgumentRangeError, match="nothing to read from position 160"):
        mixture.order(layout, 2)
    with pytest.raises(sk.ArgumentRangeError, match="nothing to read"):
        sk.Ledger(mixture, [sk.Edit(at=10, skip=1)]).order(layout, 2)


def test_a_cap_that_no_run_reaches_changes_nothing():
    layout = sk.Layout.tree({"web": 50, "wiki": 30})
    mixed = {"sources": dict.fromkeys(layout.parts), "weights": {"web": 1, "wiki": 0}, "num_samples": 80}
    capped = sk.MixtureSampler(**mixed, max_passes={"wiki": 2}).order(layout)
    plain = sk.MixtureSampler(**mixed).order(layout)
    assert (capped, capped.num_passes) == (plain, plain.num_passes)


def test_a_nested_mixture_has_caps_of_its_own():
    layout = sk.Layout.tree({"web": 500, "books": sk.Layout.tree({"old": 10, "new": 300})})
    books = sk.MixtureSampler({"old": None, "new": None}, weights={"old": 1, "new": 1}, max_passes={"old": 3})
    mixture = sk.MixtureSampler({"web": None, "books": books}, 400, weights={"web": 1, "books": 1})
    ids = mixture.order(layout)[:]
    assert np.bincount(ids)[500:510].tolist() == [3] * 10


def test_mixtures_without_caps_say_what_they_said():
    plain = sk.MixtureSampler({"web": None}, 5)
    assert "max_passes" not in plain.arguments()
    assert sk.MixtureSampler({"web": None}, 5, stop="all", max_passes={"web": 1}).max_passes == {"web": 1}
