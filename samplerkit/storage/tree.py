"""`TreeDataset`: several named datasets as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, final

import numpy as np
from torch.utils.data import ConcatDataset

from samplerkit.closing import Closing
from samplerkit.errors import ArgumentTypeError, DatasetError
from samplerkit.order.caching import cached_property
from samplerkit.order.dataset_protocol import find_column, find_fingerprint, fingerprint_of, has_segments
from samplerkit.order.intervals import interval_of
from samplerkit.order.layout import Layout, named_parts
from samplerkit.order.typing import Ids
from samplerkit.storage.batch_readers import map_parts, present_reader, read_args
from samplerkit.storage.file_stats import FileStats
from samplerkit.storage.ids import checked_ids, checked_index, checked_segments
from samplerkit.storage.open_files import Samples, log_missing
from samplerkit.storage.tree_leaves import Array, Columns, Leaf, LeafSamples, joined, share_of


@final
class TreeDataset(Closing):
    """Several named datasets as one map-style dataset; each part reads its samples of a batch at once.

    Its layout is the tree of the parts' layouts: ids run through the parts in the given order, and its files
    are those of the parts, so file-aware modes and mixtures by name work. A loader's information is passed on
    to each part: the epoch, its upcoming ids, its draws and passes. It has no threads.

    Args:
        parts: datasets by name: a `FileDataset`, a `TarDataset`, any map-style dataset, torch's
            `ConcatDataset`, or another `TreeDataset`.

    Attributes:
        parts: the same.

    Raises:
        ArgumentTypeError: `parts` is not a mapping, a name is not a string, or a part is not a map-style
            dataset.
        ArgumentValueError: there are no parts, or a name is empty; later, if trees are nested more than 64
            deep.
        DatasetError: later, if a part has neither a layout nor a length, or returns anything but samples.

    Example:
        >>> import samplerkit as sk
        >>> corpus = sk.TreeDataset({"web": ["a", "b", "c"], "code": ["x", "y"]})
        >>> len(corpus), corpus.layout, corpus[3], corpus.__getitems__([4, 0, 2])
        (5, Layout.tree({'web': Layout(3), 'code': Layout(2)}), 'x', ['y', 'a', 'c'])
    """

    enters_draws = True
    """Each part is read within its draws, so a Loader that seeds draws may read whole batches."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self.parts: Final[Mapping[str, Any]] = named_parts(parts)
        self._leaves: Final = tuple(
            leaf for name, part in self.parts.items() for leaf in leaves_of(name, part)
        )
        self._datasets: Final = tuple({id(leaf.dataset): leaf.dataset for leaf in self._leaves}.values())
        self._logged: Final[set[str]] = set()

    @cached_property
    def layout(self) -> Layout:
        """The tree of the parts' layouts; parts whose layout is not known are counted now."""
        return Layout.tree(self.parts)

    @cached_property
    def _starts(self) -> Ids:
        _ = self.layout  # first, since its errors name the part
        sizes = [len(Layout.of(leaf.dataset)) for leaf in self._leaves]
        return np.cumsum([0, *sizes], dtype=np.int64)

    @property
    def is_remote(self) -> bool:
        """Whether some files of a part are remote."""
        return any(bool(getattr(dataset, "is_remote", False)) for dataset in self._datasets)

    @property
    def is_layout_known(self) -> bool:
        """Whether the layout is known without fetching remote files."""
        return all(
            getattr(dataset, "is_layout_known", True) or not getattr(dataset, "is_remote", True)
            for dataset in self._datasets
        )

    @property
    def fingerprint(self) -> str | None:
        """A string that changes when the fingerprint of a part does; None if no part has one."""
        fingerprints = [find_fingerprint(leaf.dataset) for leaf in self._leaves]
        if not any(fingerprints):
            return None
        return fingerprint_of([leaf.name for leaf in self._leaves], fingerprints)

    @property
    def lengths(self) -> np.ndarray[Any, Any] | None:
        """The length of each sample, from the `lengths` of the parts; None if no part has lengths.

        Raises:
            DatasetError: only some parts have lengths, or the lengths of a part have the wrong shape.
        """
        columns = {leaf: find_column(leaf.dataset, "lengths", "length") for leaf in self._leaves}
        available = {leaf: np.asarray(column[1]) for leaf, column in columns.items() if column is not None}
        if not available:
            return None
        first = next(iter(available.values()))
        for leaf, size in zip(self._leaves, np.diff(self._starts).tolist(), strict=True):
            if leaf not in available:
                raise DatasetError(leaf.place, "has no lengths, but other parts have", leaf.dataset)
            if available[leaf].shape != (size, *first.shape[1:]):
                problem = f"must have lengths of shape {(size, *first.shape[1:])}, as other parts"
                raise DatasetError(leaf.place, problem, available[leaf].shape)
        return np.concatenate(list(available.values()))

    @property
    def stats(self) -> FileStats | None:
        """The sum of the `FileStats` of the parts that have them; None if no part has."""
        of_parts = (getattr(dataset, "stats", None) for dataset in self._datasets)
        available = [stats for stats in of_parts if isinstance(stats, FileStats)]
        return sum(available, FileStats()) if available else None

    @property
    def wants_passes(self) -> bool:
        """Whether a part receives the pass over its source in which a sample is read."""
        return any(map(read_args, self._datasets))

    @property
    def wants_epochs(self) -> bool:
        """Whether a part receives the epoch of its source in which a sample is read."""
        return any("epochs" in read_args(dataset) for dataset in self._datasets)

    @property
    def expect(self) -> Callable[[Iterable[Ids]], None] | None:
        """A method that receives the upcoming ids of this process by batch, and passes them to the parts.

        A `Loader` calls it, with ids that each part can iterate over. None if no part has such a method.
        """
        expects = any(callable(getattr(dataset, "expect", None)) for dataset in self._datasets)
        return self._expect if expects else None

    @property
    def read_present(self) -> Callable[..., Samples] | None:
        """A method that reads a batch and reports missing samples; None if no part skips missing samples."""
        reads = any(present_reader(dataset) is not None for dataset in self._datasets)
        return self._present if reads else None

    @property
    def __getsegments__(self) -> Callable[..., list[Any]] | None:
        """A method that reads segments of samples, for packing; None if a part cannot read segments."""
        return self._segments if all(map(has_segments, self._datasets)) else None

    @property
    def set_epoch(self) -> Callable[[int], None] | None:
        """A method that passes the epoch to the parts that have `set_epoch`; None if none has."""
        found = (getattr(dataset, "set_epoch", None) for dataset in self._datasets)
        methods = [call for call in found if callable(call)]

        def set_each(epoch: int) -> None:
            for call in methods:
                call(epoch)

        return set_each if methods else None

    def with_parts(self, change: Callable[[Any], Any]) -> TreeDataset:
        """Returns a tree with a function applied to each part; the same tree if no part changes."""
        parts = map_parts(change, self.parts)
        return self if parts is self.parts else TreeDataset(parts)

    def of_first_parts(self, count: int) -> TreeDataset:
        """Returns the tree of the first `count` parts: this tree before the others were appended."""
        return TreeDataset(dict(list(self.parts.items())[:count]))

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: int) -> Any:
        number = checked_index(index, self)
        leaf = int(interval_of(self._starts, np.array([number]))[0])
        start = int(self._starts[leaf])
        return self._leaves[leaf].read_one(number - start)

    def __getitems__(
        self, ids: Iterable[int], passes: Ids | None = None, epochs: Ids | None = None
    ) -> list[Any] | Columns | Array:
        """Returns a batch, in the order of the ids; each part reads its samples in one call.

        Args:
            ids: the ids of the samples, in [0, len), as a list or an array.
            passes: for each sample the pass over its source, for parts that use it; None for 0.
            epochs: for each sample the epoch of its source, for parts that use it; None for the epoch that
                was set.

        Returns:
            A list of samples; or an array with one row per sample if the parts return such arrays of one
            shape and dtype; or a dict of arrays if they return columns.

        Raises:
            OutOfDatasetError: an id is out of range.
            DatasetError: a part returns anything but samples, or parts return different kinds of samples.
                Exceptions of a part have a note with its name.
        """
        batch = self._read(ids, passes, epochs)
        if not isinstance(batch, Samples):
            return batch
        log_missing(batch.missing, self._logged)
        return list(batch)

    def close(self) -> None:
        """Closes the parts that can be closed. The dataset can be used again if its parts can."""
        with ExitStack() as closing:
            for dataset in self._datasets:
                if callable(close := getattr(dataset, "close", None)):
                    closing.callback(close)

    def __repr__(self) -> str:
        return f"TreeDataset({self.parts if len(self.parts) <= 8 else f'<{len(self.parts)} parts>'})"

    def _present(self, ids: Iterable[int], passes: Ids | None = None, epochs: Ids | None = None) -> Samples:
        batch = self._read(ids, passes, epochs)
        if isinstance(batch, np.ndarray):
            return Samples(batch)
        if not isinstance(batch, Samples):
            problem = "returns columns, from which missing samples cannot be left out"
            raise DatasetError("dataset", problem, list(batch), hint="use as_columns=False")
        return batch

    def _read(self, ids: Iterable[int], passes: Ids | None, epochs: Ids | None) -> Samples | Columns | Array:
        checked = checked_ids(ids, len(self))
        shares = []
        for leaf, start, places, extra in self._split(checked, passes, epochs):
            samples = leaf.read(checked[places] - start, extra, places, checked.size)
            shares.append(LeafSamples(leaf, start, samples, places))
        return joined(shares, checked.size)

    def _segments(self, segments: Any, passes: Ids | None = None, epochs: Ids | None = None) -> list[Any]:
        checked = checked_segments(segments, len(self))
        result: list[Any] = [None] * len(checked)
        for leaf, start, places, extra in self._split(checked[:, 0], passes, epochs):
            parts = leaf.read_segments(checked[places] - np.array([start, 0, 0]), extra, places, len(checked))
            for place, part in zip(places.tolist(), parts, strict=True):
                result[place] = part
        return result

    def _split(
        self, ids: Ids, passes: Ids | None, epochs: Ids | None
    ) -> Iterator[tuple[Leaf, int, Ids, dict[str, Ids]]]:
        """Yields each part with samples in a batch, its first id, their positions, passes and epochs."""
        args = {"passes": passes, "epochs": epochs}
        leaf_of = interval_of(self._starts, ids)
        for number in np.unique(leaf_of).tolist():
            places = np.flatnonzero(leaf_of == number)
            extra = {name: np.asarray(values)[places] for name, values in args.items() if values is not None}
            yield self._leaves[number], int(self._starts[number]), places, extra

    def _expect(self, upcoming: Iterable[Ids]) -> None:
        for leaf, (begin, end) in zip(self._leaves, pairwise(self._starts.tolist()), strict=True):
            if callable(getattr(leaf.dataset, "expect", None)):
                leaf.dataset.expect(share_of(upcoming, begin, end))


def leaves_of(name: str, dataset: Any) -> Iterator[Leaf]:
    """Yields the datasets in a part: the part itself, or those of a tree or a concatenation.

    Raises:
        ArgumentTypeError: the part is not a map-style dataset.
    """
    if isinstance(dataset, TreeDataset):
        yield from (replace(leaf, name=f"{name}/{leaf.name}") for leaf in dataset._leaves)
    elif type(dataset) is ConcatDataset:  # a class derived from it may read in another way
        for number, part in enumerate(dataset.datasets):
            yield from leaves_of(f"{name}/{number}", part)
    elif isinstance(dataset, int | Layout) or not (
        hasattr(dataset, "__getitem__") or hasattr(dataset, "__getitems__")
    ):
        raise ArgumentTypeError(f"parts[{name!r}]", "is not a map-style dataset", dataset)
    else:
        yield Leaf(name, dataset)
