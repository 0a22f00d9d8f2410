"""The exact laws of samplers that repeat samples, of those that split a dataset, and of caps on passes."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.samplers.repeat import UNIT_BITS, RepeatedByFactors, sums_of_factors
from tests.chains import under

RANDOM = np.random.default_rng(7)


# RepeatSampler


def test_a_repeat_is_its_child_at_a_kth_of_the_position():
    for n in range(1, 12):
        for repeats in range(1, 5):
            for num_samples in (None, 1, n, 2 * n + 1):
                child = sk.RandomSampler(seed=n)
                order = under(sk.RepeatSampler(repeats, num_samples), child).order(n, epoch=2)
                ids = child.order(n, epoch=2)[:].repeat(repeats)[:num_samples]
                assert order[:].tolist() == ids.tolist()
                assert [order.positions_of(id).tolist() for id in range(n)] == [
                    np.flatnonzero(ids == id).tolist() for id in range(n)
                ]


def test_a_repeat_of_a_huge_dataset_costs_nothing_and_one_beyond_the_limit_is_refused():
    order = sk.RepeatSampler(4).order(2**60)
    assert len(order) == 2**62
    assert order[2**62 - 5 :].tolist() == [2**60 - 2, *[2**60 - 1] * 4]
    assert order.positions_of(2**60 - 1).tolist() == [*range(2**62 - 4, 2**62)]
    with pytest.raises(sk.ArgumentRangeError, match="repeats"):
        sk.RepeatSampler(5).order(2**60)
    assert len(sk.RepeatSampler(5, num_samples=7).order(2**60)) == 7


# RepeatFactorSampler


def test_factors_are_kept_exactly_at_every_phase():
    """Each id comes floor(r) or ceil(r) times, r times on average, and each epoch is as long as any other."""
    for size in (1, 2, 7, 60):
        for scale in (0.2, 1.0, 5.0):
            factors = RANDOM.random(size) * scale + (RANDOM.random(size) < 0.5)
            total = max(1, round(factors.sum()))
            scaled = factors * total / factors.sum()
            for epoch in range(40):
                order = sk.RepeatFactorSampler(factors, seed=3).order(size, epoch)
                ids = order[:]
                counts = np.bincount(ids, minlength=size)
                assert len(order) == ids.size == total
                assert (np.diff(ids) >= 0).all()
                assert (np.abs(counts - scaled) < 1 + 1e-6).all()
                assert (counts >= np.floor(scaled - 1e-6)).all()
                which, positions = order.positions_of(np.arange(size))
                assert which.tolist() == ids.tolist()
                assert positions.tolist() == [*range(total)]


def test_over_all_phases_the_mean_is_exact():
    """At every 256th part of a phase in turn, an id of factor m / 256 comes m times in 256 epochs."""
    parts = np.array([256, 384, 640, 0, 17, 239])
    sums = sums_of_factors(parts / 256)
    counts = sum(
        np.bincount(RepeatedByFactors(sums, phase << UNIT_BITS - 8)[:], minlength=6) for phase in range(256)
    )
    assert counts.tolist() == parts.tolist()


@pytest.mark.parametrize("factors", [[1e-9], [0.2, 0.1], [2**30 - 0.5], [1e-12, 1, 1e-12], [0, 0, 0.5, 0]])
def test_the_sum_of_any_factors_is_a_whole_number_and_none_becomes_negative(factors):
    sums = sums_of_factors(np.array(factors, dtype=float))
    assert int(sums[-1]) % (1 << UNIT_BITS) == 0
    assert int(sums[-1]) >> UNIT_BITS == max(1, round(sum(factors) + 1e-9))
    assert (np.diff(sums) >= 0).all()
    assert (np.diff(sums)[np.array(factors) == 0] == 0).all()


def test_factors_of_categories_are_those_of_the_paper():
    categories = [[number % 100 == 0 and "rare", "common", "common"] for number in range(1000)]
    categories = [[name for name in names if name] for names in categories]
    factors = sk.RepeatFactorSampler.factors_of([*categories[:-1], []], threshold=0.04)
    expected = [np.sqrt(0.04 / 0.01) if number % 100 == 0 else 1.0 for number in range(1000)]
    assert np.allclose(factors, expected)
    order = under(sk.RandomSampler(seed=1), sk.RepeatFactorSampler(factors, seed=1)).order(1000)
    assert len(order) == 1010
    assert Counter(order[:].tolist())[100] == 2


# WindowSampler


def windows_by_counting(sizes, size, stride):
    starts = np.cumsum([0, *sizes])
    return [
        (file, int(starts[file]) + first)
        for file, length in enumerate(sizes)
        for first in range(0, length - size + 1, stride)
    ]


def test_windows_equal_a_plain_loop_and_none_crosses_its_episode():
    cases = 0
    while cases < 400:
        sizes = RANDOM.integers(0, 12, RANDOM.integers(1, 7)).tolist()
        size, stride = int(RANDOM.integers(1, 6)), int(RANDOM.integers(1, 7))
        if max(sizes) < size:
            continue
        layout = sk.Layout(sizes)
        order = sk.WindowSampler(size, stride).order(layout)
        expected = windows_by_counting(sizes, size, stride)
        assert order[:].tolist() == [first for _, first in expected]
        assert order.layout.sizes.tolist() == [
            sum(file == number for file, _ in expected) for number in range(len(sizes))
        ]
        ends = order[:] + size - 1
        assert (layout.file_of(order[:]) == layout.file_of(ends)).all()
        which, positions = order.positions_of(np.arange(-1, sum(sizes) + 1))
        assert (np.array([*range(-1, sum(sizes) + 1)])[which] == order[positions]).all()
        assert which.size == len(order)
        cases += 1


# FoldSampler


def ways(n):
    """Every way to part n samples, and in which groups."""
    sizes = RANDOM.multinomial(n, np.ones(5) / 5)
    return {
        "alone": (n, {}, np.arange(n)),
        "labels": (n, {"labels": RANDOM.integers(0, 3, n)}, np.arange(n)),
        "groups": (n, {"groups": (groups := RANDOM.permutation(np.arange(n) % 7))}, groups),
        "by_files": (sk.Layout(sizes), {"by_files": True}, np.repeat(np.arange(5), sizes)),
    }


def test_folds_split_every_dataset_and_are_balanced():
    for n in (7, 8, 23, 60):
        for count in (2, 3, 5):
            for seed in range(3):
                for way, (dataset, arguments, groups) in ways(n).items():
                    held = fold_by_fold(dataset, count, seed, arguments)
                    assert sorted(np.concatenate(held)) == [*range(n)]
                    sizes = [part.size for part in held]
                    largest = np.bincount(groups).max()
                    assert max(sizes) - min(sizes) <= largest
                    for group in np.unique(groups):
                        assert sum(bool((groups[part] == group).any()) for part in held) == 1
                    if way == "labels":
                        labels = np.asarray(arguments["labels"])
                        for label in range(3):
                            sizes_of_label = [int((labels[part] == label).sum()) for part in held]
                            assert max(sizes_of_label) - min(sizes_of_label) <= 1


def test_folds_of_what_another_epoch_reads_in_another_order_are_refused():
    with pytest.raises(sk.CompositionError, match="would split differently in each epoch"):
        under(sk.FoldSampler(3, 0), sk.RandomSampler(seed=1)).order(9)


def test_a_distributed_sampler_below_another_needs_numbers_of_its_own():
    inner = sk.DistributedSampler()
    with pytest.raises(sk.CompositionError, match="each rank would read a shard of a shard; set num_shards"):
        under(sk.DistributedSampler(2, 0), inner).order(9)


def fold_by_fold(dataset, count, seed, arguments):
    """The held-out samples of each fold, which are all that its training does not read, in every epoch."""
    n = len(sk.Layout.of(dataset))
    held = []
    for fold in range(count):
        evaluation = sk.FoldSampler(count, fold, held_out=True, seed=seed, **arguments)
        training = sk.FoldSampler(count, fold, seed=seed, **arguments)
        parts = [evaluation.order(dataset, epoch)[:] for epoch in (0, 3)]
        rest = training.order(dataset, 5)
        assert parts[0].tolist() == parts[1].tolist() == sorted(parts[0])
        assert rest[:].tolist() == sorted({*range(n)} - {*parts[0].tolist()})
        for order in (rest, evaluation.order(dataset)):
            which, positions = order.positions_of(np.arange(-1, n + 1))
            assert (np.arange(-1, n + 1)[which] == order[positions]).all()
            assert which.size == len(order)
        held.append(parts[0])
    return held


def test_a_sample_stays_in_its_fold_when_the_dataset_grows():
    before = sk.FoldSampler(7, 2, held_out=True, seed=1).order(1000)[:]
    after = sk.FoldSampler(7, 2, held_out=True, seed=1).order(1337)[:]
    assert after[after < 1000].tolist() == before.tolist()


def test_folds_of_a_huge_dataset_are_arithmetic():
    n = 2**61 + 5
    evaluation, training = (sk.FoldSampler(10, 3, held_out=held, seed=1).order(n) for held in (True, False))
    assert len(evaluation) + len(training) == n
    ids = evaluation[-3:]
    assert training.positions_of(ids)[0].size == 0
    neighbours = np.append(ids - 1, ids[:-1] + 1)
    assert training[training.positions_of(neighbours)[1]].tolist() == neighbours.tolist()


def test_labels_and_groups_above_a_child_are_those_of_the_samples_that_it_yields():
    ids = [*range(0, 60, 2)]
    groups = np.arange(60) // 6
    held = under(sk.FoldSampler(3, 1, held_out=True, groups=groups), sk.SubsetSampler(ids)).order(60)[:]
    rest = under(sk.FoldSampler(3, 1, groups=groups), sk.SubsetSampler(ids)).order(60)[:]
    assert sorted([*held, *rest]) == ids
    assert not {*groups[held]} & {*groups[rest]}


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
    with pytest.raises(sk.ArgumentRangeError, match="reached by all sources at position 160"):
        mixture.order(layout, 2)
    with pytest.raises(sk.ArgumentRangeError, match="reached by all sources at position 159"):
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
