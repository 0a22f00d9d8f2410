"""Draws of sources: equal to the reference, with exact counts and inverses, in lanes and segments."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import samplerkit as sk
from samplerkit.order.keys import Key
from samplerkit.order.mixing import source_counts
from samplerkit.order.mixing.source_counts import SourceCounts
from samplerkit.order.mixing.source_draws import SourceDraws
from samplerkit.order.mixing.source_ends import outermost
from samplerkit.order.mixing.stream_algebra import Mix
from samplerkit.order.mixing.streams import Part, Passes
from samplerkit.order.mixing.weights import DRAW_RANGE, thresholds
from samplerkit.order.permutation import NARROW_LIMIT
from samplerkit.order.sequences import DrawsWithReplacement, Permuted, Range
from tests.order.reference_draws import draw_of, draws_of_rows
from tests.order.test_passes import counted

WEIGHTS = {
    "[1, 1]": [1, 1],
    "[3, 1]": [3, 1],
    "[.7, .2, .1]": [0.7, 0.2, 0.1],
    "[.5, .3, .15, .05]": [0.5, 0.3, 0.15, 0.05],
    "[.9, .09, .01]": [0.9, 0.09, 0.01],
    "[.613, .287, .1]": [0.613, 0.287, 0.1],
    "ten by Zipf": [1 / rank for rank in range(1, 11)],
    "[sqrt 2, 1, pi]": [math.sqrt(2), 1, math.pi],
    "64 equal ones": [1] * 64,
}
weights_lists = st.lists(
    st.one_of(st.integers(0, 9), st.floats(0, 1e3), st.sampled_from([1e-30, math.pi, 1e300])),
    min_size=1,
    max_size=9,
).filter(any)


keys = st.builds(Key, st.integers(0, 2**64 - 1), st.integers(0, 5), st.just(0), st.just("dice"))
LAST_ROW = (1 << 62) - 1


def draws_of(seed: int, epoch: int = 0, index: int = 0) -> SourceDraws:
    """The draws of a mixture with this seed."""
    return SourceDraws(Key(seed, epoch, 0, "dice"), index)


@pytest.mark.parametrize("lane", [0, 1, 2**24 - 1])
def test_draws_equal_the_reference(lane):
    key = Key(7, 3, 0, "dice")
    rows = [*range(40), 255, 256, 4095, 4096, 10**9, (1 << 62) // (lane + 1) - 1]
    assert draws_of_rows(SourceDraws(key, 5), np.full(len(rows), lane), np.array(rows)).tolist() == [
        draw_of(key, lane, row, 5) for row in rows
    ]


@given(keys, st.integers(0, LAST_ROW), st.integers(0, DRAW_RANGE), st.integers(0, 2**24 - 1))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_counts_before_neighbouring_rows_differ_by_the_draw_and_are_inverted(key, row, alpha, lane):
    draws = SourceDraws(key)
    before, after = draws.count_below(lane, np.array([row, row + 1]), alpha).tolist()
    is_below = int(draws_of_rows(draws, np.array([lane]), np.array([row]))[0]) < alpha
    assert after - before == is_below
    low, high, turn = (0, alpha, before) if is_below else (alpha, DRAW_RANGE, row - before)
    assert draws.row_of(lane, turn, low, high) == row
    assert abs(before - row * alpha // DRAW_RANGE) <= 2 * 4.52 * 16


@given(weights_lists)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_thresholds_are_exact_to_one_draw_per_source(weights):
    widths = np.diff(thresholds(weights))
    assert widths.sum() == DRAW_RANGE
    assert ((widths > 0) == (np.array(weights) > 0)).all()
    total = sum(map(Fraction, weights))
    shares = np.array([float(Fraction(weight) * DRAW_RANGE / total) for weight in weights])
    assert np.abs(widths - shares).max() <= len(weights) + DRAW_RANGE * 1e-15


@pytest.mark.statistics
@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS)
def test_aligned_rows_are_within_two_of_their_shares_and_prefixes_within_the_bound(weights):
    ends, shares = thresholds(weights), np.array(weights) / sum(weights)
    draws, lanes = draws_of(1), np.arange(200)[:, None]
    for power in range(1, 6):
        size = 16**power
        begin = size * 12_345
        counts = np.diff(
            draws.count_below(lanes[..., None], np.array([begin, begin + size])[:, None], ends), axis=1
        )
        off = np.abs(np.diff(counts[:, 0], axis=1) - size * shares)
        assert off.max() <= 2 + 1e-6
        if all((size * share) % 1 == 0 for share in shares.tolist()):
            assert off.max() == 0
    for length in (10, 1000, 10**6, 10**9, 10**15):
        off = np.abs(np.diff(draws.count_below(lanes, length, ends), axis=1) - length * shares)
        assert off.max() <= 2 * 4.52 * math.ceil(math.log(length, 16)) + length * 1e-15


def streams_of(lanes: int) -> tuple[list, np.ndarray]:
    def shuffled(number: int) -> Permuted:
        return Permuted(7, Key(1, number, 0, "global"))

    def large(number: int) -> Permuted:
        return Permuted(5000, Key(2, number, 0, "global"))

    def drawn(number: int) -> DrawsWithReplacement:
        return DrawsWithReplacement(9, Key(3, number, 0, "draws"), population=4)

    return [Passes(make, lanes) for make in (shuffled, large, drawn)], np.array([0, 7, 5007, 5011])


@given(keys, st.integers(1, 9), st.integers(0, 400), st.integers(1, 500), st.integers(0, 10**6))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_a_mixture_mixes_each_lane_by_itself_and_has_an_inverse(key, lanes, begin, length, seed):
    streams, starts = streams_of(lanes)
    draws = SourceDraws(key)
    mix = Mix(SourceCounts(draws, thresholds([3, 2, 1])[None]), lanes, streams, starts)
    part = Part(mix, begin, length)
    expected = []
    counts = np.zeros((lanes, 3), dtype=int)
    row, lane_of = np.divmod(np.arange(begin + length), lanes)
    sources = np.searchsorted(thresholds([3, 2, 1]), draws_of_rows(draws, lane_of, row), side="right") - 1
    for lane, source in zip(lane_of.tolist(), sources.tolist(), strict=True):
        inner = counts[lane, source] * lanes + lane
        counts[lane, source] += 1
        number, place = divmod(int(inner), streams[source].length)
        expected.append(int(streams[source].order(number)[place] + starts[source]))
    assert part[:].tolist() == expected[begin:]
    some = np.random.default_rng(seed).integers(0, length, 20)
    assert part[some].tolist() == [expected[begin + position] for position in some]
    which, positions = part.positions_of(np.arange(-1, 5013))
    assert sorted(positions.tolist()) == list(range(length))
    assert (part[positions] == which - 1).all()


@given(
    keys,
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 60), weights_lists), max_size=5),
    st.integers(0, 10**6),
)
@settings(max_examples=20, deadline=None, derandomize=True)
def test_when_weights_change_each_source_continues_at_the_position_of_its_lane(key, lanes, changes, seed):
    draws, random = SourceDraws(key), np.random.default_rng(seed)
    weights = [[3, 2, 1], *([*given, 1, 1][:3] for _, given in changes)]
    firsts = np.cumsum([[step + random.integers(0, 3) for _ in range(lanes)] for step, _ in changes], axis=0)
    firsts = firsts.reshape(-1, lanes).astype(np.int64)
    streams, starts = streams_of(lanes)
    mix = Mix(SourceCounts(draws, thresholds(weights[0])[None]), lanes, streams, starts)
    mix = mix.reweighted(weights[1:], lambda lane: firsts[:, lane]) if changes else mix
    for lane in range(lanes):
        rows = np.arange(400)
        segment = np.searchsorted(firsts[:, lane], rows, side="right")
        values = draws_of_rows(draws, np.full(400, lane), rows)
        read = [np.searchsorted(thresholds(given), values, side="right") - 1 for given in weights]
        source = np.stack(read)[segment, rows]
        turn = np.array(counted(source.tolist()))
        for at in (rows, random.integers(0, 400, 5)):
            read = mix.counts.read(np.full(at.size, lane), at)
            assert [part.tolist() for part in read] == [source[at].tolist(), turn[at].tolist()]
        for number in range(3):
            expected = np.flatnonzero(source == number)
            rows = mix.counts.row_of(number, np.full(expected.size, lane), turn[expected])
            assert rows.tolist() == expected.tolist()
    part = Part(mix, 17, 300)
    which, positions = part.positions_of(np.arange(5011))
    assert sorted(positions.tolist()) == list(range(300))
    assert (part[positions] == which).all()


def test_successive_reads_equal_random_access():
    streams, starts = streams_of(4)
    mix = Mix(SourceCounts(draws_of(5), thresholds([3, 2, 1])[None]), 4, streams, starts)
    part, length = Part(mix, 1000, 45_000), 45_000
    expected = mix.ids_at(np.arange(1000, 46_000))
    for step, size, gap in ((1, 7, 0), (4, 256, 0), (4, 256, 3), (3, 5000, 0), (8, 100, 20)):
        for begin in range(0, length - size * step, size * step * (1 + gap)):
            assert (
                part[begin : begin + size * step : step] == expected[begin : begin + size * step : step]
            ).all()
    tail = part[length - 3 :]
    tail[:] = 0
    assert (part[length - 3 :] == expected[-3:]).all()


@pytest.mark.parametrize("far", [0, 1 << 61])
def test_few_positions_of_many_sources_are_read_the_same_as_many(far):
    """Sources of one sample have many passes, those of weight 0 none."""
    lengths = [1, 2, 1, 3, 5, 7000]
    streams = [Passes(lambda number, size=size: Range(0, size), 1) for size in lengths]
    starts = np.cumsum([0, *lengths])
    nested = Mix(
        SourceCounts(draws_of(6), thresholds([2, 0, 1])[None]),
        1,
        streams[:3],
        starts[:4],
    )
    ends, outer = (
        thresholds([0, 2, 1, 4, 3])[None],
        [Passes(lambda number: Range(0, 0), 1), *streams[3:], nested],
    )
    mix = Mix(SourceCounts(draws_of(5), ends), 1, outer, np.array([0, 0, 3, 8, 7008, 7012]))
    positions = far + np.arange(600)
    many, few = mix.ids_at(positions), [mix.ids_at(some) for some in np.split(positions, 60)]
    assert many.tolist() == np.concatenate(few).tolist()
    passes = np.concatenate([mix.passes_at(some) for some in np.split(positions, 60)])
    assert passes.tolist() == mix.passes_at(positions).tolist()
    assert {*many.tolist()} - {*range(8, 7008)} == {*range(8), 7008, 7011}


def test_sources_around_the_limit_of_32_bit_words_are_read_the_same_in_any_number():
    tree = sk.Layout.tree({"a": NARROW_LIMIT, "b": NARROW_LIMIT - 1})
    order = sk.MixtureSampler({"a": None, "b": None}, 10_000, weights={"a": 1, "b": 1}, seed=3).order(tree)
    assert order[:20].tolist() == order[:][:20].tolist()


def test_neighbouring_rows_are_read_the_same_as_each_by_itself():
    """Whole blocks are counted together, rows that are far apart separately."""
    rng = np.random.default_rng(1)
    for number in range(40):
        sources, segments = int(rng.integers(1, 8)), int(rng.integers(1, 5)) if number % 2 else 1
        shares = rng.integers(0, 5, (segments, sources)) * rng.random((segments, sources))
        shares[:, rng.integers(sources)] += 0.3
        lanes, start = int(rng.integers(1, 4)), int(rng.choice([0, 10**6, 2**45]))
        firsts = np.sort(rng.integers(0, 900, segments - 1)) + start
        counts = SourceCounts(
            draws_of(number),
            np.stack([thresholds(weights.tolist()) for weights in shares]),
            lambda lane, firsts=firsts: firsts + lane,
        )
        stride = int(rng.integers(1, 40)) * lanes if number % 3 else int(rng.integers(1, 40))
        positions = start * lanes + np.arange(rng.integers(9), rng.integers(30, 12_000), stride)
        positions = rng.permutation(positions) if number % 5 == 0 else positions
        rows, lane = np.divmod(positions, lanes)
        source, turn = counts.read(lane, rows)
        some = np.arange(0, rows.size, max(1, rows.size // 5))
        one_by_one = [counts.read(lane[[at]], rows[[at]]) for at in some]
        assert source[some].tolist() == [single.item() for single, _ in one_by_one], number
        assert turn[some].tolist() == [single.item() for _, single in one_by_one], number
        assert turn.tolist() == counts.reads_before(source, lane, rows).tolist(), number


def test_a_block_of_the_next_lane_does_not_continue_the_one_before_it():
    counts = SourceCounts(draws_of(1), thresholds([3, 2, 1])[None])
    lanes, rows = np.repeat(np.arange(40), 256), np.arange(40 * 256)
    sources, turns = counts.read(lanes, rows)
    assert turns.tolist() == counts.reads_before(sources, lanes, rows).tolist()


def test_turns_after_the_last_row_have_no_row():
    low, high = thresholds([1, 3, 1])[1:3].tolist()
    turns = np.array([4, 4, 5, 9]) * (high - low) + [-1, 7, 7, 0]
    rows = draws_of(3).row_of(2, turns, low, high)
    assert rows[0] <= LAST_ROW
    assert (rows[1:] == LAST_ROW + 1).all()


@settings(max_examples=30)
@given(keys, weights_lists, st.integers(1, 80), st.integers(0, 10**12), st.booleans(), st.randoms())
def test_the_outermost_turns_are_the_first_and_last_of_all_rows(key, weights, lanes, size, even, random):
    ends, draws = thresholds(weights), SourceDraws(key)
    read = np.flatnonzero(np.diff(ends))
    source, lane = np.repeat(read, lanes), np.tile(np.arange(lanes), read.size)
    low, high = ends[source], ends[source + 1]
    share = (high - low) / DRAW_RANGE
    turns = [int(size * part) + random.randrange(3) if even else random.randrange(size + 1) for part in share]
    require_outermost(draws, lane, turns, low, high)


def test_the_outermost_turns_are_right_at_the_last_rows():
    rng = np.random.default_rng(5)
    for number in range(60):
        lane, (low, high) = np.arange(40), thresholds(rng.random(2) + 0.1)[:2]
        turns = 4 * (high - low) + rng.integers(-12, 0, lane.size)
        require_outermost(draws_of(number), lane, turns, low + 0 * lane, high + 0 * lane)


def require_outermost(draws, lane, turns, low, high):
    turns = np.array(turns)
    rows = [*zip(draws.row_of(lane, turns, low, high).tolist(), lane.tolist(), strict=True)]
    for last, expected in ((False, min(rows)), (True, max(rows))):
        row, first = outermost(draws, lane, turns, low, high, last=last)
        assert (row, first if row < 1 << 62 else expected[1]) == expected


class Shared(SourceCounts):
    """Counts whose cache another thread replaces while lanes are counted."""

    def _count_lanes(self, lanes):
        self._cached = super()._count_lanes([40, 41, 42])
        return super()._count_lanes(lanes)


def test_threads_share_counts_of_more_lanes_than_are_cached(monkeypatch):
    monkeypatch.setattr(source_counts, "_MIN_CACHED_LANES", 2)
    monkeypatch.setattr(source_counts, "_MAX_CACHED", 1)
    draws, ends = SourceDraws(Key(7, 0, 0, "sources")), np.stack([thresholds([1, 2]), thresholds([2, 1])])
    lanes, rows = np.arange(40), np.arange(5, 405, 10)
    alone, shared = (kind(draws, ends, lambda lane: np.array([lane * 10])) for kind in (SourceCounts, Shared))
    for first in (0, 10):  # some of the lanes from 10 on are cached
        assert np.array_equal(alone.read(lanes + first, rows), shared.read(lanes + first, rows))
