"""`TreeDataset`: several datasets as one, by name; and how each of them reads its share of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import tee
from typing import Any, Final, final

import numpy as np
from torch.utils.data import ConcatDataset

from samplerkit.errors import ArgumentTypeError, DatasetError, note_once
from samplerkit.order.caching import cached_property
from samplerkit.order.dataset_protocol import find_column, find_fingerprint, fingerprint_of, gives_segments
from samplerkit.order.draws import entered_draws, in_draws
from samplerkit.order.intervals import interval_of
from samplerkit.order.layout import Layout, named_parts, require_depth
from samplerkit.order.typing import Ids
from samplerkit.storage.ahead.cache_entries import FileStats
from samplerkit.storage.batch_readers import batch_reader, changed_parts, only_sample, present_reader, wanted
from samplerkit.storage.files.content import FileContent, gathered_columns
from samplerkit.storage.ids import checked_ids, checked_index
from samplerkit.storage.missing_file import Present, log_missing
from samplerkit.storage.per_process import OpenPerProcess


@final
class TreeDataset(OpenPerProcess[Any]):
    """Several datasets as one map-style dataset; each part of a batch is read in one go.

    Its layout is the tree of theirs: ids run through the parts in the order given, and its files are theirs,
    so the modes that know files, and mixtures by name, work over it. Each part receives from a loader
    what concerns it: the epoch, the ids that it will read next, its draws and passes. It has no threads.

    Args:
        parts: by name: a `FileDataset`, a `TarDataset`, a dataset of yours, torch's `ConcatDataset`, or
            another `TreeDataset`.

    Attributes:
        parts: the same.

    Raises:
        ArgumentTypeError: no mapping, a name that is no string, or a part of which nothing can be read.
        ArgumentValueError: no parts, a name that is empty, or trees in trees, more than 64.
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
        asked = np.asarray(segments, dtype=np.int64)
        found: list[Any] = [None] * len(asked)
        ids = checked_ids(asked[:, 0], len(self))
        for leaf, start, places, mine in self._of_parts(ids, passes, epochs):
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


MOST_GLANCED = 1 << 14
"""Ids of all parts that are searched for one of them before a thread that reads ahead may pause."""


@final
@dataclass(frozen=True, eq=False)
class Leaf:
    """A dataset in a tree.

    Args:
        name: the names that lead there, with slashes between.
        dataset: a map-style dataset.
    """

    name: str
    dataset: Any

    @property
    def place(self) -> str:
        """What errors call it."""
        return f"part {self.name!r}"

    @property
    def fingerprint(self) -> str | None:
        """A text that changes with the content of the dataset, if it has one."""
        return find_fingerprint(self.dataset)

    @property
    def has_borders(self) -> bool:
        """Whether its batches have `cu_seqlens`: positions in the flattened batch, not one row a sample."""
        return BORDERS in (getattr(batch_reader(self.dataset), "outputs", None) or ())

    @property
    def lengths(self) -> Any:
        """The length of each sample, if the dataset has an attribute or a column of that name."""
        found = find_column(self.dataset, "lengths", "length")
        return found and found[1]

    def read_one(self, id: int) -> Any:
        """Reads one sample; what the dataset raises has a note."""
        with self._noting_errors():
            return self.dataset[id]

    @contextmanager
    def _noting_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            note_once(error, f"samplerkit: in {self.place} of a tree of datasets")
            raise

    def read(self, ids: Ids, about: Mapping[str, Ids], places: Ids, size: int) -> Any:
        """Reads its share of a batch in one go, each sample in its draw.

        Args:
            ids: in the dataset.
            about: of each, by name: in which pass over its source it is, and in which epoch of that.
            places: of the samples in the batch.
            size: the samples of the whole batch.

        Returns:
            What the dataset gives: a list of samples, one with `missing`, an array of numbers whose rows are
            samples, or a mapping of columns.

        Raises:
            DatasetError: it is none of these, or of another length. What the dataset raises has a note.
        """
        with self._noting_errors():
            samples = self._read(ids, about, places, size)
        if isinstance(samples, np.ndarray) and self.has_borders:
            samples = {BORDERS: samples}
        elif isinstance(samples, np.ndarray) and (samples.ndim < 1 or samples.dtype.kind not in "biuf"):
            samples = list(samples)
        if not isinstance(samples, list | tuple | Mapping | np.ndarray):
            raise DatasetError(self.place, "gives neither a list of samples nor columns", samples)
        missing = len(getattr(samples, "missing", ()))
        if not isinstance(samples, Mapping) and not missing and len(samples) != ids.size:
            raise DatasetError(
                self.place, f"gives other than {ids.size} samples for as many ids", len(samples)
            )
        return samples

    def read_segments(self, segments: Ids, about: Mapping[str, Ids], places: Ids, size: int) -> list[Any]:
        """Reads parts of samples, of a dataset that gives them, in one go, each in its draw.

        Args:
            segments: for each the id in the dataset, the first token in it, and how many; shape (m, 3).
            about: as for `read`.
            places: of the parts in the batch.
            size: the parts of the whole batch.

        Raises:
            DatasetError: it gives more or fewer. What the dataset raises has a note.
        """
        with self._noting_errors():
            parts = self._read_segments(segments, about, places, size)
        if not hasattr(parts, "__len__") or len(parts) != len(segments):
            number = len(parts) if hasattr(parts, "__len__") else parts
            problem = f"gives other than {len(segments)} parts for as many segments"
            raise DatasetError(self.place, problem, number)
        return list(parts)

    def _read_segments(self, segments: Ids, about: Mapping[str, Ids], places: Ids, size: int) -> Any:
        read = self.dataset.__getsegments__

        def one(given: tuple[Any, ...]) -> Any:
            return read(*(values[None] for values in given))[0]

        return self._called(read, one, self._given(segments, about), places, size)

    def _read(self, ids: Ids, about: Mapping[str, Ids], places: Ids, size: int) -> Any:
        dataset = self.dataset
        in_batches = batch_reader(dataset) is not None
        read = (present_reader(dataset) or dataset.__getitems__) if in_batches else None
        return self._called(read, self._one, self._given(ids, about), places, size)

    def _given(self, what: Ids, about: Mapping[str, Ids]) -> tuple[Ids, ...]:
        """The arguments of the dataset; it knows the epoch from `set_epoch` already."""
        first = {"passes": np.zeros(len(what), dtype=np.int64), **about}
        return (what, *(first[name] for name in wanted(self.dataset) if name in first))

    def _called(
        self,
        read: Callable[..., Any] | None,
        one: Callable[[Any], Any],
        given: tuple[Ids, ...],
        places: Ids,
        size: int,
    ) -> Any:
        """Reads all in one go; one by one where it cannot, or does not enter draws that are seeded."""
        draws = entered_draws(size)
        enters_alone = bool(getattr(batch_reader(self.dataset), "enters_draws", False))
        if read is None or (draws is not None and draws.seeds and not enters_alone):
            return in_draws(one, zip(*given, strict=True), places.tolist(), size)
        if draws is None:
            return read(*given)
        with draws.of(places, enters_alone=enters_alone):
            return read(*given)

    def _one(self, given: tuple[np.int64, ...]) -> Any:
        if len(given) == 1:
            return self.dataset[int(given[0])]
        return only_sample(self.dataset.__getitems__(*(np.array([number]) for number in given)))


@final
class Share(Iterator[Ids]):
    """The ids of one part in each upcoming batch that has some of it; no empty arrays.

    Args:
        upcoming: the ids of each batch.
        begin: the first id of the part.
        end: the id after its last one.

    Example:
        >>> share = Share(iter([np.array([7, 2]), np.array([1]), np.array([6, 5])]), 5, 8)
        >>> [ids.tolist() for ids in share]
        [[2], [1, 0]]
    """

    def __init__(self, upcoming: Iterator[Any], begin: int, end: int) -> None:
        self._upcoming = upcoming
        self._begin, self._end = begin, end
        self._glanced = 0

    def glance(self) -> Ids | None:
        """Gives what `next` does; or None now and then, where other parts have nearly all samples.

        Raises:
            StopIteration: the end is reached.
        """
        while self._glanced < MOST_GLANCED:
            ids = np.asarray(next(self._upcoming), dtype=np.int64)
            self._glanced += max(1, ids.size)
            mine = ids[(ids >= self._begin) & (ids < self._end)]
            if mine.size:
                return mine - self._begin
        self._glanced = 0
        return None

    def __next__(self) -> Ids:
        while (ids := self.glance()) is None:
            pass
        return ids


def copies(upcoming: Iterable[Any], number: int) -> Iterable[Iterator[Any]]:
    """Gives iterators over the same batches, each of which may be far ahead of the others."""
    again = getattr(upcoming, "again", None)
    if callable(again):
        return [again() for _ in range(number)]
    # What is no iterator starts again by itself; else the batches between two copies are in memory.
    return tee(upcoming, number) if iter(upcoming) is upcoming else [iter(upcoming) for _ in range(number)]


Array = np.ndarray[Any, Any]

Columns = dict[Any, Array]

BORDERS: Final = "cu_seqlens"
"""The output of windows of tokens that says where documents begin."""


@final
@dataclass(frozen=True, eq=False)
class LeafSamples:
    """What one dataset returned of a batch.

    Args:
        place: what errors call the dataset.
        start: its first id.
        samples: a list of samples, one with `missing` and `stand_in`, an array whose rows are samples, or a
            mapping of columns.
        places: of the samples in the batch.
        has_borders: whether it returns `cu_seqlens`, which have no row a sample.
    """

    place: str
    start: int
    samples: Any
    places: Ids
    has_borders: bool = False


def joined(shares: Sequence[LeafSamples], size: int) -> Present | Columns | Array:
    """Puts the shares of a batch together.

    Args:
        shares: of all datasets that have some of it.
        size: the samples of the whole batch.

    Raises:
        DatasetError: one returns columns and another one samples, or other columns than the one before.

    Example:
        >>> shares = [LeafSamples("a", 0, ["x"], np.array([1])), LeafSamples("b", 9, ["y"], np.array([0]))]
        >>> joined(shares, 2)
        ['y', 'x']
    """
    of_columns = [share for share in shares if isinstance(share.samples, Mapping)]
    if not of_columns:
        return _joined_rows(shares, size) if _are_rows(shares) else _joined_samples(shares, size)
    if len(of_columns) < len(shares):
        other = next(share for share in shares if share not in of_columns)
        hint = "say the same as_columns for all parts"
        raise DatasetError(
            of_columns[0].place, f"gives columns, and {other.place} a list of samples", hint=hint
        )
    of_borders = [share for share in shares if share.has_borders]
    if not of_borders:
        return _joined_columns(shares, size)
    if len(of_borders) < len(shares):
        other = next(share for share in shares if share not in of_borders)
        hint = "say the same outputs for all parts"
        raise DatasetError(of_borders[0].place, f"gives {BORDERS}, and {other.place} does not", hint=hint)
    return _with_borders(shares, size)


def _joined_columns(shares: Sequence[LeafSamples], size: int) -> Columns:
    contents = ((FileContent.of(share.samples, share.place), share.places) for share in shares)
    return gathered_columns(((content, np.arange(places.size), places) for content, places in contents), size)


def _with_borders(shares: Sequence[LeafSamples], size: int) -> Columns | Array:
    """Puts shares of windows of tokens together; documents begin at positions of the flattened batch."""
    names = list(shares[0].samples)
    found, width = [], int(shares[0].samples[BORDERS][-1]) // shares[0].places.size
    for share in shares:
        borders = share.samples[BORDERS]
        if int(borders[-1]) != width * share.places.size:
            here = int(borders[-1]) // share.places.size
            raise DatasetError(share.place, f"gives windows of another length than {width} tokens", here)
        row, at = np.divmod(borders[:-1], width)
        found.append(share.places[row] * width + at)
    merged = np.append(np.sort(np.concatenate(found)), size * width).astype(shares[0].samples[BORDERS].dtype)
    if names == [BORDERS]:
        return merged
    others = [
        replace(share, samples={name: share.samples[name] for name in share.samples if name != BORDERS})
        for share in shares
    ]
    columns = _joined_columns(others, size)
    return {name: merged if name == BORDERS else columns[name] for name in names}


def _are_rows(shares: Sequence[LeafSamples]) -> bool:
    """Whether all shares are arrays whose rows go into one."""
    kinds = {
        (share.samples.dtype, share.samples.shape[1:]) if isinstance(share.samples, np.ndarray) else None
        for share in shares
    }
    return len(kinds) == 1 and None not in kinds


def _joined_rows(shares: Sequence[LeafSamples], size: int) -> Array:
    """One array is collated as it is; as a list of rows, each of them would become a tensor first."""
    first = shares[0].samples
    rows = np.empty((size, *first.shape[1:]), dtype=first.dtype)
    for share in shares:
        rows[share.places] = share.samples
    return rows


def _joined_samples(shares: Sequence[LeafSamples], size: int) -> Present:
    samples: list[Any] = [None] * size
    missing: list[tuple[int, str, str]] = []
    stand_ins: list[tuple[int, Any]] = []
    for share in shares:
        lost = getattr(share.samples, "missing", ())
        missing += [(int(share.places[at]), file, f"{text} ({share.place})") for at, file, text in lost]
        stand_in = getattr(share.samples, "stand_in", None)
        if stand_in is not None:
            stand_ins.append((share.start + stand_in, share.samples[0]))
            continue
        here = np.delete(share.places, [at for at, _, _ in lost])
        for place, sample in zip(here.tolist(), share.samples, strict=True):
            samples[place] = sample
    gone = {place for place, _, _ in missing}
    found = Present(sample for place, sample in enumerate(samples) if place not in gone)
    found.missing = sorted(missing)
    if not found and stand_ins:  # where other parts gave some, the step has its batch
        found.stand_in, sample = stand_ins[0]
        found.append(sample)
    return found
