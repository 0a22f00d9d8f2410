"""Datasets over key-value stores, which each process opens and closes for itself, and the one for LMDB."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, final
from weakref import WeakValueDictionary

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order import arguments
from samplerkit.order.caching import cached_property
from samplerkit.order.draws import in_draws
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.file_stats import FileStats
from samplerkit.storage.files.content import checked_decode, names_of
from samplerkit.storage.files.packages import extra, guarded
from samplerkit.storage.files.stored import CHANGED, Stored
from samplerkit.storage.ids import checked_ids, checked_index
from samplerkit.storage.open_files import REWRITE
from samplerkit.storage.per_process import OpenPerProcess, PerProcess

_HINT = "check the names that you gave, and that nothing else has it open; or fetch or write the file again"


class OpenStore(ABC):
    """A store that is open in one process; implements the protocol `OpenFiles`."""

    stats = FileStats()

    @abstractmethod
    def close(self, *, waits: bool = True) -> None:
        """Closes the store; it has no threads to wait for."""

    @abstractmethod
    def keys(self) -> Any:
        """Finds the keys of all samples, in order: an object with a length that can be sent to workers."""

    @abstractmethod
    def read(self, keys: Any, ids: Ids) -> list[Any]:
        """Reads the values of ids, in their order; called with the lock of the dataset held."""


class KeyedDataset(OpenPerProcess[OpenStore]):
    """A map-style dataset over a key-value store: its layout has no files, so GLOBAL is its order.

    A subclass opens the store, which finds its keys, once, and reads values.

    Args:
        path: the path of the store.
        decode: makes a sample from a value; None to return the value itself.
    """

    enters_draws = True
    """A Loader that seeds draws need not read samples one at a time: each is decoded in its own draw."""

    def __init__(self, path: str | os.PathLike[str], decode: Callable[[Any], Any] | None) -> None:
        super().__init__()
        self.path: Final = arguments.text("path", os.fspath(path) if isinstance(path, os.PathLike) else path)
        self._decode: Final = checked_decode(decode, "a value")

    def _file(self) -> str:
        """Returns the path of the file that holds the data."""
        return self.path

    @abstractmethod
    def _open(self, stored: Stored) -> OpenStore:
        """Opens the store in this process."""

    @cached_property
    def _index(self) -> tuple[Stored, Any]:
        """The file as it was when its keys were found, and the keys; found at the first access."""
        with self._processes.current().lock:
            stored = Stored.of(self._file())
            return stored, guarded(stored.name, "read", partial(self._find, stored), _HINT)

    def _find(self, stored: Stored) -> Any:
        with closing(self._open(stored)) as store:
            return store.keys()

    @property
    def keys(self) -> Any:
        """The keys of all samples, in the order of their ids; found at the first access."""
        return self._index[1]

    @property
    def layout(self) -> Layout:
        """The number of samples, without files."""
        return Layout(len(self.keys))

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> Any:
        """Returns a sample."""
        return self.__getitems__([checked_index(index, self)])[0]

    def __getitems__(self, ids: Iterable[int]) -> list[Any]:
        """Returns a batch, in the order of the ids.

        Raises:
            OutOfDatasetError: an id is out of range.
            DatasetError: the store cannot be read or has changed, or a value cannot be decoded.
        """
        checked = checked_ids(ids, len(self))
        process, (stored, keys) = self._processes.current(), self._index
        values, opened = None, partial(guarded, stored.name, "read", partial(self._open, stored), _HINT)
        while values is None:
            store = process.open(self, lambda _: opened())
            with process.lock:
                if process.open_files is store:  # the store was not closed meanwhile
                    values = guarded(stored.name, "read", partial(store.read, keys, checked), _HINT)
        decode = self._decode
        if decode is None:
            return values
        numbers = list(range(len(values)))

        def decoded(at: int) -> Any:
            return guarded(f"{self.path}, sample {checked[at]}", "decoded", partial(decode, values[at]), "")

        return in_draws(decoded, numbers, numbers, len(values))

    def __repr__(self) -> str:
        samples = f"{len(self)} samples" if "_index" in self.__dict__ else "not opened"
        return f"{type(self).__name__}({self.path!r}, {samples})"


_PAGE_BYTES: Final = 40, 4
"""Where in a store the size of its pages is, and in how many bytes."""

_DATABASE_BYTES: Final = 48
_MAX_DATABASES: Final = 256

_OPENING: Final[PerProcess[Any]] = PerProcess()
_ENVIRONMENTS: WeakValueDictionary[tuple[int, int], Any] = WeakValueDictionary()
"""Open environments by device and inode: lmdb opens a file once per process. Forks inherit their parent's."""


@final
class LmdbDataset(KeyedDataset):
    """Samples in an LMDB store: a sample is a dict of `key` and `value`, both bytes, with random access.

    The store is mapped into memory once per process, read-only and without its lock. Samples are in the order
    of their keys.

    Args:
        path: the path of the folder with `data.mdb`, or of the file.
        database: the name of the database; None for the one without a name.
        leave_out: keys that are not samples, such as `__len__`.
        decode: makes a sample from the dict; None to return the dict itself.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: a name is empty.
        DatasetError: later, lmdb is not installed, there is no such database or key, or the file cannot be
            read or was changed.

    Example:
        >>> LmdbDataset("train.lmdb", leave_out=["__len__"])
        LmdbDataset('train.lmdb', not opened)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        database: str | None = None,
        leave_out: Sequence[str] = (),
        *,
        decode: Callable[[dict[str, bytes]], Any] | None = None,
    ) -> None:
        super().__init__(path, decode)
        self._database: Final = None if database is None else arguments.word("database", database)
        names = names_of(leave_out or None, place="leave_out") or ()
        self._left_out: Final = frozenset(map(str.encode, names))

    def _file(self) -> str:
        # Path's own raises where a name is too long, or a folder may not be read.
        is_folder = os.path.isdir(self.path)  # noqa: PTH112
        return os.fspath(Path(self.path, "data.mdb")) if is_folder else self.path

    def _open(self, stored: Stored) -> OpenStore:
        return _Store(stored, self._database, self._left_out)


@dataclass(frozen=True, eq=False)
class _Keys:
    """The keys of all samples, concatenated, and the number of the transaction that wrote their state."""

    txn_id: int
    joined: bytes
    ends: Ids

    def __len__(self) -> int:
        return self.ends.size - 1

    def at(self, ids: Ids) -> list[bytes]:
        """Returns the keys of ids."""
        joined = self.joined
        spans = zip(self.ends[ids].tolist(), self.ends[ids + 1].tolist(), strict=True)
        return [joined[start:end] for start, end in spans]


class _Store(OpenStore):
    """A database that is open in one process."""

    def __init__(self, stored: Stored, name: str | None, left_out: frozenset[bytes]) -> None:
        self._stored, self._name, self._left_out = stored, name, left_out
        stored.require_same()
        self._environment = _environment(stored)
        # The first two pages have the figures; they may be longer than pages of this machine.
        needed = 2 * int.from_bytes(stored.read([_PAGE_BYTES])[0], "little")
        if stored.size >= needed:
            needed = (self._environment.info()["last_pgno"] + 1) * self._environment.stat()["psize"]
        if needed > stored.size:  # reading beyond the end would end the process
            problem = f"was truncated: it should have {needed} bytes"
            raise DatasetError(stored.name, problem, stored.size, hint=REWRITE)
        # Before the read transaction, which does not know databases that are opened later.
        base = self._environment.open_db(None if name is None else name.encode(), create=False)
        self._transaction = self._environment.begin(db=base)
        if base.flags(self._transaction)["dupsort"]:
            hint = "write each value under a key of its own"
            raise DatasetError(stored.name, "holds keys that have several values (dupsort)", hint=hint)

    def close(self, *, waits: bool = True) -> None:
        """Ends the transaction; the file is closed when no other dataset of this process reads it."""
        self._transaction = self._environment = None

    def keys(self) -> _Keys:
        """Reads all keys.

        Raises:
            ValueError: the database reports another number of keys.
            DatasetError: a key is the name of a database, or a key to leave out does not exist.
        """
        keys = list(self._transaction.cursor().iternext(values=False))
        entries = self._transaction.stat()["entries"]
        if self._name is None:
            database = min(set(_databases(self._environment)).difference(self._left_out), default=None)
            if database is not None:
                hint = "name one, or list it in leave_out"
                text = database.decode(errors="replace")
                raise DatasetError(self._stored.name, "holds databases by name", text, hint=hint)
        if len(keys) != entries:
            raise ValueError(f"it has {len(keys)} keys, but counts {entries}")
        missing = self._left_out.difference(keys)
        if missing:
            raise DatasetError(self._stored.name, "has no such key to leave out", min(missing))
        keys = [key for key in keys if key not in self._left_out]
        return _Keys(self._transaction.id(), b"".join(keys), np.cumsum([0, *map(len, keys)], dtype=np.int64))

    def read(self, keys: _Keys, ids: Ids) -> list[Any]:
        """Reads keys and values."""
        # Reading a mapped file beyond its end, if it was cut, would end the process.
        self._stored.require_same()
        chosen = keys.at(ids)
        values = [*map(self._transaction.get, chosen)]
        # A transaction frees pages that the next one may overwrite: data read before the first one is sound.
        if self._environment.info()["last_txnid"] != keys.txn_id:
            raise DatasetError(self._stored.name, "was changed while it was read", hint=CHANGED)
        if None in values:
            raise ValueError(f"key {chosen[values.index(None)]!r} is missing")
        return [{"key": key, "value": value} for key, value in zip(chosen, values, strict=True)]


def _environment(stored: Stored) -> Any:
    """Returns the environment of a file in this process, and opens it if it is not open.

    Raises:
        Exception: any error that lmdb raises if its header is damaged, or it is open in another way.
    """
    status = os.stat(stored.path)  # noqa: PTH116  # Path's own is slow
    file = (status.st_dev, status.st_ino)
    with _OPENING.current().lock:
        environment = _ENVIRONMENTS.get(file)
        if environment is None:
            options = {"subdir": False, "readonly": True, "lock": False, "readahead": False}
            lmdb = extra("lmdb", "lmdb")
            environment = lmdb.open(stored.path, max_dbs=_MAX_DATABASES, max_spare_txns=1, **options)
            _ENVIRONMENTS[file] = environment
        return environment


def _databases(environment: Any) -> Iterator[bytes]:
    """Yields the keys of the unnamed database that are names of other databases."""
    lmdb = extra("lmdb", "lmdb")
    with environment.begin(buffers=True) as transaction:
        keys = [bytes(key) for key, value in transaction.cursor() if len(value) == _DATABASE_BYTES]
    for key in keys:
        with suppress(lmdb.IncompatibleError):
            environment.open_db(key, create=False)
            yield key
