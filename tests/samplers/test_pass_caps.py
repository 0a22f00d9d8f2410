"""Caps on passes over a source: as edits at their ends, together with other edits, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import samplerkit as sk

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
    """The number of the part of each id."""
    return np.searchsorted(layout.part_starts, ids, side="right") - 1


def require_edits(seed: int) -> int:
    """A cap is an edit at the first position that would read its source once more: there its weight ends."""
    mixture, layout = case(seed)
    size, remaining = mixture.num_samples, dict(mixture.max_passes)
    plain = sk.MixtureSampler(**{**mixture.arguments(), "max_passes": None})
    numbers, weights = {name: number for number, name in enumerate(mixture.sources)}, dict(mixture.weights)
    weights_at: dict[int, dict[str, float]] = {}
    while True:
        ledger = sk.Ledger(plain, [sk.Edit(at=at, weights=shares) for at, shares in weights_at.items()])
        read = [ledger.order(layout, epoch) for epoch in range(3)]
        ids = np.concatenate([order[:] for order in read])
        passes = np.concatenate([order.passes_at(np.arange(size)) for order in read])
        part = layout_part(layout, ids)
        exceeding = [
            (int(places[0]), name)
            for name, cap in remaining.items()
            if (places := np.flatnonzero((part == numbers[name]) & (passes >= cap))).size
        ]
        if not exceeding:
            break
        at, name = min(exceeding)
        # Lanes are within a few samples of one another, so little of the last pass is left out.
        full = remaining.pop(name) * len(layout.parts[name])
        assert full - np.count_nonzero(part[:at] == numbers[name]) <= 12 * (mixture.lanes - 1)
        weights[name] = 0.0
        weights_at[at] = dict(weights)
    middle = mixture.order(layout, 1)
    assert np.concatenate([mixture.order(layout, epoch)[:] for epoch in range(3)]).tolist() == ids.tolist()
    which, positions = middle.positions_of(np.arange(len(layout)))
    assert sorted(positions.tolist()) == list(range(size))
    assert (middle[positions] == which).all()
    return len(weights_at)


def test_caps_of_random_mixtures_equal_edits_that_end_their_sources():
    assert sum(map(require_edits, range(12))) > 7


@pytest.mark.parametrize("seed", range(5))
def test_edits_move_the_position_of_a_cap_and_no_sample_comes_more_often(seed):
    mixture, layout = case(seed)
    rng = np.random.default_rng(seed)
    edits = []
    for at in sorted(rng.integers(0, 2 * mixture.num_samples, 4).tolist()):
        kind = rng.integers(0, 3)
        change = {"skip": int(rng.integers(1, 90))}
        if kind == 1:
            change = {"weights": {name: float(rng.random()) + 0.01 for name in mixture.sources}}
        elif kind == 2:
            change = {"without": np.flatnonzero(rng.random(len(layout)) < 0.2)}
            # Each source keeps a sample.
            change["without"] = np.setdiff1d(change["without"], layout.part_starts)
        edits.append(sk.Edit(at=at, **change))
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


def test_the_files_of_a_layout_have_caps_by_number():
    layout = sk.Layout([300, 20])
    capped = sk.MixtureSampler([1, 1], 200, max_passes={1: 2}, lanes=1)
    ids = np.concatenate([capped.order(layout, epoch)[:] for epoch in range(3)])
    assert np.bincount(ids)[300:].tolist() == [2] * 20


def test_a_run_ends_where_all_sources_have_reached_their_caps():
    layout = sk.Layout.tree({"web": 50, "wiki": 30})
    weights, caps = {"web": 1, "wiki": 1}, {"web": 2, "wiki": 2}
    mixture = sk.MixtureSampler(dict.fromkeys(caps), 80, weights=weights, max_passes=caps)
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
