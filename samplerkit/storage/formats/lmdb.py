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
from samplerkit.storage.formats.lmdb_pages import HEAD, KeyTree, Newest, Read, Walk, nodes_at, require_long
from samplerkit.storage.formats.stored import AGAIN, Stored, guarded

_KEPT_BYTES: Final = 1 << 24
"""Of pages of keys, in each process."""


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
            name.encode() for name in names_of(leave_out or None, called="leave_out") or ()
        )

    def _file(self) -> str:
        return os.fspath(Path(self.path, "data.mdb")) if Path(self.path).is_dir() else self.path

    def _found(self) -> _NodePlaces:
        stored = self._looked_at
        read = partial(stored.read, storage=None)

        def found() -> _NodePlaces:
            newest = Newest.of(read)
            tree = newest.main if self._database is None else self._named(read, newest, self._database)
            if tree.has_several:
                mend = "write each value under a key of its own"
                raise DatasetError(self.path, "holds keys that have several values (dupsort)", mend=mend)
            left_out, missing, places = self._left_out, set(self._left_out), [np.zeros(0, dtype=np.int64)]
            for nodes in Walk(read, newest.page_bytes, tree).nodes():
                missing.difference_update(nodes.keys)
                is_sample = np.array([key not in left_out for key in nodes.keys])
                wrong = np.flatnonzero(nodes.is_database & is_sample)
                if wrong.size:
                    problem, mend = "holds databases by name", "name one, or leave its name out"
                    name = nodes.keys[wrong[0]].decode(errors="replace")
                    raise DatasetError(self.path, problem, name, mend=mend)
                places.append(nodes.places[is_sample])
            if missing:
                raise DatasetError(self.path, "holds no key to leave out", min(missing))
            return _NodePlaces(newest, np.concatenate(places))

        return guarded(stored.name, "read", found)

    def _named(self, read: Any, newest: Newest, name: str) -> KeyTree:
        names = {}
        for nodes in Walk(read, newest.page_bytes, newest.main).nodes():
            for number in np.flatnonzero(nodes.is_database).tolist():
                names[nodes.keys[number].decode()] = (int(nodes.starts[number]), int(nodes.sizes[number]))
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
        self._pages: dict[int, bytes] = {}

    def close(self) -> None:
        """Does nothing: nothing is open."""

    def read(self, ids: Ids) -> list[Any]:
        """Reads keys and values."""
        return guarded(self._stored.name, "read", lambda: self._read(self._places.nodes[ids]))

    def _read(self, nodes: Ids) -> list[dict[str, bytes]]:
        read, newest = partial(self._stored.read, storage=None), self._places.newest
        numbers, at = np.divmod(nodes, newest.page_bytes)
        pages = self._pages_of(numbers.tolist(), read)
        found = nodes_at(pages, numbers, at, newest.page_bytes)
        # Of a long value the head of its pages too; of a short one nothing, it stands beside its key.
        long = np.flatnonzero(found.is_long)
        starts, sizes = found.starts[long], found.sizes[long]
        spans = zip((starts - HEAD).tolist(), (sizes + HEAD).tolist(), strict=True)
        *longs, first, second = read([*spans, *newest.spans])
        # A change makes pages free that another one may overwrite: what was read before the first is sound.
        if first + second != newest.told:
            raise DatasetError(self._stored.name, "was changed while it was read", mend=AGAIN)
        require_long(b"".join([data[:HEAD] for data in longs]), starts, sizes, newest.page_bytes)
        here, lengths = found.starts % newest.page_bytes, np.where(found.is_long, 0, found.sizes)
        ends = (here + lengths).tolist()
        values = [page[begin:end] for page, begin, end in zip(pages, here.tolist(), ends, strict=True)]
        for number, data in zip(long.tolist(), longs, strict=True):
            values[number] = data[HEAD:]
        return [{"key": key, "value": value} for key, value in zip(found.keys, values, strict=True)]

    def _pages_of(self, numbers: list[int], read: Read) -> list[bytes]:
        """Gives pages that hold keys. Some are kept: where values are long, a page has the keys of many."""
        known, size = self._pages, self._places.newest.page_bytes
        missing = sorted({*numbers} - known.keys())
        if (len(known) + len(missing)) * size > _KEPT_BYTES:
            known, missing = {}, sorted({*numbers})
        if missing:
            found = read([(number * size, size) for number in missing])
            self._pages = known = known | dict(zip(missing, found, strict=True))
        return [known[number] for number in numbers]
