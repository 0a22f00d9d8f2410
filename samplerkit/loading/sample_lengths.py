"""The lengths of a dataset's samples, computed once: in workers, and on from where a killed run stopped."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from samplerkit.batches.journal import journal_of
from samplerkit.batches.lengths import LONGEST
from samplerkit.errors import (
    ArgumentRangeError,
    ArgumentTypeError,
    ArgumentValueError,
    DatasetError,
    SamplerkitError,
)
from samplerkit.loading.identity import describe_dataset
from samplerkit.loading.loader import Loader
from samplerkit.order import arguments
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.order.world import World
from samplerkit.samplers.sequential import SequentialSampler
from samplerkit.storage.batch_readers import batch_reader, wanted

_AT_ONCE = 256
_WHAT = "computing lengths:"


@final
@dataclass(frozen=True)
class FieldLength:
    """Measures a field of a sample: a number as it is, and everything else by its `len`.

    So bytes of a tar member are counted in bytes, and texts in characters.

    Args:
        field: the name of the field, or the place in a tuple; None for the sample itself.

    Example:
        >>> FieldLength("txt")({"txt": b"abc", "cls": 7}), FieldLength("cls")({"txt": b"abc", "cls": 7})
        (3, 7)
    """

    field: str | None = None

    def __call__(self, sample: Any) -> int:
        """Gives the length.

        Raises:
            DatasetError: there is no such field, or it has no length.
        """
        value = sample if self.field is None else self._field(sample)
        if hasattr(value, "__index__") and not getattr(value, "ndim", 0):
            return arguments.integer("field", value)
        if isinstance(value, Mapping) or not hasattr(value, "__len__"):
            raise DatasetError("field", "has no length", value, mend=_named(sample))
        return len(value)

    def _field(self, sample: Any) -> Any:
        name = self.field or ""
        if isinstance(sample, Mapping) and name in sample:
            return sample[name]
        if isinstance(sample, tuple | list) and name.isdecimal() and int(name) < len(sample):
            return sample[int(name)]
        raise DatasetError("field", "is none of the sample", name, mend=_named(sample))


def compute_lengths(
    dataset: Any,
    function: Callable[[Any], Any],
    out: str | os.PathLike[str],
    *,
    num_workers: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> np.ndarray[Any, Any]:
    """Computes the length of each sample once, into an `.npy` file for `lengths` of a recipe for batches.

    What is done stands beside the file, under its name with `.part`: whoever is killed goes on from there,
    and the file comes out the same, byte for byte.

    Args:
        dataset: a map-style dataset; each sample is read once, in the dataset's order.
        function: gives the length of a sample, an integer, or a pair of them.
        out: the path of the `.npy` file.
        num_workers: worker processes; the function then has to be picklable where they are spawned.
        progress: is called with what is done, how many samples are done, and how many there are.

    Returns:
        The lengths, mapped from the file: int32 of shape (n,), or (n, 2) for pairs.

    Raises:
        ArgumentTypeError: `function` cannot be called, or gives no integers.
        ArgumentValueError: `out` is there already, does not end in `.npy`, cannot be written, or is being
            computed by another process.
        ArgumentRangeError: a length is negative or above 2^31 - 1.
        DatasetError: `function` fails; the sample is named.
        StateError: what was left behind is of another dataset or function.

    Example:
        >>> import tempfile
        >>> import samplerkit as sk
        >>> path = f"{tempfile.mkdtemp()}/lengths.npy"
        >>> texts = ["a", "bcd", "ef"]
        >>> sk.compute_lengths(texts, len, path).tolist()
        [1, 3, 2]
        >>> len(sk.TokenBatches(6, lengths=path).plan(sk.RandomSampler(seed=7), texts))
        2
    """
    if not callable(function):
        raise ArgumentTypeError("function", "must be a function of a sample", function)
    path = Path(out)
    if path.suffix != ".npy":
        raise ArgumentValueError("out", "must end in .npy", str(path))
    if path.exists():
        raise ArgumentValueError("out", "is there already", str(path), mend="remove it, or say another path")
    measured = _Measured(dataset, function)
    size = len(measured)
    identity = {"samplerkit": "lengths", "dataset": describe_dataset(dataset), "function": _words(function)}
    with journal_of(path, identity) as journal:
        if progress is not None:
            progress(_WHAT, journal.done, size)
        loader = Loader(
            measured,
            SequentialSampler(journal.done),
            batch_size=_AT_ONCE,
            num_workers=num_workers,
            tail="ragged",
            world=World(1, 0),
            collate_fn=_as_array,
        )
        with loader:
            for lengths in loader if journal.done < size else ():
                journal.append(lengths)
                if progress is not None:
                    progress(_WHAT, journal.done, size)
    found: np.ndarray[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return found


@final
class _Measured:
    """A dataset of the lengths of another one's samples."""

    def __init__(self, dataset: Any, function: Callable[[Any], Any]) -> None:
        self.layout = Layout.of(dataset)
        self._dataset = dataset
        self._function = function
        expect = getattr(dataset, "expect", None)
        if callable(expect):
            self.expect = expect

    def __len__(self) -> int:
        return len(self.layout)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__(np.array([index]))[0]

    def __getitems__(self, ids: Ids) -> list[Any]:
        reader = batch_reader(self._dataset)
        # Each sample is read once, in the first pass over it.
        told = (np.zeros_like(ids) for _ in wanted(self._dataset))
        samples = (
            [self._dataset[id] for id in ids.tolist()]
            if reader is None
            else self._dataset.__getitems__(ids, *told)
        )
        if isinstance(samples, Mapping):  # columns
            samples = [{name: column[at] for name, column in samples.items()} for at in range(ids.size)]
        return [self._length(id, sample) for id, sample in zip(ids.tolist(), samples, strict=True)]

    def _length(self, id: int, sample: Any) -> Any:
        try:
            found = self._function(sample)
        except SamplerkitError:
            raise
        except Exception as error:  # whatever a function of the user's raises
            raise DatasetError(
                f"sample {id}", f"cannot be measured ({type(error).__name__}: {error})"
            ) from error
        return _checked(f"lengths[{id}]", found)


def _checked(place: str, found: Any) -> Any:
    numbers = found if isinstance(found, tuple | list | np.ndarray) and np.shape(found) == (2,) else [found]
    checked = [arguments.integer(place, number) for number in numbers]
    for number in checked:
        if not 0 <= number <= LONGEST:
            raise ArgumentRangeError(place, f"must be in [0, {LONGEST}]", number)
    return checked if len(checked) == 2 else checked[0]


def _as_array(lengths: list[Any]) -> Ids:
    if len({isinstance(length, list) for length in lengths}) > 1:
        raise ArgumentTypeError(
            "function", "must give a number for each sample, or a pair for each", lengths[:2]
        )
    return np.array(lengths, dtype=np.int64)


def _named(sample: Any) -> str:
    """Says which fields there are."""
    if isinstance(sample, Mapping):
        return f"there are {', '.join(sorted(map(str, sample)))}"
    return "samples are tuples: say a place, from 0" if isinstance(sample, tuple | list) else "name no field"


def _words(function: Callable[[Any], Any]) -> str:
    if isinstance(function, FieldLength):
        return repr(function)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', type(function).__module__)}.{name}"
