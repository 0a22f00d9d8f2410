"""Samples in a store of LMDB, by the place of their keys; the store is read, and never mapped into memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order import arguments
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.stats import FileStats
from samplerkit.storage.formats.arrow_rows import names_of
from samplerkit.storage.formats.keyed import KeyedDataset, OpenStore
from samplerkit.storage.formats.lmdb_pages import HEAD, KeyTree, Newest, Node, Walk, long_pages, node_at
from samplerkit.storage.formats.stored import AGAIN, Stored, guarded


@final
class LmdbDataset(KeyedDataset):
    """Samples in a store of LMDB: a sample is a dict of `key` and `value`, both bytes, read at random.

    Its package is not needed: it maps the file, and ends the process where that is cut or damaged. Here pages
    are read, and whatever leads from one to another is looked at. Samples are in the order of their keys.

    Args:
        path: of the folder with `data.mdb`, or of the file.
        database: the name of the database; None for the one without a name.
        leave_out: keys that are no samples, such as `__len__`.
        decode: makes a sample of the dict; None for the dict itself.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: a name is empty.
        DatasetError: later, there is no such database or key, or the file cannot be read or was changed.

    Example:
        >>> LmdbDataset("train.lmdb", leave_out=["__len__"])
        LmdbDataset('train.lmdb', not looked at)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        database: str | None = None,
        leave_out: Sequence[str] = (),
        *,
        decode: Callable[[dict[str, bytes]], Any] | None = None,
    ) -> None:
        super().__init__(arguments.text("path", os.fspath(path)), decode)
        self._database: Final = None if database is None else arguments.word("database", database)
        self._left_out: Final = frozenset(
            name.encode() for name in names_of(leave_out, called="leave_out") or ()
        )

    def _file(self) -> str:
        return os.fspath(Path(self.path, "data.mdb")) if Path(self.path).is_dir() else self.path

    def _found(self) -> _NodePlaces:
        stored = self._looked_at
        read = partial(stored.read, storage=None)

        def found() -> _NodePlaces:
            newest = Newest.of(read)
            tree = newest.main if self._database is None else self._named(read, newest, self._database)
            missing, places = set(self._left_out), []
            for node in Walk(read, newest.page_bytes, tree).nodes():
                if node.key in missing:
                    missing.remove(node.key)
                elif node.is_database:
                    problem, mend = "holds databases by name", "name one, or leave its name out"
                    raise DatasetError(self.path, problem, node.key.decode(errors="replace"), mend=mend)
                else:
                    places.append(node.place)
            if missing:
                raise DatasetError(self.path, "holds no key to leave out", min(missing))
            return _NodePlaces(newest, np.array(places, dtype=np.int64))

        return guarded(stored.name, "read", found)

    def _named(self, read: Any, newest: Newest, name: str) -> KeyTree:
        names = {}
        for node in Walk(read, newest.page_bytes, newest.main).nodes():
            if node.is_database:
                names[node.key.decode()] = node.value
        if name not in names:
            raise DatasetError(self.path, f"holds no database {name!r}, but only", sorted(names))
        return KeyTree.of(read([names[name]])[0])

    def _opened(self, keys: Any, stats: FileStats) -> OpenStore:
        return _Store(self._looked_at, keys, stats)


@final
@dataclass(frozen=True, eq=False)
class _NodePlaces:
    """Where the keys of all samples stand, and the state of the file in which they do."""

    newest: Newest
    nodes: Ids

    def __len__(self) -> int:
        return self.nodes.size


@final
class _Store(OpenStore):
    """A store as it is read in one process; nothing stays open."""

    def __init__(self, stored: Stored, places: _NodePlaces, stats: FileStats) -> None:
        super().__init__(stats)
        self._stored, self._places = stored, places

    def close(self) -> None:
        """Does nothing: nothing is open."""

    def read(self, ids: Ids) -> list[Any]:
        """Reads keys and values."""
        return guarded(self._stored.name, "read", lambda: self._read(self._places.nodes[ids]))

    def _read(self, nodes: Ids) -> list[dict[str, bytes]]:
        read = partial(self._stored.read, storage=None)
        size = self._places.newest.page_bytes
        numbers, which = np.unique(nodes // size, return_inverse=True)
        pages = read([(number * size, size) for number in numbers.tolist()])
        found = [
            node_at(pages[page], place // size, size, place % size)
            for page, place in zip(which.tolist(), nodes.tolist(), strict=True)
        ]
        values = read([_whole(node) for node in found])
        # A change makes pages free that another one may overwrite: what was read before the first is sound.
        if Newest.of(read).told != self._places.newest.told:
            raise DatasetError(self._stored.name, "was changed while it was read", mend=AGAIN)
        return [
            {"key": node.key, "value": _value(node, value, size)}
            for node, value in zip(found, values, strict=True)
        ]


def _whole(node: Node) -> tuple[int, int]:
    """Gives what is read of a value: of a long one the head of its pages too."""
    start, size = node.value
    return (start - HEAD, size + HEAD) if node.is_long else (start, size)


def _value(node: Node, data: bytes, page_bytes: int) -> bytes:
    if not node.is_long:
        return data
    long_pages(data[:HEAD], node, page_bytes)
    return data[HEAD:]
