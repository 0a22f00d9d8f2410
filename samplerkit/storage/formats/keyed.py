"""What keyed stores share: values by key, read at random, without files in the layout."""

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
from samplerkit.storage.files.content import batch_ids
from samplerkit.storage.files.stored import Stored
from samplerkit.storage.formats.base import checked_decode
from samplerkit.storage.ids import checked_index, require_within
from samplerkit.storage.per_process import OpenPerProcess


class OpenStore(ABC):
    """A store that is open in one process, as `Open` describes what is."""

    def __init__(self, stats: FileStats) -> None:
        self.stats = stats

    @abstractmethod
    def close(self) -> None:
        """Closes it."""

    def stop(self) -> None:
        """Closes it: it has no threads."""
        self.close()

    @abstractmethod
    def read(self, ids: Ids) -> list[Any]:
        """Reads values, in the order of the ids; called with the lock of the dataset held."""


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
        self._stored: Stored | None = None
        self._keys: Any = None

    @abstractmethod
    def _file(self) -> str:
        """Gives the file that holds the data."""

    @abstractmethod
    def _found(self) -> Any:
        """Finds the keys of all samples, in their order: what has a length, and travels to workers."""

    @abstractmethod
    def _opened(self, keys: Any, stats: FileStats) -> OpenStore:
        """Opens the store in this process."""

    @property
    def keys(self) -> Any:
        """The keys of all samples, in the order of their ids; found now if they are not known."""
        if self._keys is None:
            with self._processes.here().lock:
                if self._keys is None:
                    self._stored = Stored.of(self._file(), None)
                    self._keys = self._found()
        return self._keys

    @property
    def _looked_at(self) -> Stored:
        """The file as it was when its keys were found."""
        assert self._stored is not None  # noqa: S101  # for mypy: it was looked at for its keys
        return self._stored

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
        wanted = require_within("ids", batch_ids(ids), len(self))
        process = self._processes.here()
        if process.held is None:
            self._looked_at.require_same()
        store = process.opened(self, partial(self._opened, self.keys))
        with process.lock:
            values = store.read(wanted)
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
        samples = "not looked at" if self._keys is None else f"{len(self._keys)} samples"
        return f"{type(self).__name__}({self.path!r}, {samples})"
