"""The pages of an LMDB file: its newest state, and where each key of a database stands.

Facts of the layout are those of version 1 of the data, which all of LMDB 0.9 writes, on machines of 64 bits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, final

import numpy as np

from samplerkit.order.typing import Ids

HEAD: Final = 16
"""Bytes of a page before what it holds."""

Read = Callable[[Sequence[tuple[int, int]]], list[bytes]]
"""Gives the bytes of some spans, offset and length each."""

_BRANCH, _LEAF, _OVERFLOW, _META = 0x01, 0x02, 0x04, 0x08
_KINDS: Final = 0x2F
_REVERSED, _SEVERAL, _INTEGERS = 0x02, 0x04, 0x08
_ELSEWHERE, _DATABASE = 0x01, 0x02
_NONE: Final = (1 << 64) - 1
_PAGE: Final = struct.Struct("<QHHHH")
_NODE: Final = struct.Struct("<HHHH")
_TREE: Final = struct.Struct("<IHHQQQQQ")
_NEWEST: Final = struct.Struct("<II16x48s48sQQ")


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
@dataclass(frozen=True)
class Node:
    """A key, and where its value stands.

    Args:
        key: the key.
        place: where the node begins in the file.
        value: where the value does: offset and length.
        is_long: whether that is in pages of its own.
        is_database: whether the value is a database.
    """

    key: bytes
    place: int
    value: tuple[int, int]
    is_long: bool
    is_database: bool


def node_at(page: bytes, number: int, page_bytes: int, at: int) -> Node:
    """Reads a node of a page that holds keys.

    Args:
        page: its bytes.
        number: of the page.
        page_bytes: its size.
        at: where in it the node begins.

    Raises:
        ValueError: there is none.
    """
    if not HEAD <= at <= page_bytes - _NODE.size:
        raise ValueError(f"page {number} has a key outside of it")
    low, high, flags, key_bytes = _NODE.unpack_from(page, at)
    start, size = at + _NODE.size + key_bytes, low | high << 16
    is_long = bool(flags & _ELSEWHERE)
    if flags > 3 or start + (8 if is_long else size) > page_bytes:
        raise ValueError(f"page {number} has a key or value that does not fit into it")
    place = number * page_bytes
    value = (
        int.from_bytes(page[start : start + 8], "little") * page_bytes + HEAD if is_long else place + start
    )
    key = page[at + _NODE.size : start]
    return Node(key, place + at, (value, size), is_long, bool(flags & _DATABASE))


def long_pages(head: bytes, node: Node, page_bytes: int) -> int:
    """Tells how many pages a long value has, from the head of the first.

    Raises:
        ValueError: it has other pages than it needs.
    """
    number, _, kind = _PAGE.unpack_from(head)[:3]
    count = int.from_bytes(head[12:16], "little")
    where = (node.value[0] - HEAD) // page_bytes
    if (number, kind & _KINDS) != (where, _OVERFLOW) or count * page_bytes < HEAD + node.value[1]:
        raise ValueError(f"page {where} does not hold the long value that is said to be there")
    return count


@final
class Walk:
    """Goes through a database, from its first key to its last; whatever leads somewhere is looked at.

    Args:
        read: reads the file.
        page_bytes: the size of its pages.
        tree: the database.
    """

    def __init__(self, read: Read, page_bytes: int, tree: KeyTree) -> None:
        if tree.flags & _SEVERAL:
            raise ValueError("a database whose keys have several values, which is not read")
        self._read, self._page_bytes, self._tree = read, page_bytes, tree
        self._seen = [0, 0, 0]

    def nodes(self) -> Iterator[Node]:
        """Gives all keys.

        Raises:
            ValueError: the pages contradict one another.
        """
        tree, found, before = self._tree, 0, None
        if tree.root != _NONE:
            for node in self._below([tree.root], tree.depth):
                key = _compared(node.key, tree.flags)
                if before is not None and not before < key:
                    raise ValueError(f"keys that do not follow one another, {node.key[:40]!r}")
                before, found = key, found + 1
                yield node
        if (found, tuple(self._seen)) != (tree.entries, tree.pages):
            raise ValueError(f"{found} keys in pages {self._seen}, and says {tree.entries} in {tree.pages}")

    def _below(self, numbers: list[int], depth: int) -> Iterator[Node]:
        size = self._page_bytes
        for number, page in zip(numbers, self._read([(n * size, size) for n in numbers]), strict=True):
            if depth > 1:
                self._seen[0] += 1
                yield from self._below(self._children(page, number), depth - 1)
                continue
            self._seen[1] += 1
            starts = _starts(page, number, _LEAF, size)
            nodes = [node_at(page, number, size, at) for at in starts]
            ends = [n.place + _NODE.size + len(n.key) + (8 if n.is_long else n.value[1]) for n in nodes]
            _require_whole(page, number, starts, [end - number * size for end in ends])
            long = [node for node in nodes if node.is_long]
            heads = self._read([(node.value[0] - HEAD, HEAD) for node in long])
            for head, node in zip(heads, long, strict=True):
                self._seen[2] += long_pages(head, node, size)
            yield from nodes

    def _children(self, page: bytes, number: int) -> list[int]:
        starts, found, ends = _starts(page, number, _BRANCH, self._page_bytes), [], []
        for at in starts:
            low, high, more, key_bytes = _NODE.unpack_from(page, at)
            found.append(low | high << 16 | more << 32)
            ends.append(at + _NODE.size + key_bytes)
        _require_whole(page, number, starts, ends)
        return found


def _starts(page: bytes, number: int, wanted: int, page_bytes: int) -> list[int]:
    """Gives where the nodes of a page begin, in the order of their keys."""
    told, _, kind, lower, upper = _PAGE.unpack_from(page)
    if (told, kind & _KINDS) != (number, wanted) or not HEAD <= lower <= upper <= page_bytes:
        raise ValueError(f"page {number} is not the one that is said to be there")
    starts: Ids = np.frombuffer(page, "<u2", (lower - HEAD) // 2, HEAD).astype(np.int64)
    if starts.size == 0 or starts.min() < upper or starts.max() > page_bytes - _NODE.size:
        raise ValueError(f"page {number} has a key outside of it")
    return [int(at) for at in starts]


def _require_whole(page: bytes, number: int, starts: list[int], ends: list[int]) -> None:
    """Requires that nodes lie one behind the other from where they begin to the end of the page."""
    upper = _PAGE.unpack_from(page)[4]
    order = sorted(zip(starts, ends, strict=True))
    wanted = [upper, *(end + end % 2 for _, end in order)]
    if wanted != [*(start for start, _ in order), len(page)]:
        raise ValueError(f"page {number} has keys that do not lie one behind the other")


def _compared(key: bytes, flags: int) -> bytes:
    """Gives what is in the order of bytes as keys are in theirs; numbers of a database have one size."""
    return key[::-1] if flags & (_INTEGERS | _REVERSED) else key
