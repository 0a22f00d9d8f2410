"""The order: an immutable, finite sequence of sample ids with random access."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, final, overload

import numpy as np

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, OutOfDatasetError
from samplerkit.order.arguments import LARGEST, integer, integers
from samplerkit.order.layout import Layout
from samplerkit.order.permutation import CHUNK
from samplerkit.order.typing import Ids

Located = tuple[Ids, Ids]
"""Which of the given ids, and a position of it: two arrays of one length."""


def lookup(ids: Any, locate: Callable[[Ids], Located]) -> Ids | Located:
    """Looks up one id, or an array of ids.

    Args:
        ids: what was given.
        locate: finds all places of ids, as `Order.locate` does.

    Returns:
        For one id its places, ascending; for an array the pair (which, places), sorted by both.

    Raises:
        ArgumentTypeError: an id is no integer.
    """
    array = integers("ids", ids)
    flat = array.reshape(-1)
    if flat.dtype == object:
        # Integers that fit no dtype: no order holds them, as it holds none out of range.
        flat = np.clip(flat, -1, LARGEST)
    which, places = locate(flat.astype(np.int64))
    sequence = np.lexsort((places, which))
    if array.ndim == 0:
        return places[sequence]
    return which[sequence], places[sequence]


PASS_BITS = 40
"""Pass t of epoch e over a source, where passes begin again in each epoch, is its epoch e + t * 2^40."""

_TEMPORARY_BYTES = 1 << 22
"""Bytes of the largest array of ids whose memory should be there for the next one."""


class EqualByRecipe:
    """A base of values that are equal if their class and recipe are equal; no id is evaluated."""

    @property
    def recipe(self) -> tuple[object, ...] | None:
        """What it was made from: orders of one class with equal recipes are equal, and hold the same ids.

        For a dataclass these are its fields; None for a value that is equal to itself alone. Orders with the
        same ids that were made in different ways are not equal: compare `order[:]` for that.
        """
        return tuple(getattr(self, field.name) for field in fields(self)) if is_dataclass(self) else None

    @final
    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or not isinstance(other, EqualByRecipe):
            return NotImplemented
        recipe, other_recipe = self.recipe, other.recipe
        if recipe is None or other_recipe is None:
            return False
        return len(recipe) == len(other_recipe) and all(map(_is_equal, recipe, other_recipe))

    def __hash__(self) -> int:
        return hash(type(self))


class Order(EqualByRecipe, ABC):
    """A sequence of sample ids with random access: `order[p]` is the id at position p.

    An order is a value. It is never built as a list: all ids cost the same, at any position, and memory holds
    only the ids that were indexed. Indexing works as with a numpy array. Subclasses are final. Each defines
    its length, the ids at positions (`ids_at`), and the positions of ids (`locate`).

    Example:
        >>> import samplerkit as sk
        >>> order = sk.RandomSampler(seed=7).order(10**12, epoch=3)
        >>> len(order)
        1000000000000
        >>> order[999_999_999_990:].shape, order[np.array([5, 5])].tolist() == [order[5]] * 2
        ((10,), True)
        >>> order.positions_of(order[123456789])
        array([123456789])
    """

    @abstractmethod
    def __len__(self) -> int:
        """The number of positions."""

    @abstractmethod
    def ids_at(self, positions: Ids) -> Ids:
        """Returns the ids at positions that are known to be valid.

        Args:
            positions: int64 array of shape (m,), each in [0, len).

        Returns:
            int64 array of shape (m,); it may share memory with `positions`.
        """

    @abstractmethod
    def locate(self, ids: Ids) -> Located:
        """Finds all positions of the ids.

        Args:
            ids: int64 array of shape (m,), any values.

        Returns:
            (which, positions), two int64 arrays of one length: ids[which[i]] is at positions[i]. Sorted by
            neither. An id that does not occur is not in `which`.
        """

    @property
    def num_passes(self) -> int:
        """A number above all values of `passes_at`; 1 where nothing repeats."""
        return 1

    def passes_at(self, positions: Ids) -> Ids:
        """Returns in which pass over its source each position is: how often the id came before there.

        0 where nothing repeats, and for draws with replacement, which are independent. A pad is in the pass
        of the sample that it repeats. No two positions of one id are in one pass, but if one sampler of
        repeats reads another, passes need not be consecutive. `positions` and shapes are those of `ids_at`.
        """
        return np.zeros_like(positions)

    def epochs_at(self, epoch: int, positions: Ids) -> Ids:
        """Returns in which epoch of its source each position is, where this order is that of an epoch.

        That is the epoch itself where a source is read once in it. In a mixture whose passes run on over
        epochs it is the pass, since a source is read in its pass t as in epoch t alone. A further pass within
        the epoch is 2^40 more. So no two positions of one id, in all epochs of a run, are in one of these.
        """
        return epoch + (self.passes_at(positions) << PASS_BITS)

    @property
    def layout(self) -> Layout:
        """The layout of this order for a parent sampler: its samples, in files if these are kept together."""
        return Layout(len(self))

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice | list[int] | np.ndarray[Any, Any]) -> Ids: ...
    @final
    def __getitem__(self, index: Any) -> int | Ids:
        """Returns an id for an integer, and an int64 array for a slice or an array of positions.

        Raises:
            OutOfDatasetError: a position is outside of [-len, len).
            ArgumentTypeError: the index is none of these.
            ArgumentValueError: the step of a slice is 0.
        """
        if isinstance(index, slice):
            return self._ids_of_range(slice_positions(len(self), index))
        positions = integers("index", index)
        ids = self.ids_at(self._checked(positions.reshape(-1)))
        is_scalar = positions.ndim == 0 and not isinstance(index, np.ndarray)
        return int(ids[0]) if is_scalar else ids.reshape(positions.shape)

    @final
    def __iter__(self) -> Iterator[int]:
        for chunk in self.chunks():
            yield from chunk.tolist()

    @final
    def chunks(self, size: int = CHUNK, start: int = 0) -> Iterator[Ids]:
        """Iterates over the ids in arrays.

        Args:
            size: ids an array; the last may be shorter.
            start: the position to begin at; getting there costs nothing.

        Returns:
            An iterator of int64 arrays.

        Raises:
            ArgumentTypeError: one of them is no integer.
            ArgumentValueError: `size` is not positive.
            OutOfDatasetError: `start` is outside of [0, len].

        Example:
            >>> import samplerkit as sk
            >>> [chunk.tolist() for chunk in sk.SequentialSampler().order(5).chunks(2)]
            [[0, 1], [2, 3], [4]]
        """
        size, start = integer("size", size), integer("start", start)
        if size < 1:
            raise ArgumentValueError("size", "must be positive", size)
        if not 0 <= start <= len(self):
            raise OutOfDatasetError("start", f"must be in [0, {len(self)}]", start)
        for begin in range(start, len(self), size):
            yield self[begin : begin + size]

    @final
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("an order is computed: it cannot become an array without a copy")
        ids = self[:]
        return ids if dtype is None else ids.astype(dtype)

    @overload
    def positions_of(self, ids: int) -> Ids: ...
    @overload
    def positions_of(self, ids: list[int] | np.ndarray[Any, Any]) -> Located: ...
    @final
    def positions_of(self, ids: Any) -> Ids | Located:
        """Finds when samples are read: the inverse of indexing.

        Args:
            ids: one id, or an array of m ids.

        Returns:
            For one id, its positions in ascending order, none if it does not occur. For an array, the pair
            (which, positions): ids[which[i]] is at positions[i], sorted by `which`, then by position.

        Raises:
            ArgumentTypeError: an id is no integer.
            InverseTooLargeError: only a scan would do, and the order is too long for one.

        Example:
            >>> import samplerkit as sk
            >>> order = sk.SubsetSampler([4, 2, 4]).order(5)
            >>> order.positions_of(4), order.positions_of([2, 3, 4])
            (array([0, 2]), (array([0, 2, 2]), array([1, 0, 2])))
        """
        return lookup(ids, self.locate)

    @final
    def __contains__(self, id: object) -> bool:
        """Returns whether a sample is read at all, by `positions_of`: only integers are in an order."""
        try:
            return self.positions_of(integer("id", id)).size > 0
        except ArgumentTypeError:
            return False

    @final
    def index(self, id: int) -> int:
        """Returns the first position of a sample.

        Raises:
            ArgumentTypeError: no integer.
            ArgumentValueError: the order does not hold it.
        """
        positions = self.positions_of(integer("id", id))
        if not positions.size:
            raise ArgumentValueError("id", f"is not in an order of {len(self)} samples", id)
        return int(positions[0])

    @overload
    def count(self, ids: int) -> int: ...
    @overload
    def count(self, ids: list[int] | np.ndarray[Any, Any]) -> Ids: ...
    @final
    def count(self, ids: Any) -> int | Ids:
        """Returns how often a sample is read; of an array of ids how often each is, int64 of shape (m,).

        Raises:
            ArgumentTypeError: an id is no integer.
            InverseTooLargeError: as for `positions_of`.
        """
        positions: Any = self.positions_of(ids)
        if not isinstance(positions, tuple):
            return int(positions.size)
        return np.bincount(positions[0], minlength=np.asarray(ids).size)

    @final
    def __hash__(self) -> int:
        return hash((type(self), len(self)))

    def __repr__(self) -> str:
        ids = ", ".join(str(i) for i in self[:6].tolist())
        return f"Order([{ids}{', ...' if len(self) > 6 else ''}], length {len(self)})"

    def _ids_of_range(self, positions: range) -> Ids:
        _warm_allocator()
        # In chunks, temporary arrays stay in the processor's cache.
        ids = np.empty(len(positions), dtype=np.int64)
        for start in range(0, ids.size, CHUNK):
            part = positions[start : start + CHUNK]
            chunk = np.arange(part.start, part.stop, part.step, dtype=np.int64)
            ids[start : start + CHUNK] = self.ids_at(chunk)
        return ids

    def _checked(self, positions: np.ndarray[Any, Any]) -> Ids:
        length = len(self)
        if positions.size and (positions.min() < -length or positions.max() >= length):
            outside = positions[(positions < -length) | (positions >= length)]
            raise OutOfDatasetError("position", f"outside of an order of {length} samples", int(outside[0]))
        checked = positions.astype(np.int64)
        checked[checked < 0] += length
        return checked


Read = Callable[[Order, Ids], Ids]
"""Reads values of an order at some positions: ids, or passes."""


class OrderView(Order):
    """An order that reads others at positions that it computes, and adds no ids."""

    @abstractmethod
    def read(self, positions: Ids, getter: Read) -> Ids:
        """Reads values of the orders that it reads, and gives them position by position."""

    @property
    @abstractmethod
    def viewed(self) -> Sequence[Order]:
        """The orders that it reads."""

    def ids_at(self, positions: Ids) -> Ids:
        return self.read(positions, lambda order, inner: order.ids_at(inner))

    @property
    @final
    def num_passes(self) -> int:
        return max((order.num_passes for order in self.viewed), default=1)

    @final
    def passes_at(self, positions: Ids) -> Ids:
        return self.read(positions, lambda order, inner: order.passes_at(inner))

    @final
    def epochs_at(self, epoch: int, positions: Ids) -> Ids:
        return self.read(positions, lambda order, inner: order.epochs_at(epoch, inner))


def located(positions: Ids, valid: Any) -> Located:
    """Turns one candidate position for each id, valid or not, into what `Order.locate` returns."""
    which = np.flatnonzero(valid)
    return which, positions[which]


def _is_equal(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    return bool(a == b)


@cache
def _warm_allocator() -> None:
    """Frees one array as large as the usual temporary ones, once per process.

    The GNU C library returns memory of sizes that it has never freed before to the system, and takes it again
    for the next array, page by page: half of the time that reading an order takes.
    """
    np.empty(_TEMPORARY_BYTES, dtype=np.uint8)


def slice_positions(length: int, index: slice) -> range:
    """Returns the positions of a slice of an order."""
    try:
        return range(*index.indices(length))
    except TypeError:
        raise ArgumentTypeError("index", "must be a slice of integers", index) from None
    except ValueError:
        raise ArgumentValueError("index", "must have a step other than 0", index) from None
