"""`TreeDataset`: several datasets as one, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final, final

import numpy as np
from torch.utils.data import ConcatDataset

from samplerkit.errors import ArgumentTypeError, DatasetError
from samplerkit.order.caching import cached_property
from samplerkit.order.dataset_protocol import fingerprint_of, gives_segments
from samplerkit.order.intervals import interval_of
from samplerkit.order.layout import Layout, named_parts, require_depth
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.cache_entries import FileStats
from samplerkit.storage.batch_readers import changed_parts, present_reader, wanted
from samplerkit.storage.ids import checked_ids, checked_index, checked_segments
from samplerkit.storage.opening import Present, log_missing
from samplerkit.storage.per_process import OpenPerProcess
from samplerkit.storage.tree_leaves import Array, Columns, Leaf, LeafSamples, Share, copies, joined


@final
class TreeDataset(OpenPerProcess[Any]):
    """Several named datasets as one map-style dataset; each part reads its samples of a batch at once.

    Its layout is the tree of theirs: ids run through the parts in the order given, and its files are theirs,
    so the modes that know files, and mixtures by name, work over it. Each part receives from a loader
    what concerns it: the epoch, the ids that it will read next, its draws and passes. It has no threads.

    Args:
        parts: by name: a `FileDataset`, a `TarDataset`, any map-style dataset, torch's `ConcatDataset`, or
            another `TreeDataset`.

    Attributes:
        parts: the same.

    Raises:
        ArgumentTypeError: no mapping, a name that is no string, or a part of which nothing can be read.
        ArgumentValueError: no parts, an empty name, or more than 64 nested trees.
        DatasetError: later, a part has neither a layout nor a length, or returns something else than samples.

    Example:
        >>> import samplerkit as sk
        >>> corpus = sk.TreeDataset({"web": ["a", "b", "c"], "code": ["x", "y"]})
        >>> len(corpus), corpus.layout, corpus[3], corpus.__getitems__([4, 0, 2])
        (5, Layout.tree({'web': Layout(3), 'code': Layout(2)}), 'x', ['y', 'a', 'c'])
    """

    enters_draws = True
    """A Loader that seeds draws need not read this one by one: each part is read in its own draws."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self.parts: Final[Mapping[str, Any]] = named_parts(parts)
        depths = (part._depth for part in self.parts.values() if isinstance(part, TreeDataset))
        self._depth: Final[int] = 1 + max(depths, default=0)
        require_depth(self._depth)
        self._leaves: Final = tuple(
            leaf for name, part in self.parts.items() for leaf in leaves_of(name, part)
        )
        self._datasets: Final = tuple({id(leaf.dataset): leaf.dataset for leaf in self._leaves}.values())
        self._logged: Final[set[str]] = set()
        super().__init__()

    @cached_property
    def layout(self) -> Layout:
        """The tree of the layouts of the parts; counted now if one is not known."""
        return Layout.tree(self.parts)

    @cached_property
    def _starts(self) -> Ids:
        _ = self.layout  # its errors name the part
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
        """A text that changes when that of a part does; None where no part has one."""
        known = [leaf.fingerprint for leaf in self._leaves]
        if not any(known):
            return None
        return fingerprint_of([leaf.name for leaf in self._leaves], known)

    @property
    def lengths(self) -> np.ndarray[Any, Any] | None:
        """The length of each sample, from the `lengths` of the parts, for batches; None if all lack them.

        Raises:
            DatasetError: some parts have lengths and others none, or more or fewer than samples, or pairs.
        """
        found = {leaf: leaf.lengths for leaf in self._leaves}
        known = {leaf: np.asarray(lengths) for leaf, lengths in found.items() if lengths is not None}
        if not known:
            return None
        first = next(iter(known.values()))
        for leaf, size in zip(self._leaves, np.diff(self._starts).tolist(), strict=True):
            if leaf not in known:
                raise DatasetError(leaf.place, "has no lengths, and other parts have", leaf.dataset)
            if known[leaf].shape != (size, *first.shape[1:]):
                problem = f"must have lengths of shape {(size, *first.shape[1:])}, as other parts"
                raise DatasetError(leaf.place, problem, known[leaf].shape)
        return np.concatenate(list(known.values()))

    @property
    def stats(self) -> FileStats | None:
        """What parts have read and waited for, added up over those that have `FileStats`; None if none has.

        The workers of a `Loader` are added, as their batches are handed out.
        """
        of_parts = (getattr(dataset, "stats", None) for dataset in self._datasets)
        known = [stats for stats in of_parts if isinstance(stats, FileStats)]
        known += filter(None, (ask() for ask in self._processes.here().of_workers))
        return sum(known, FileStats()) if known else None

    @property
    def wants_passes(self) -> bool:
        """Whether a part receives the pass over its source in which a sample is read."""
        return any(map(wanted, self._datasets))

    @property
    def wants_epochs(self) -> bool:
        """Whether a part receives the epoch of its source in which a sample is read."""
        return any("epochs" in wanted(dataset) for dataset in self._datasets)

    @property
    def expect(self) -> Callable[[Iterable[Ids]], None] | None:
        """Receives what this process will read, batch by batch; each part receives its own ids.

        A `Loader` calls it. None where no part has such a method.
        """
        return self._expect if any(map(expects_ids, self._datasets)) else None

    @property
    def read_present(self) -> Callable[..., Present] | None:
        """Reads a batch, and reports what parts left out of it; None where no part leaves anything out."""
        reads = any(present_reader(dataset) is not None for dataset in self._datasets)
        return self._present if reads else None

    @property
    def __getsegments__(self) -> Callable[..., list[Any]] | None:
        """Returns parts of samples, for packs; None where a part cannot, so that whole samples are read."""
        return self._segments if all(map(gives_segments, self._datasets)) else None

    @property
    def set_epoch(self) -> Callable[[int], None] | None:
        """Passes the epoch on to the parts that have such a method; None where none has."""
        return self._calling_each("set_epoch")

    @property
    def order_is_given(self) -> Callable[[], None] | None:
        """Informs the parts that have such a method that their order is chosen on purpose; else None."""
        return self._calling_each("order_is_given")

    def with_parts(self, change: Callable[[Any], Any]) -> TreeDataset:
        """Returns the tree of what a function makes of each part; this one where it changes none."""
        parts = changed_parts(change, self.parts)
        return self if parts is self.parts else TreeDataset(parts)

    def of_first_parts(self, count: int) -> TreeDataset:
        """Returns the tree of the first parts: what this one was before the others were appended."""
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
        """Returns a batch, in the order of the ids; each part reads its own in one go.

        Args:
            ids: of the samples, in [0, len), as a list or an array.
            passes: in which pass over its source each is, for the parts that use it; None for 0.
            epochs: in which epoch of its source each is, for the parts that use it; None for the one that
                was set.

        Returns:
            A list of samples; an array with a row a sample where the parts return such arrays, all alike; a
            dict of arrays where they return columns; the `cu_seqlens` of windows of tokens, of the flattened
            batch, where these are the only output.

        Raises:
            OutOfDatasetError: there is no such sample.
            DatasetError: a part returns something else than samples, or others than the part before. What a
                part raises has a note that names it.
        """
        found = self._read(ids, passes, epochs)
        if not isinstance(found, Present):
            return found
        log_missing(found.missing, self._logged)
        return list(found)

    def close(self) -> None:
        """Closes the parts that can be closed. The dataset can be used again where they can."""
        with ExitStack() as closing:
            for dataset in self._datasets:
                if callable(close := getattr(dataset, "close", None)):
                    closing.callback(close)

    def __repr__(self) -> str:
        return f"TreeDataset({self.parts if len(self.parts) <= 8 else f'<{len(self.parts)} parts>'})"

    def _present(self, ids: Iterable[int], passes: Ids | None = None, epochs: Ids | None = None) -> Present:
        found = self._read(ids, passes, epochs)
        if isinstance(found, np.ndarray):
            return Present(found)
        if not isinstance(found, Present):
            problem = "gives columns, of which no sample can be left out"
            raise DatasetError("dataset", problem, list(found), hint="say as_columns=False")
        return found

    def _read(self, ids: Iterable[int], passes: Ids | None, epochs: Ids | None) -> Present | Columns | Array:
        asked = checked_ids(ids, len(self))
        shares = []
        for leaf, start, places, mine in self._of_parts(asked, passes, epochs):
            samples = leaf.read(asked[places] - start, mine, places, asked.size)
            shares.append(LeafSamples(leaf.place, start, samples, places, leaf.has_borders))
        return joined(shares, asked.size)

    def _segments(self, segments: Any, passes: Ids | None = None, epochs: Ids | None = None) -> list[Any]:
        asked = checked_segments(segments, len(self))
        found: list[Any] = [None] * len(asked)
        for leaf, start, places, mine in self._of_parts(asked[:, 0], passes, epochs):
            parts = leaf.read_segments(asked[places] - np.array([start, 0, 0]), mine, places, len(asked))
            for place, part in zip(places.tolist(), parts, strict=True):
                found[place] = part
        return found

    def _of_parts(
        self, ids: Ids, passes: Ids | None, epochs: Ids | None
    ) -> Iterator[tuple[Leaf, int, Ids, dict[str, Ids]]]:
        """Yields each part that has some of a batch, its first id, their places, and passes and epochs."""
        known = {"passes": passes, "epochs": epochs}
        leaf_of = interval_of(self._starts, ids)
        for number in np.unique(leaf_of).tolist():
            places = np.flatnonzero(leaf_of == number)
            mine = {name: np.asarray(values)[places] for name, values in known.items() if values is not None}
            yield self._leaves[number], int(self._starts[number]), places, mine

    def _expect(self, upcoming: Iterable[Ids]) -> None:
        numbers = [number for number, leaf in enumerate(self._leaves) if expects_ids(leaf.dataset)]
        for number, batches in zip(numbers, copies(upcoming, len(numbers)), strict=True):
            begin, end = self._starts[number : number + 2].tolist()
            self._leaves[number].dataset.expect(Share(batches, begin, end))

    def _calling_each(self, method: str) -> Callable[..., None] | None:
        methods = [call for dataset in self._datasets if callable(call := getattr(dataset, method, None))]

        def call_each(*arguments: Any) -> None:
            for call in methods:
                call(*arguments)

        return call_each if methods else None


def expects_ids(dataset: Any) -> bool:
    """Returns whether a dataset receives the upcoming ids."""
    return callable(getattr(dataset, "expect", None))


def leaves_of(name: str, dataset: Any) -> Iterator[Leaf]:
    """Yields the datasets in a part: itself, or those of a tree or a concatenation.

    Raises:
        ArgumentTypeError: nothing can be read of it.
    """
    if isinstance(dataset, TreeDataset):
        yield from (replace(leaf, name=f"{name}/{leaf.name}") for leaf in dataset._leaves)
    elif type(dataset) is ConcatDataset:  # a class derived from it may read in another way
        for number, part in enumerate(dataset.datasets):
            yield from leaves_of(f"{name}/{number}", part)
    elif isinstance(dataset, int | Layout) or not (
        hasattr(dataset, "__getitem__") or hasattr(dataset, "__getitems__")
    ):
        raise ArgumentTypeError(f"parts[{name!r}]", "is no dataset that samples are read of", dataset)
    else:
        yield Leaf(name, dataset)
