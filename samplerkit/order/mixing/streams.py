"""Streams: endless orders, of which an epoch reads a part, and mixtures of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, final

import numpy as np

from samplerkit.errors import DatasetError, InverseTooLargeError
from samplerkit.order.arguments import LARGEST
from samplerkit.order.caching import Latest, cached_property
from samplerkit.order.intervals import groups, interval_of
from samplerkit.order.mixing.source_counts import SourceCounts
from samplerkit.order.mixing.weights import thresholds
from samplerkit.order.order import Located, Order, same_recipes
from samplerkit.order.sequences import Permuted, permuted_each
from samplerkit.order.typing import Ids

MOST_PASSES = 1 << 16
"""The most passes over a source in which ids are sought, one after another."""

_KEPT_PASSES = 64
_FEW = 1024
_FEW_EACH = 512
"""Positions a source, up to which the passes of all sources are distinguished at once."""


class Piece(NamedTuple):
    """Positions of a stream that lie in one pass over one source: the ids are `order[places] + shift`."""

    at: Ids
    order: Order
    places: Ids
    shift: int
    number: int


class Stream(ABC):
    """An endless order with random access. Row k of lane l is position k * lanes + l."""

    lanes: int = 1

    @abstractmethod
    def pieces(self, positions: Ids) -> Iterator[Piece]:
        """Returns in which orders positions lie.

        Args:
            positions: int64 array of shape (m,), none negative.

        Returns:
            Pieces that have each index of `positions` once.
        """

    @abstractmethod
    def locate(self, ids: Ids, begin: int, end: int) -> Located:
        """Finds all positions in [begin, end) of ids, as `Order.locate` does.

        Raises:
            InverseTooLargeError: they lie in too many passes.
        """

    @property
    @abstractmethod
    def recipe(self) -> tuple[object, ...]:
        """What the stream was made of, as for an order."""

    def ids_at(self, positions: Ids) -> Ids:
        """Gives the ids at positions: int64 arrays of shape (m,)."""
        ids = np.empty_like(positions)
        together: list[tuple[Piece, Permuted]] = []
        for piece in self.pieces(positions):
            order = piece.order
            if isinstance(order, Permuted) and piece.at.size < _FEW and order.is_narrow:
                together.append((piece, order))
            else:
                ids[piece.at] = order.ids_at(piece.places) + piece.shift
        if together:
            # Of many sources, each has few of the positions: one call for all is many times as fast.
            pieces = [piece for piece, _ in together]
            which = np.repeat(np.arange(len(pieces)), [piece.at.size for piece in pieces])
            places = np.concatenate([piece.places for piece in pieces])
            found = permuted_each([order for _, order in together], which, places)
            found += np.array([piece.shift for piece in pieces])[which]
            ids[np.concatenate([piece.at for piece in pieces])] = found
        return ids

    def passes_at(self, positions: Ids) -> Ids:
        """Returns to which pass over its source each position belongs, from 0."""
        passes = np.empty_like(positions)
        for piece in self.pieces(positions):
            inner = piece.order.passes_at(piece.places)
            passes[piece.at] = piece.number * piece.order.num_passes + inner
        return passes

    def epochs_at(self, positions: Ids) -> Ids:
        """Returns in which epoch of its source each position is, as `Order.epochs_at`."""
        epochs = np.empty_like(positions)
        for piece in self.pieces(positions):
            epochs[piece.at] = piece.order.epochs_at(piece.number, piece.places)
        return epochs

    @abstractmethod
    def num_passes(self, end: int) -> int:
        """Gives a number above all that `passes_at` gives before position `end`."""

    @final
    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or not isinstance(other, Stream):
            return NotImplemented
        return same_recipes(self.recipe, other.recipe)

    @final
    def __hash__(self) -> int:
        return hash((type(self), self.lanes))


@final
class Passes(Stream):
    """One order after another, all of one length: pass t over a source is `order(t)`.

    Args:
        order: gives the order of a pass; where each is woven into another number of lanes than the stream, it
            has `woven`.
        lanes: into how many lanes the stream is woven.
        name: of the source, for errors.

    Raises:
        DatasetError: when it is asked for: a pass has another length than the first.
    """

    def __init__(self, order: Callable[[int], Order], lanes: int = 1, name: str = "source") -> None:
        self.lanes = lanes
        self.name: Final = name
        self._order = order
        self._latest: Latest[Order] = Latest(_KEPT_PASSES)

    @property
    def woven(self) -> int:
        """Into how many lanes each order is woven."""
        return getattr(self._order, "woven", self.lanes)

    @cached_property
    def length(self) -> int:
        """How many samples a pass has."""
        return len(self.order(0))

    @property
    def recipe(self) -> tuple[object, ...]:
        return self._order, self.lanes

    def order(self, number: int) -> Order:
        """Gives the order of a pass; the last ones are kept."""
        return self._latest.get(number, lambda: self._checked(number))

    def _checked(self, number: int) -> Order:
        order = self._order(number)
        if number and len(order) != self.length:
            problem = f"yields another number of samples in pass {number} than in the first, {self.length}"
            hint = "a source of a mixture must have one length for all passes"
            raise DatasetError(self.name, problem, len(order), hint=hint)
        return order

    def pieces(self, positions: Ids) -> Iterator[Piece]:
        # Once each: of a hundred sources, these two are a good part of what a batch costs.
        first = int(positions.min()) // self.length if positions.size else 0
        if positions.size and int(positions.max()) < (first + 1) * self.length:
            everything = np.arange(positions.size)
            yield Piece(everything, self.order(first), positions - first * self.length, 0, first)
            return
        numbers, places = np.divmod(positions, self.length)
        for number, at in groups(numbers):
            yield Piece(at, self.order(number), places[at], 0, number)

    def locate(self, ids: Ids, begin: int, end: int) -> Located:
        first, last = begin // self.length, -(-end // self.length)
        if last - first > MOST_PASSES:
            problem = f"looks at each pass over a source, limited to {MOST_PASSES} passes"
            hint = "ask about a shorter num_samples"
            raise InverseTooLargeError("positions_of", problem, last - first, hint=hint)
        found = [(ids[:0],) * 2]
        for number in range(first, last):
            which, places = self.order(number).locate(ids)
            places = places + number * self.length
            inside = (places >= begin) & (places < end)
            found.append((which[inside], places[inside]))
        return np.concatenate([which for which, _ in found]), np.concatenate([p for _, p in found])

    def num_passes(self, end: int) -> int:
        return -(-end // max(1, self.length)) * self.order(0).num_passes


@final
class Mix(Stream):
    """Several streams mixed by independent draws: a position reads one of them, at its lane's next row.

    Position P, row k of lane l, reads stream s at turn * lanes + l, where lane l read s `turn` times before
    row k. So a mixture of woven orders is the weave of mixtures of lanes.

    Args:
        turns: which stream each row reads, and how often that was read before.
        lanes: into how many lanes the mixture is woven.
        streams: the sources.
        starts: what is added to the ids of each source, ascending, and the end of the last: shape
            (sources + 1,). Sources lie apart: ids of source s are in [starts[s], starts[s + 1]).
    """

    def __init__(self, turns: SourceCounts, lanes: int, streams: Sequence[Stream], starts: Ids) -> None:
        self.turns: Final = turns
        self.lanes = lanes
        self.streams: Final = tuple(streams)
        self.starts: Final = starts

    @property
    def recipe(self) -> tuple[object, ...]:
        return (*self.turns.recipe, self.lanes, self.starts, *self.streams)

    def reweighed(self, weights: Sequence[Sequence[float]], firsts: Callable[[int], Ids]) -> Mix:
        """Gives the mixture whose weights change: the same draws, and each source continues where it is.

        Args:
            weights: of each segment after the first, one for each source.
            firsts: gives for a lane the first row of each of these segments: int64, ascending. A segment
                that begins where the next one does has no rows.
        """
        ends = np.stack([self.turns.ends[0], *map(thresholds, weights)])
        return Mix(SourceCounts(self.turns.draws, ends, firsts), self.lanes, self.streams, self.starts)

    def pieces(self, positions: Ids) -> Iterator[Piece]:
        rows, lanes = np.divmod(positions, self.lanes)
        source, turns = self.turns.read(lanes, rows)
        label, places, span = source, turns * self.lanes + lanes, 0
        if positions.size <= _FEW_EACH * len(self.streams):
            # A call a source takes longer than its few positions: passes are distinguished in all at once.
            length = self._lengths[source]
            span = int((places // length).max(initial=0)) + 1
        if 0 < span < LARGEST // len(self.streams):
            label, places = source * span + places // length, places % length
        for one, at in groups(label):
            number, turn = divmod(one, span) if label is not source else (one, 0)
            stream, start = self.streams[number], int(self.starts[number])
            if label is not source and isinstance(stream, Passes):
                yield Piece(at, stream.order(turn), places[at], start, turn)
                continue
            for part, order, inside, shift, turn in stream.pieces(places[at]):
                yield Piece(at[part], order, inside, shift + start, turn)

    @cached_property
    def _lengths(self) -> Ids:
        """How long a pass over each source is; of what is not read, or no passes, longer than all."""
        pairs = zip(self.streams, np.diff(self.turns.ends, axis=1).max(axis=0), strict=True)
        return np.array(
            [one.length if draws and isinstance(one, Passes) else LARGEST for one, draws in pairs]
        )

    def num_passes(self, end: int) -> int:
        most = 1
        for number, stream in enumerate(self.streams):
            if (width := int(np.diff(self.turns.ends[:, number : number + 2], axis=1).max())) > 0:
                # A lane is never further from its share than this.
                share = -(-end * width >> 60) if len(self.turns.ends) == 1 else end
                most = max(most, stream.num_passes(min(end, share + 150 * self.lanes) + self.lanes))
        return most

    def locate(self, ids: Ids, begin: int, end: int) -> Located:
        which = np.flatnonzero((ids >= self.starts[0]) & (ids < self.starts[-1]))
        found = [(which[:0],) * 2]
        lanes = np.arange(self.lanes)
        # How many rows of each lane lie before the bounds, and how often these read each source.
        rows = [(bound - lanes + self.lanes - 1) // self.lanes for bound in (begin, end)]
        for source, at in groups(interval_of(self.starts, ids[which])):
            first, last = (self.turns.drawn(source, lanes, before) for before in rows)
            some = np.flatnonzero(last > first)
            if not some.size:
                continue
            low = int((first * self.lanes + lanes)[some].min())
            high = int(((last - 1) * self.lanes + lanes)[some].max()) + 1
            local, inner = self.streams[source].locate(ids[which[at]] - self.starts[source], low, high)
            turn, lane = np.divmod(inner, self.lanes)
            inside = (turn >= first[lane]) & (turn < last[lane])
            row = self.turns.row(source, lane[inside], turn[inside])
            found.append((which[at[local[inside]]], row * self.lanes + lane[inside]))
        return np.concatenate([which for which, _ in found]), np.concatenate([p for _, p in found])


_AHEAD = 32_768
"""The most ids that are read ahead."""

_NEAR = 16
"""Batches of other workers, over which a worker continues."""


class ReadAhead(NamedTuple):
    """Ids that were read ahead: from a position on, in steps."""

    start: int
    step: int
    ids: Ids


def range_of(start: int, step: int, count: int) -> Ids:
    """Gives positions in steps: int64 of shape (count,)."""
    return np.arange(start, start + step * count, step, dtype=np.int64)


@final
class Part(Order):
    """The positions [begin, begin + length) of a stream: an epoch of it.

    Args:
        stream: what it is a part of.
        begin: its first position there.
        length: the number of positions.
        runs_on: whether the stream is that of the run, else one of this epoch alone.
    """

    def __init__(self, stream: Stream, begin: int, length: int, *, runs_on: bool = True) -> None:
        self.stream: Final = stream
        self.begin: Final = begin
        self._length = length
        self.runs_on: Final = runs_on
        self._kept: ReadAhead | None = None

    @property
    def recipe(self) -> tuple[object, ...]:
        return self.stream, self.begin, self._length

    def __len__(self) -> int:
        return self._length

    def ids_at(self, positions: Ids) -> Ids:
        kept, self._kept = self._kept, None
        if positions.size < 2 or positions.size > _AHEAD // 2:
            return self.stream.ids_at(positions + self.begin)
        start, step = int(positions[0]), int(positions[1] - positions[0])
        if step < 1 or not (positions == range_of(start, step, positions.size)).all():
            return self.stream.ids_at(positions + self.begin)
        # What is read in a row, as ranks and workers do, is read ahead: a call costs as much as its ids.
        if kept is not None and kept.step == step and (start - kept.start) % step == 0:
            place = (start - kept.start) // step
            if 0 <= place <= kept.ids.size - positions.size:
                self._kept = kept
                return kept.ids[place : place + positions.size].copy()
            if 0 <= place < kept.ids.size + _NEAR * positions.size:
                count = min(
                    _AHEAD, max(8 * kept.ids.size, positions.size), -(-(self._length - start) // step)
                )
                ids = self.stream.ids_at(range_of(start + self.begin, step, count))
                self._kept = ReadAhead(start, step, ids)
                return ids[: positions.size].copy()
        ids = self.stream.ids_at(positions + self.begin)
        self._kept = ReadAhead(start, step, ids)
        return ids.copy()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}

    @cached_property
    def num_passes(self) -> int:
        return self.stream.num_passes(self.begin + self._length)

    def passes_at(self, positions: Ids) -> Ids:
        return self.stream.passes_at(positions + self.begin)

    def epochs_at(self, epoch: int, positions: Ids) -> Ids:
        if not self.runs_on:
            return super().epochs_at(epoch, positions)
        return self.stream.epochs_at(positions + self.begin)

    def locate(self, ids: Ids) -> Located:
        which, positions = self.stream.locate(ids, self.begin, self.begin + self._length)
        return which, positions - self.begin
