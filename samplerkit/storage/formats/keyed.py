"""Stores that give samples by key: opened once in each process, and closed in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from samplerkit.errors import DatasetError
from samplerkit.order.draws import in_draws
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.cache_entries import FileStats
from samplerkit.storage.files.content import checked_decode
from samplerkit.storage.files.packages import guarded
from samplerkit.storage.files.stored import Stored
from samplerkit.storage.ids import checked_ids, checked_index
from samplerkit.storage.per_process import OpenPerProcess


class OpenStore(ABC):
    """A store that is open in one process, as `Open` describes what is."""

    def __init__(self, stats: FileStats) -> None:
        self.stats = stats

    @abstractmethod
    def close(self, *, waits: bool = True) -> None:
        """Closes it: it has no threads that would be waited for."""

    @abstractmethod
    def read(self, keys: Any, ids: Ids) -> list[Any]:
        """Reads values, in the order of the ids of their keys; the lock of the dataset is held."""


class KeyedDataset(OpenPerProcess[OpenStore]):
    """A map-style dataset over a keyed store: GLOBAL is its order.

    A format says how keys are found, once, and how values are read.

    Args:
        path: of the store.
        decode: makes a sample of a value; None for the value itself.
    """

    enters_draws = True
    """A Loader that seeds draws need not read this one by one: each value is decoded in its draw."""

    def __init__(self, path: str, decode: Callable[[Any], Any] | None) -> None:
        super().__init__()
        self.path: Final = path
        self._decode: Final = checked_decode(decode, "a value")
        self._known: tuple[Stored, Any] | None = None

    def _file(self) -> str:
        """Gives the file that holds the data."""
        return self.path

    @abstractmethod
    def _keys(self, stored: Stored) -> Any:
        """Finds the keys of all samples, in their order: what has a length, and travels to workers."""

    @abstractmethod
    def _opened(self, stored: Stored, stats: FileStats) -> OpenStore:
        """Opens the store in this process."""

    @property
    def _found(self) -> tuple[Stored, Any]:
        """The file as it was when its keys were found, and these; found now if they are not known."""
        if self._known is None:
            with self._processes.here().lock:
                if self._known is None:
                    stored = Stored.of(self._file())
                    self._known = stored, guarded(stored.name, "read", lambda: self._keys(stored))
        return self._known

    @property
    def keys(self) -> Any:
        """The keys of all samples, in the order of their ids; found now if they are not known."""
        return self._found[1]

    @property
    def layout(self) -> Layout:
        """How many samples there are; they are in no files."""
        return Layout(len(self.keys))

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> Any:
        """Gives a sample."""
        return self.__getitems__([checked_index(index, self)])[0]

    def __getitems__(self, ids: Iterable[int]) -> list[Any]:
        """Returns a batch, in the order of the ids.

        Raises:
            OutOfDatasetError: there is no such sample.
            DatasetError: the store cannot be read, is not what it was, or a value cannot be decoded.
        """
        wanted = checked_ids(ids, len(self))
        process, (stored, keys) = self._processes.here(), self._found
        if process.held is None:
            stored.require_same()

        def opened(stats: FileStats) -> OpenStore:
            return guarded(stored.name, "read", lambda: self._opened(stored, stats))

        store = process.opened(self, opened)
        with process.lock:
            values = guarded(stored.name, "read", partial(store.read, keys, wanted))
        decode = self._decode
        if decode is None:
            return values
        numbers = list(range(len(values)))
        return in_draws(
            lambda at: self._decoded(decode, values[at], int(wanted[at])), numbers, numbers, len(values)
        )

    def _decoded(self, decode: Callable[[Any], Any], value: Any, id: int) -> Any:
        try:
            return decode(value)
        except Exception as error:
            what = f"cannot be decoded ({type(error).__name__}: {error})"
            raise DatasetError(f"{self.path}, sample {id}", what) from error

    def close(self) -> None:
        """Closes the store in this process. The dataset can be used again."""
        self._processes.here().close()

    def __repr__(self) -> str:
        samples = "not looked at" if self._known is None else f"{len(self)} samples"
        return f"{type(self).__name__}({self.path!r}, {samples})"
