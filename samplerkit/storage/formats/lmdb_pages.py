"""The pages of an LMDB file: its newest state, and where each key of a database stands.

Facts of the layout are those of version 1 of the data, which all of LMDB 0.9 writes, on machines of 64 bits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import lt
from typing import Any, Final, final

import numpy as np

from samplerkit.order.typing import Ids

HEAD: Final = 16
"""Bytes of a page before what it holds."""

Read = Callable[[Sequence[tuple[int, int]]], list[bytes]]
"""Gives the bytes of some spans, offset and length each."""

Truths = np.ndarray[Any, np.dtype[np.bool_]]
"""Whether it is so, for each of some."""

_BRANCH, _LEAF, _OVERFLOW, _META = 0x01, 0x02, 0x04, 0x08
_KINDS: Final = 0x2F
_REVERSED, _SEVERAL, _INTEGERS = 0x02, 0x04, 0x08
_ELSEWHERE, _DATABASE = 0x01, 0x02
_NONE: Final = (1 << 64) - 1
_PAGE: Final = struct.Struct("<QHHHH")
_NODE_BYTES: Final = 8
_TREE: Final = struct.Struct("<IHHQQQQQ")
_NEWEST: Final = struct.Struct("<II16x48s48sQQ")
_PAGES_AT_ONCE: Final = 64
_OUTSIDE: Final = "has a key outside of it"


@final
@dataclass(frozen=True)
class KeyTree:
    """A database: a tree of pages, as it tells of itself.

    Args:
        flags: how keys are compared.
        depth: the levels of pages.
        pages: how many lead on, hold keys, and hold long values.
        entries: how many keys.
        root: the page to begin with.
    """

    flags: int
    depth: int
    pages: tuple[int, int, int]
    entries: int
    root: int

    @classmethod
    def of(cls, data: bytes) -> KeyTree:
        """Takes its 48 bytes."""
        _, flags, depth, *pages, entries, root = _TREE.unpack(data)
        first, second, third = pages
        return cls(flags, depth, (first, second, third), entries, root)

    @property
    def has_several(self) -> bool:
        """Whether its keys may have several values each, which are not read."""
        return bool(self.flags & _SEVERAL)


@final
@dataclass(frozen=True)
class Newest:
    """The state of a file that was written last.

    Args:
        page_bytes: the size of a page.
        change: its number; each change of the file has the next one.
        main: the database without a name.
        told: the bytes in which this stands, which are others after a change.
    """

    page_bytes: int
    change: int
    main: KeyTree
    told: bytes = field(repr=False)

    @property
    def spans(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Where this stands."""
        length = len(self.told) // 2
        return (0, length), (self.page_bytes, length)

    @classmethod
    def of(cls, read: Read) -> Newest:
        """Reads it: two pages take turns.

        Raises:
            ValueError: there is none.
        """
        (first,) = read([(0, HEAD + _NEWEST.size)])
        page_bytes = _TREE.unpack_from(first, HEAD + 24)[0]
        if not 512 <= page_bytes <= 1 << 16 or page_bytes & (page_bytes - 1):
            raise ValueError(f"pages of {page_bytes} bytes")
        both = [first, *read([(page_bytes, len(first))])]
        changes = []
        for number, data in enumerate(both):
            page, _, kind, *_ = _PAGE.unpack_from(data)
            mark, version, free, _, _, change = _NEWEST.unpack_from(data, HEAD)
            if (page, kind & _KINDS, mark) != (number, _META, 0xBEEFC0DE):
                raise ValueError("no file of LMDB")
            if version != 1 or _TREE.unpack(free)[0] != page_bytes:
                raise ValueError(f"version {version} of the data, and only 1 is known")
            changes.append(change)
        newest = int(changes[1] > changes[0])
        main = KeyTree.of(_NEWEST.unpack_from(both[newest], HEAD)[3])
        is_new = changes == [0, 0] and main.root == _NONE
        if not is_new and (abs(changes[0] - changes[1]) != 1 or changes[newest] % 2 != newest):
            raise ValueError(f"states {changes}, which do not follow one another")
        return cls(page_bytes, changes[newest], main, b"".join(both))


@final
@dataclass(frozen=True, eq=False)
class Nodes:
    """Some keys, and where their values stand: in arrays, since one by one takes several times as long.

    Args:
        keys: the keys.
        places: where in the file the node of each begins.
        starts: where its value does.
        sizes: of the values, in bytes.
        is_long: whether a value stands in pages of its own.
        is_database: whether it is a database.
    """

    keys: list[bytes]
    places: Ids
    starts: Ids
    sizes: Ids
    is_long: Truths
    is_database: Truths


def nodes_at(pages: Sequence[bytes], numbers: Ids, at: Ids, page_bytes: int) -> Nodes:
    """Reads nodes of pages that hold keys.

    Args:
        pages: of each node.
        numbers: of these pages.
        at: where in its page each node begins.
        page_bytes: the size of a page.

    Raises:
        ValueError: there is none.
    """
    _require((at >= HEAD) & (at <= page_bytes - _NODE_BYTES), numbers, _OUTSIDE)
    begin = at.tolist()
    heads = b"".join([page[a : a + _NODE_BYTES] for page, a in zip(pages, begin, strict=True)])
    low, high, flags, key_bytes = np.frombuffer(heads, "<u2").reshape(-1, 4).T.astype(np.int64)
    first, sizes, is_long = at + _NODE_BYTES + key_bytes, low | high << 16, flags & _ELSEWHERE != 0
    is_whole = (flags <= 3) & (first + np.where(is_long, 8, sizes) <= page_bytes)
    _require(is_whole, numbers, "has a key or value that does not fit into it")
    ends = first.tolist()
    keys = [page[a + _NODE_BYTES : b] for page, a, b in zip(pages, begin, ends, strict=True)]
    start, long = numbers * page_bytes, np.flatnonzero(is_long)
    starts = start + first
    told = b"".join([pages[number][ends[number] : ends[number] + 8] for number in long.tolist()])
    elsewhere = np.frombuffer(told, "<u8")
    _require(elsewhere < 1 << 40, numbers[long], "has a value that lies nowhere")
    starts[long] = elsewhere.astype(np.int64) * page_bytes + HEAD
    return Nodes(keys, start + at, starts, sizes, is_long, flags & _DATABASE != 0)


def require_long(heads: bytes, starts: Ids, sizes: Ids, page_bytes: int) -> None:
    """Requires that long values stand in pages of their own, by the head of the first of each.

    Args:
        heads: one behind the other.
        starts: where in the file each value begins.
        sizes: of the values.
        page_bytes: the size of a page.

    Raises:
        ValueError: one has other pages, or fewer than it needs.
    """
    where = (starts - HEAD) // page_bytes
    told, kinds = np.frombuffer(heads, "<u8")[::2], np.frombuffer(heads, "<u2")[5::8] & _KINDS
    counts = np.frombuffer(heads, "<u4")[3::4].astype(np.int64)
    is_right = (told == where) & (kinds == _OVERFLOW) & (counts * page_bytes >= HEAD + sizes)
    _require(is_right, where, "does not hold the long value that is said to be there")


@final
class Walk:
    """Goes through a database, from its first key to its last; whatever leads somewhere is looked at.

    Args:
        read: reads the file.
        page_bytes: the size of its pages.
        tree: the database.
    """

    def __init__(self, read: Read, page_bytes: int, tree: KeyTree) -> None:
        self._read, self._page_bytes, self._tree = read, page_bytes, tree
        self._seen = [0, 0, 0]

    def nodes(self) -> Iterator[Nodes]:
        """Gives all keys, those of some pages at a time.

        Raises:
            ValueError: the pages contradict one another.
        """
        tree, found, before = self._tree, 0, list[bytes]()
        if tree.root != _NONE:
            for nodes in self._below([tree.root], tree.depth):
                keys = before + [_compared(key, tree.flags) for key in nodes.keys]
                if not all(map(lt, keys, keys[1:])):
                    wrong = next(_compared(b, tree.flags)[:40] for a, b in pairwise(keys) if not a < b)
                    raise ValueError(f"keys that do not follow one another, {wrong!r}")
                before, found = keys[-1:], found + len(nodes.keys)
                yield nodes
        *seen, long = self._seen
        if (found, *seen) != (tree.entries, *tree.pages[:2]) or long > tree.pages[2]:
            raise ValueError(f"{found} keys in pages {self._seen}, and says {tree.entries} in {tree.pages}")

    def _below(self, numbers: list[int], depth: int) -> Iterator[Nodes]:
        size = self._page_bytes
        for first in range(0, len(numbers), _PAGES_AT_ONCE):
            some = numbers[first : first + _PAGES_AT_ONCE]
            pages = self._read([(n * size, size) for n in some])
            if depth > 1:
                self._seen[0] += len(some)
                yield from self._below(self._children(b"".join(pages), np.array(some)), depth - 1)
            else:
                self._seen[1] += len(some)
                yield self._leaves(pages, np.array(some))

    def _leaves(self, several: Sequence[bytes], numbers: Ids) -> Nodes:
        size, pages = self._page_bytes, b"".join(several)
        which, at = _slots(pages, numbers, _LEAF, size)
        nodes = nodes_at([several[number] for number in which.tolist()], numbers[which], at, size)
        key_bytes = np.fromiter(map(len, nodes.keys), np.int64, len(nodes.keys))
        ends = at + _NODE_BYTES + key_bytes + np.where(nodes.is_long, 8, nodes.sizes)
        _require_whole(pages, numbers, which, at, ends, size)
        # At least: a shorter value may have taken the place of a longer one. Their heads are read with them.
        self._seen[2] += int(((HEAD - 1 + nodes.sizes[nodes.is_long]) // size + 1).sum())
        return nodes

    def _children(self, pages: bytes, numbers: Ids) -> list[int]:
        size = self._page_bytes
        which, at = _slots(pages, numbers, _BRANCH, size)
        low, high, more, key_bytes = _words(pages, which * size + at, 4)
        _require_whole(pages, numbers, which, at, at + _NODE_BYTES + key_bytes, size)
        return [*(low | high << 16 | more << 32).tolist()]


def _slots(pages: bytes, numbers: Ids, wanted: int, page_bytes: int) -> tuple[Ids, Ids]:
    """Gives where the nodes of pages begin, in the order of their keys: in which page, and where in it."""
    places = np.arange(numbers.size) * page_bytes
    told = np.frombuffer(pages, "<u8")[:: page_bytes // 8]
    kind, lower, upper = _words(pages, places + 10, 3)
    is_right = (told == numbers) & (kind & _KINDS == wanted)
    is_right &= (lower >= HEAD) & (lower <= upper) & (upper <= page_bytes)
    _require(is_right, numbers, "is not the one that is said to be there")
    counts = (lower - HEAD) // 2
    which = np.repeat(np.arange(numbers.size), counts)
    slot = np.arange(which.size) - np.repeat(np.cumsum(counts) - counts, counts)
    (at,) = _words(pages, places[which] + HEAD + 2 * slot, 1)
    is_inside = (at >= upper[which]) & (at <= page_bytes - _NODE_BYTES) & (at % 2 == 0)
    _require(counts > 0, numbers, _OUTSIDE)
    _require(is_inside, numbers[which], _OUTSIDE)
    return which, at


def _require_whole(pages: bytes, numbers: Ids, which: Ids, at: Ids, ends: Ids, page_bytes: int) -> None:
    """Requires that nodes lie one behind the other from where they begin to the end of their page."""
    order = np.lexsort((at, which))
    page, ends = which[order], (ends + ends % 2)[order]
    is_first = np.diff(page, prepend=-1) != 0
    (upper,) = _words(pages, page * page_bytes + 14, 1)
    is_right = at[order] == np.where(is_first, upper, np.roll(ends, 1))
    is_right &= ~np.roll(is_first, -1) | (ends == page_bytes)
    _require(is_right, numbers[page], "has keys that do not lie one behind the other")


def _words(data: bytes, at: Ids, count: int) -> Ids:
    """Reads so many numbers of 16 bits at each of some even places; the first ones are the first row."""
    words: Ids = np.frombuffer(data, "<u2")[at // 2 + np.arange(count)[:, None]].astype(np.int64)
    return words


def _require(is_right: Truths, numbers: Ids, problem: str) -> None:
    if not is_right.all():
        raise ValueError(f"page {numbers[int(np.argmin(is_right))]} {problem}")


def _compared(key: bytes, flags: int) -> bytes:
    """Gives what is in the order of bytes as keys are in theirs; numbers of a database have one size."""
    return key[::-1] if flags & (_INTEGERS | _REVERSED) else key
