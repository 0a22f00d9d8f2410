"""What edited runs read (skips, weights, ids that leave), checked against draws made one by one.

Here passes are lists, and each draw of each lane is made.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np

import samplerkit as sk
from samplerkit.order.keys import Key, path_number
from tests.chains import under
from tests.order.reference_draws import draw_of
from tests.samplers.dealing import cut, woven


class Source(Protocol):
    """What is read at positions of its own."""

    def at(self, position: int) -> int | None:
        """Gives the id at a position; None for a position that is no longer read."""

    def leave(self, ids: set[int], drawn: set[int]) -> None:
        """Takes ids out of all positions that were not drawn."""


class WalkedPasses:
    """Pass after pass over a list.

    Args:
        order: gives the ids of a pass.
        lanes: into how many lanes each is woven.
    """

    def __init__(self, order: Callable[[int], Sequence[int]], lanes: int) -> None:
        self._order, self._lanes = order, lanes
        self._changes: list[tuple[int, int, set[int]]] = [(0, 0, set())]
        self._dead: set[int] = set()

    def at(self, position: int) -> int | None:
        """Gives the id at a position; None for a position that is no longer read."""
        return None if position in self._dead else self._id(position)

    def leave(self, ids: set[int], drawn: set[int]) -> None:
        """Takes ids out of the rest of passes that were started, and of all later ones."""
        begin, first, removed = max(change for change in self._changes if change[0] <= max(drawn, default=0))
        size = len(self._pass(first, removed))
        while any(position >= begin for position in drawn):
            begin, first = begin + size, first + 1
        self._dead |= {p for p in range(begin) if p not in drawn and self._id(p) in ids}
        self._changes = [change for change in self._changes if change[0] < begin]
        self._changes.append((begin, first, self._removed | ids))
        self._removed = self._removed | ids

    _removed: set[int] = set()  # noqa: RUF012  # replaced, never changed

    def _id(self, position: int) -> int:
        begin, first, removed = max(change for change in self._changes if change[0] <= position)
        size = len(self._pass(first, removed))
        number, place = divmod(position - begin, size)
        return self._pass(first + number, removed)[place]

    def _pass(self, number: int, removed: set[int]) -> list[int]:
        ids = list(self._order(number))
        rest = [id for lane in range(self._lanes) for id in ids[lane :: self._lanes] if id not in removed]
        return woven(cut(rest, self._lanes))


class WalkedMix:
    """A mixture: each row of each lane is drawn in turn.

    Args:
        draw: returns the draw of a lane and row, in 60 bits.
        sources: what is mixed, with the number that is added to the ids of each, and how many these are.
        weights: at the beginning.
        lanes: of the mixture.
    """

    def __init__(
        self,
        draw: Callable[[int, int], int],
        sources: Sequence[tuple[Source, int, int]],
        weights: Sequence[int],
        lanes: int,
    ) -> None:
        self._draw, self._sources, self.weights, self.lanes = draw, sources, list(weights), lanes
        self._rows: list[list[tuple[int, int]]] = [[] for _ in range(lanes)]
        self._counts = [[0] * len(sources) for _ in range(lanes)]

    def at(self, position: int) -> int | None:
        """Gives the id at a position; None for a position that is no longer read."""
        source, inner = self._place(position)
        walked, start, _ = self._sources[source]
        id = walked.at(inner)
        return None if id is None else id + start

    def leave(self, ids: set[int], drawn: set[int]) -> None:
        """Takes ids out of the sources that have them."""
        places = [self._place(position) for position in drawn]
        for number, (walked, start, size) in enumerate(self._sources):
            own = {id - start for id in ids if start <= id < start + size}
            if own:
                walked.leave(own, {inner for source, inner in places if source == number})

    def reweigh(self, weights: Sequence[int], first_rows: Sequence[int]) -> None:
        """Reads each lane by other weights from a row on."""
        self.weights = list(weights)
        for lane, row in enumerate(first_rows):
            del self._rows[lane][row:]
            sources = [source for source, _ in self._rows[lane]]
            self._counts[lane] = [sources.count(source) for source in range(len(weights))]

    def _place(self, position: int) -> tuple[int, int]:
        row, lane = divmod(position, self.lanes)
        while len(self._rows[lane]) <= row:
            draw, total = self._draw(lane, len(self._rows[lane])), sum(self.weights)
            sums = [sum(self.weights[: s + 1]) for s in range(len(self.weights))]
            source = next(s for s, end in enumerate(sums) if draw * total < end << 60)
            inner = self._counts[lane][source] * self.lanes + lane
            self._counts[lane][source] += 1
            self._rows[lane].append((source, inner))
        return self._rows[lane][row]


def walk_removals(
    stream: WalkedMix | WalkedPasses,
    lanes: int,
    edits: Sequence[tuple[int, Sequence[int] | None, int, set[int]]],
    count: int,
) -> list[int]:
    """Reads the first positions of an edited stream.

    Args:
        stream: without edits.
        lanes: of it.
        edits: position, new weights or None, how many positions are skipped, and the ids that leave.
        count: how many positions to read.
    """
    next_rows, first_rows, drawn, read = [0] * lanes, [0] * lanes, set[int](), []

    def draw(lane: int) -> int:
        id = None
        while id is None:
            position = next_rows[lane] * lanes + lane
            id = stream.at(position)
            drawn.add(position)
            next_rows[lane] += 1
        return id

    for position in range(count):
        current = [edit for edit in edits if edit[0] == position]
        for _, weights, _, _ in current:
            if weights is not None and isinstance(stream, WalkedMix):
                stream.reweigh(weights, first_rows)
        for _, _, skipped, _ in current:
            for other in range(position, position + skipped):
                draw(other % lanes)
        for _, _, _, leaving in current:
            if leaving:
                stream.leave(leaving, drawn)
        read.append(draw(position % lanes))
        # Weights change there, whatever is skipped.
        first_rows[position % lanes] = next_rows[position % lanes]
    return read


CHAINS = [
    lambda rng: sk.SequentialSampler(),
    lambda rng: sk.RandomSampler(seed=int(rng.integers(9))),
    lambda rng: sk.RandomSampler(shuffle="partial", lanes=int(rng.integers(1, 4)), partial_size=3),
    lambda rng: sk.RandomSampler(shuffle="files", seed=3),
    lambda rng: sk.RepeatSampler(2),
    lambda rng: sk.SubsetRandomSampler([3, 1, 4, 0, 2, 2]),
    lambda rng: under(sk.RandomSampler(), sk.RandomSampler(shuffle="files", lanes=3)),
]


def lanes_of(sampler, layout, constants):
    """A sampler that shuffles what its child yields leaves no lanes."""
    return 1 if sampler.get_child() else sampler.chain.woven_lanes(layout, constants)


def walked(sampler, layout, run_lanes):
    """The passes of a chain as lists."""
    constants = sampler.chain.constants(sk.World(run_lanes, 0))
    orders = {}

    def order(number):
        if number not in orders:
            orders[number] = sampler.undealt_order(layout, number, constants=constants)[:].tolist()
        return orders[number]

    return WalkedPasses(order, lanes_of(sampler, layout, constants))


def random_edits(rng, size, shares):
    """Edits in the order of their positions: weights where there are some, skips, and ids that leave."""
    edits = []
    for at in np.sort(rng.integers(0, 60, rng.integers(1, 6))).tolist():
        is_new = not edits or edits[-1][0] != at  # only one edit at a position may have weights
        weights = shares[int(rng.integers(len(shares)))] if shares and is_new and rng.integers(2) else None
        skip = int(rng.integers(0, 12) * rng.integers(2))
        ids = {int(id) for id in rng.integers(0, size, rng.integers(0, 3))}
        edits.append((at, weights, skip or int(weights is None and not ids), ids))
    return edits


def edits_of(edits, names):
    """The same edits as values of the package."""
    return [
        sk.Edit(
            at=at,
            weights=None if weights is None else dict(zip(names, weights, strict=True)),
            skip=skip or None,
            without=sorted(ids) or None,
        )
        for at, weights, skip, ids in edits
    ]


def require_inverse(order, size):
    """Every sample is found at each of its positions, and nowhere else."""
    ids = order[:]
    which, places = order.positions_of(np.arange(size))
    assert which.size == ids.size
    assert (ids[places] == which).all()


def test_removed_ids_of_a_chain_equal_a_walk_one_by_one_and_the_inverse_finds_the_rest():
    cases = int(os.environ.get("SAMPLERKIT_LEDGERS", "24"))
    for number in range(cases):
        rng = np.random.default_rng(3000 + number)
        layout = sk.Layout([*rng.integers(1, 6, rng.integers(1, 4)).tolist(), 7])
        chain = CHAINS[number % len(CHAINS)](rng)
        edits = random_edits(rng, len(layout), [])
        length = len(chain.order(layout))
        stream = walked(chain, layout, 1)
        expected = walk_removals(stream, lanes_of(chain, layout, chain.chain.constants()), edits, 70)
        ledger = sk.Ledger(chain, edits_of(edits, ()))
        epochs = [ledger.order(layout, epoch) for epoch in range(-(-70 // length))]
        assert np.concatenate(epochs)[:70].tolist() == expected, number
        for order in epochs:
            require_inverse(order, len(layout))
    print(f"{cases} cases")


def test_removed_ids_of_nested_mixtures_equal_a_walk_draw_by_draw_and_the_inverse_finds_the_rest():
    cases = int(os.environ.get("SAMPLERKIT_LEDGERS", "12"))
    for number in range(cases):
        rng = np.random.default_rng(4000 + number)
        lanes, seeds = int(rng.integers(1, 5)), [int(rng.integers(99)) for _ in range(2)]
        given_lanes = None if number % 2 else int(rng.integers(1, 4))
        inner_lanes = given_lanes or lanes
        layouts = [sk.Layout([*rng.integers(1, 6, 2).tolist(), 5]) for _ in range(3)]
        chains = [CHAINS[int(rng.integers(len(CHAINS)))](rng) for _ in range(3)]
        tree = sk.Layout.tree({"a": layouts[0], "b": sk.Layout.tree({"c": layouts[1], "d": layouts[2]})})
        inner = sk.MixtureSampler(
            {"c": chains[1], "d": chains[2]}, 9, weights={"c": 1, "d": 2}, lanes=given_lanes, seed=seeds[1]
        )
        mix = sk.MixtureSampler(
            {"a": chains[0], "b": inner}, 35, weights={"a": 3, "b": 2}, lanes=lanes, seed=seeds[0]
        )
        edits = random_edits(rng, len(tree), [(1, 1), (1, 4), (5, 2), (1, 0), (0, 1)])
        sizes = [len(layout) for layout in layouts]
        first, *others = (
            walked(chain, layout, by)
            for chain, layout, by in zip(chains, layouts, (lanes, inner_lanes, inner_lanes), strict=True)
        )
        throws = [
            partial(draw_of, Key(seed, 0, 0, "dice"), index=path_number(path))
            for seed, path in zip(seeds, ((), ("b",)), strict=True)
        ]
        nested = WalkedMix(
            throws[1], [(others[0], 0, sizes[1]), (others[1], sizes[1], sizes[2])], (1, 2), inner_lanes
        )
        root = WalkedMix(
            throws[0], [(first, 0, sizes[0]), (nested, sizes[0], sizes[1] + sizes[2])], (3, 2), lanes
        )
        expected = walk_removals(root, lanes, edits, 105)
        ledger = sk.Ledger(mix, edits_of(edits, ("a", "b")))
        epochs = [ledger.order(tree, epoch) for epoch in range(3)]
        assert np.concatenate(epochs).tolist() == expected, number
        for epoch, order in enumerate(epochs):
            require_inverse(order, len(tree))
            assert sk.Ledger(mix, ledger.edits).order(tree, epoch) == order
    print(f"{cases} cases")


def test_ids_are_removed_from_a_source_while_it_is_not_read():
    tree, ids = sk.Layout.tree({"web": 200, "code": 200}), range(210, 400)
    stopped, again = (sk.Edit(at=at, weights={"web": 1, "code": share}) for at, share in ((8, 0), (24, 3)))
    mix = sk.MixtureSampler({"web": None, "code": None}, 400, weights={"web": 1, "code": 1}, lanes=4)
    read = sk.Ledger(mix, [stopped, sk.Edit(at=16, without=ids), again]).order(tree)[24:]
    assert not np.isin(read, ids).any()
    assert np.isin(read, range(200, 210)).any()
