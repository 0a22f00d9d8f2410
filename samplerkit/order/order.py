"""The order: an immutable, finite sequence of sample ids with random access."""

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
"""(which, positions), two int64 arrays of one length: ids[which[i]] is at positions[i]."""


def lookup(ids: Any, locate: Callable[[Ids], Located]) -> Ids | Located:
    """Looks up one id, or an array of ids.

    Args:
        ids: one id, or an array of them.
        locate: finds all positions of ids, as `Order.locate`.

    Returns:
        For one id its positions, ascending. For an array the pair (which, positions), sorted by `which`, then
        by position.

    Raises:
        ArgumentTypeError: an id is not an integer.
    """
    array = integers("ids", ids)
    flat = array.reshape(-1)
    if flat.dtype == object:
        # Integers of more than 64 bits become values that are in no order either.
        flat = np.clip(flat, -1, LARGEST)
    which, positions = locate(flat.astype(np.int64))
    ascending = np.lexsort((positions, which))
    return positions[ascending] if array.ndim == 0 else (which[ascending], positions[ascending])


PASS_BITS = 40
"""If passes over a source begin again in each epoch, pass t in epoch e has the number e + t * 2^40."""

_TEMPORARY_BYTES = 1 << 22
"""The size of the largest temporary array whose memory the process should keep for the next one."""


class EqualByRecipe:
    """The base of values that are equal if they have equal classes and recipes; no ids are computed."""

    @property
    def recipe(self) -> tuple[object, ...] | None:
        """What the value was made from: orders of one class with equal recipes are equal, and have equal ids.

        For a dataclass these are its fields; None for a value that is equal to itself only. Orders with the
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
        """Returns in which pass over its source each position is, from 0; arguments as for `ids_at`.

        That is how often the id came before: 0 if nothing repeats. A pad is in the pass of the sample that it
        repeats. Draws with replacement are independent, and all in pass 0. In any other order, no two
        positions of one id are in one pass; but if a sampler with repeats reads another one, some numbers of
        passes are left out.
        """
        return np.zeros_like(positions)

    def epochs_at(self, epoch: int, positions: Ids) -> Ids:
        """Returns for each position a number that differs each time a run reads the same id.

        It is the epoch of the source: `epoch` for a source that is read once per epoch. In a mixture whose
        passes continue from epoch to epoch it is the pass: pass t over a source has the order of epoch t of
        that source alone. Each further pass in the same epoch adds 2^40.
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
            size: ids per array; the last one may be shorter.
            start: the position to begin at; it costs no time to get there.

        Returns:
            An iterator of int64 arrays.

        Raises:
            ArgumentTypeError: `size` or `start` is not an integer.
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
            ArgumentTypeError: an id is not an integer.
            InverseTooLargeError: the order has to be scanned for them, and is too long for that.

        Example:
            >>> import samplerkit as sk
            >>> order = sk.SubsetSampler([4, 2, 4]).order(5)
            >>> order.positions_of(4), order.positions_of([2, 3, 4])
            (array([0, 2]), (array([0, 2, 2]), array([1, 0, 2])))
        """
        return lookup(ids, self.locate)

    @final
    def __contains__(self, id: object) -> bool:
        """Returns whether a sample is read at all; anything but an integer is not."""
        try:
            return self.positions_of(integer("id", id)).size > 0
        except ArgumentTypeError:
            return False

    @final
    def index(self, id: int) -> int:
        """Returns the first position of a sample.

        Raises:
            ArgumentTypeError: `id` is not an integer.
            ArgumentValueError: the sample is not in the order.
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
        """Returns how often a sample is read; for an array of m ids, how often each is: int64 of shape (m,).

        Raises:
            ArgumentTypeError: an id is not an integer.
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
"""Returns values of an order at some positions: ids, passes or epochs."""


class OrderView(Order):
    """An order with the ids of other orders, at positions that it computes."""

    @abstractmethod
    def read(self, positions: Ids, getter: Read) -> Ids:
        """Reads values of the other orders.

        Args:
            positions: of this order, int64 of shape (m,).
            getter: returns the values of one of the other orders at its own positions.

        Returns:
            The values at `positions`, int64 of shape (m,).
        """

    @property
    @abstractmethod
    def viewed(self) -> Sequence[Order]:
        """The other orders."""

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
    """Returns the result of `Order.locate` for ids that have at most one position each.

    Args:
        positions: of the ids; int64 of shape (m,).
        valid: whether each id is in the order; for the others, the position is ignored. bool of shape (m,).
    """
    which = np.flatnonzero(valid)
    return which, positions[which]


def _is_equal(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    return bool(a == b)


@cache
def _warm_allocator() -> None:
    """Allocates and frees one array as large as the largest temporary ones, once per process.

    The GNU C library returns memory to the system if it has never freed a block of that size before, and
    then requests it again for the next array, page by page: that is half of the time of reading an order.
    """
    np.empty(_TEMPORARY_BYTES, dtype=np.uint8)


def slice_positions(length: int, index: slice) -> range:
    """Returns the positions that a slice selects in an order of some length."""
    try:
        return range(*index.indices(length))
    except TypeError:
        raise ArgumentTypeError("index", "must be a slice of integers", index) from None
    except ValueError:
        raise ArgumentValueError("index", "must have a step other than 0", index) from None
