"""The leaf datasets of a tree: reading and joining their shares of a batch, and their upcoming ids."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from samplerkit.errors import DatasetError, note_once
from samplerkit.order.draws import entered_draws, in_draws
from samplerkit.order.typing import Ids
from samplerkit.storage.batch_readers import batch_reader, has_getitem, only_sample, present_reader, read_args
from samplerkit.storage.files.content import FileContent, gathered_columns
from samplerkit.storage.open_files import Samples

MAX_SEARCHED = 1 << 11
"""Ids of all parts after which `share_of` yields a batch without ids."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """A dataset in a tree.

    Args:
        name: the names on the path to it, joined by slashes.
        dataset: a map-style dataset.
    """

    name: str
    dataset: Any

    @property
    def place(self) -> str:
        """Its name in errors."""
        return f"part {self.name!r}"

    def read_one(self, id: int) -> Any:
        """Reads one sample; exceptions of the dataset get a note with its name."""
        return self._call(None, self._one, np.array([id]), {}, np.zeros(1, dtype=np.int64), 1)[0]

    def read(self, ids: Ids, extra: Mapping[str, Ids], places: Ids, size: int) -> Any:
        """Reads its share of a batch in one call, each sample within its draw.

        Args:
            ids: the ids in the dataset.
            extra: by name, for each sample the pass over its source, and the epoch of its source.
            places: the positions of the samples in the batch.
            size: the number of samples in the whole batch.

        Returns:
            What the dataset returns: a list of samples, a `Samples`, or a numeric array whose rows are
            samples; for a mapping of columns its `FileContent`.

        Raises:
            DatasetError: the dataset returned another type or number of samples. Exceptions of the dataset
                get a note with its name.
        """
        in_batches = batch_reader(self.dataset) is not None
        read = (present_reader(self.dataset) or self.dataset.__getitems__) if in_batches else None
        samples = self._call(read, self._one, ids, extra, places, size)
        if isinstance(samples, np.ndarray) and (samples.ndim < 1 or samples.dtype.kind not in "biuf"):
            samples = list(samples)
        if not isinstance(samples, list | tuple | Mapping | np.ndarray):
            raise DatasetError(self.place, "returns neither a list of samples nor columns", samples)
        missing = len(getattr(samples, "missing", ()))
        samples = FileContent.of(samples, self.place) if isinstance(samples, Mapping) else samples
        count = samples.length if isinstance(samples, FileContent) else len(samples)
        if not missing and count != ids.size:
            raise DatasetError(self.place, f"must return {ids.size} samples for as many ids", count)
        return samples

    def read_segments(self, segments: Ids, extra: Mapping[str, Ids], places: Ids, size: int) -> list[Any]:
        """Reads segments of samples in one call of the dataset's `__getsegments__`, each within its draw.

        Args:
            segments: for each the id in the dataset, the first token and the number of tokens; shape (m, 3).
            extra: as for `read`.
            places: the positions of the segments in the batch.
            size: the number of segments in the whole batch.

        Raises:
            DatasetError: the dataset returned another number of segments. Exceptions of the dataset get a
                note with its name.
        """
        read = self.dataset.__getsegments__

        def one(given: tuple[Any, ...]) -> Any:
            return read(*(values[None] for values in given))[0]

        parts = list(self._call(read, one, segments, extra, places, size))
        if len(parts) != len(segments):
            problem = f"must return {len(segments)} parts for as many segments"
            raise DatasetError(self.place, problem, len(parts))
        return parts

    def _call(
        self,
        read: Callable[..., Any] | None,
        one: Callable[[Any], Any],
        ids: Ids,
        extra: Mapping[str, Ids],
        places: Ids,
        size: int,
    ) -> Any:
        """Reads all in one call, or one by one if the dataset reads no batches or ignores seeded draws."""
        draws = entered_draws(size)
        enters_alone = bool(getattr(batch_reader(self.dataset), "enters_draws", False))
        try:
            # No default for epochs: the dataset knows the epoch from `set_epoch`.
            values = {"passes": np.zeros(len(ids), dtype=np.int64), **extra}
            arguments = (ids, *(values[name] for name in read_args(self.dataset) if name in values))
            if read is None or (draws is not None and draws.begin is not None and not enters_alone):
                return in_draws(one, zip(*arguments, strict=True), places.tolist(), size)
            with nullcontext() if draws is None else draws.of(places, enters_alone=enters_alone):
                return read(*arguments)
        except Exception as error:
            note_once(error, f"samplerkit: in {self.place} of a tree of datasets")
            raise

    def _one(self, given: tuple[np.int64, ...]) -> Any:
        if len(given) == 1 and has_getitem(self.dataset):
            return self.dataset[int(given[0])]
        return only_sample(self.dataset.__getitems__(*(np.array([number]) for number in given)))


def share_of(upcoming: Iterable[Any], begin: int, end: int) -> Iterator[Ids]:
    """Yields the ids of one part in each upcoming batch; batches without any are skipped.

    From time to time it yields no ids, so that a search is bounded if other parts have nearly all samples.

    Args:
        upcoming: the ids of each batch.
        begin: the first id of the part.
        end: the id after its last one.

    Example:
        >>> share = share_of([np.array([7, 2]), np.array([1]), np.array([6, 5])], 5, 8)
        >>> [ids.tolist() for ids in share]
        [[2], [1, 0]]
    """
    searched = 0
    for batch in upcoming:
        ids = np.asarray(batch, dtype=np.int64)
        own = ids[(ids >= begin) & (ids < end)] - begin
        searched += max(1, ids.size)
        if own.size:
            yield own
        if searched >= MAX_SEARCHED:
            searched = 0
            yield own[:0]


Array = np.ndarray[Any, Any]
Columns = dict[Any, Array]


@dataclass(frozen=True, eq=False)
class LeafSamples:
    """The share of a batch that one dataset returned.

    Args:
        leaf: the dataset.
        start: its first id in the tree.
        samples: a list of samples, a `Samples`, an array whose rows are samples, or columns.
        places: the positions of the samples in the batch.
    """

    leaf: Leaf
    start: int
    samples: Any
    places: Ids


def joined(shares: Sequence[LeafSamples], size: int) -> Samples | Columns | Array:
    """Joins the shares of a batch.

    Args:
        shares: the shares of all datasets that have samples in the batch.
        size: the number of samples in the whole batch.

    Raises:
        DatasetError: some datasets return columns and others samples, or their columns differ.

    Example:
        >>> places = {"x": 1, "y": 0}
        >>> shares = [LeafSamples(Leaf(each, []), 0, [each], np.array([at])) for each, at in places.items()]
        >>> joined(shares, 2)
        ['y', 'x']
    """
    of_columns = [share for share in shares if isinstance(share.samples, FileContent)]
    if not of_columns:
        return _joined_rows(shares, size) if _are_rows(shares) else _joined_samples(shares, size)
    other = next((share for share in shares if share not in of_columns), None)
    if other is not None:
        problem = f"returns columns, but {other.leaf.place} does not"
        hint = "use the same as_columns, or batches, for all parts"
        raise DatasetError(of_columns[0].leaf.place, problem, hint=hint)
    parts = ((share.samples, np.arange(share.places.size), share.places) for share in shares)
    return gathered_columns(parts, size)


def _are_rows(shares: Sequence[LeafSamples]) -> bool:
    """Returns whether all shares are arrays with the same dtype and shape of rows."""
    kinds = {
        (share.samples.dtype, share.samples.shape[1:]) if isinstance(share.samples, np.ndarray) else None
        for share in shares
    }
    return len(kinds) == 1 and None not in kinds


def _joined_rows(shares: Sequence[LeafSamples], size: int) -> Array:
    """Joins rows into one array, which collates faster than a list: its rows would become tensors first."""
    first = shares[0].samples
    rows = np.empty((size, *first.shape[1:]), dtype=first.dtype)
    for share in shares:
        rows[share.places] = share.samples
    return rows


def _joined_samples(shares: Sequence[LeafSamples], size: int) -> Samples:
    samples: list[Any] = [None] * size
    missing: list[tuple[int, str, str]] = []
    substitutes: list[tuple[int, Any]] = []
    for share in shares:
        absent = getattr(share.samples, "missing", ())
        missing += [
            (int(share.places[at]), file, f"{text} ({share.leaf.place})") for at, file, text in absent
        ]
        substitute = getattr(share.samples, "substitute", None)
        if substitute is not None:
            substitutes.append((share.start + substitute, share.samples[0]))
            continue
        present = np.delete(share.places, [at for at, _, _ in absent])
        for place, sample in zip(present.tolist(), share.samples, strict=True):
            samples[place] = sample
    missing_places = {place for place, _, _ in missing}
    batch = Samples(sample for place, sample in enumerate(samples) if place not in missing_places)
    batch.missing = sorted(missing)
    if not batch and substitutes:  # if other parts have samples, the batch needs no replacement
        batch.substitute, sample = substitutes[0]
        batch.append(sample)
    return batch
