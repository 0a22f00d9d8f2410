"""The data of the pictures of a run: only numbers, no drawing."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from samplerkit.inspect.batches import spans_of
from samplerkit.inspect.costs import files_of_step, spread_over
from samplerkit.inspect.plan import RunFigures
from samplerkit.inspect.view import RunView
from samplerkit.loading.run.delivery import Reading
from samplerkit.order.caching import cached_property
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids

MAX_POINTS = 24_000
"""The most points of a scatter plot; more would only make it black."""

MAX_PARTS = 48
"""The most files in a matrix; if there are more, neighbours are grouped."""

WINDOW_BATCHES = 4
"""Samples within this many global batches count as read together."""

EPOCHS = 32
"""The number of epochs that are examined for files that are read together."""

_PARTS_WITHOUT_FILES = 32
_WINDOWS = 512
_MAX_BATCHES = 1_200
_MAX_STEPS = 120
_STEPS = 240
_MAX_RANKS = 16
_STEPS_OF_DOCUMENTS = 60
_MAX_WINDOWS = 6_000
"""The most windows whose documents are examined."""

Counts = tuple[Ids, npt.NDArray[np.float64]]
"""Steps, and a count for each."""


@dataclass(frozen=True, eq=False)
class PlotData:
    """The data of one run: its name in pictures, its view, the epoch, and its number among the runs."""

    name: str
    view: RunView
    epoch: int = 0
    number: int = 0

    @cached_property
    def figures(self) -> RunFigures:
        """The figures of the epoch."""
        return RunFigures(self.view, self.epoch)

    @cached_property
    def layout(self) -> Layout:
        """The files; for a dataset without files, parts of equal size."""
        layout = self.view.layout
        if layout.has_files and np.count_nonzero(layout.sizes) > 0:
            return layout
        size = layout.num_samples
        parts = min(_PARTS_WITHOUT_FILES, max(1, size))
        return Layout(np.diff(np.arange(parts + 1) * size // parts))

    def _readers(self, most: int) -> list[Reading]:
        """Returns the readings of some evenly spaced ranks."""
        ranks = spread_over(self.view.num_ranks, most).tolist()
        return [self.view.reading(self.epoch, rank) for rank in ranks]

    def _steps(self, ranks: int, most: int) -> Iterator[tuple[Reading, int, int]]:
        """Yields evenly spaced steps of some ranks: the reading, the step, and about how many there are."""
        readings = self._readers(ranks)
        for reading in readings:
            steps = spread_over(reading.steps, most)
            yield from ((reading, step, steps.size * len(readings)) for step in steps.tolist())

    @cached_property
    def points(self) -> Ids:
        """Steps, sample ids and ranks of evenly spaced samples: int64 of shape (3, samples)."""
        ranks = min(self.view.num_ranks, MAX_POINTS // 4)
        marks: list[Ids] = [np.zeros((3, 0), dtype=np.int64)]
        for reading, step, count in self._steps(ranks, MAX_POINTS // ranks):
            ids = reading.ids(step)
            chosen = ids[spread_over(ids.size, max(1, MAX_POINTS // count))]
            marks.append(np.stack(np.broadcast_arrays(step, chosen, reading.shard)))
        return np.concatenate(marks, axis=1)

    @cached_property
    def together(self) -> npt.NDArray[np.float64]:
        """The log2 of how much more often files are read together than in a full shuffle.

        Shape (parts, parts); NaN for pairs without samples. Samples are read together if they are in one
        window of `WINDOW_BATCHES` global batches.
        """
        layout = self.layout
        parts = min(layout.num_files, MAX_PARTS)
        # Neighbouring files are grouped if there are many.
        group = np.arange(layout.num_files) * parts // layout.num_files
        pairs = np.zeros((parts, parts))
        places = np.random.default_rng(self.epoch)
        for epoch in range(self.epoch, self.epoch + EPOCHS):
            plan = self.view.run.epoch(epoch).plan
            units: Any = self.view.run.epoch(epoch).order if plan is None else plan
            window = min(WINDOW_BATCHES * self.view.reading(epoch).delivery.global_batch, len(units))
            # At other places in each epoch; files that are always read between two windows would be missed.
            for start in places.integers(0, len(units) - window + 1, _WINDOWS // EPOCHS).tolist():
                end = start + window
                ids = units[start:end] if plan is None else plan.samples(np.arange(start, end)).ids
                groups = group[layout.file_of(ids)]
                counts = np.bincount(groups, minlength=parts).astype(np.float64)
                pairs += np.outer(counts, counts) - np.diag(counts)
        sizes = np.bincount(group, weights=layout.sizes, minlength=parts)
        expected = np.outer(sizes, sizes) - np.diag(sizes)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = (pairs / pairs.sum()) / (expected / expected.sum())
            return np.where(expected > 0, np.log2(ratio), np.nan)

    def _mean_counts(self, ranks: int, most: int, count: Callable[[Reading, int], int]) -> Counts:
        """Returns some steps that all these ranks have, and for each the mean of a count over the ranks."""
        readings = self._readers(ranks)
        steps = spread_over(min(reading.steps for reading in readings), most)
        counts = [[count(reading, step) for step in steps.tolist()] for reading in readings]
        return steps, np.mean(counts, axis=0)

    @cached_property
    def files_of_batches(self) -> Counts:
        """Steps, and for each the mean number of files in a rank's batch."""
        return self._mean_counts(8, _STEPS, partial(files_of_step, self.view))

    @cached_property
    def documents_of_batches(self) -> Counts:
        """Steps, and for each the mean number of known documents in a rank's batch of windows of tokens."""

        def count(reading: Reading, step: int) -> int:
            spans = spans_of(self.view, reading, step, reading.ids(step)) or ()
            return len({span[:2] for window in spans for span in window if span[1] is not None})

        return self._mean_counts(4, _STEPS_OF_DOCUMENTS, count)

    @cached_property
    def documents_read(self) -> tuple[Ids, bool] | None:
        """The documents of evenly spaced windows of tokens; None for other datasets.

        A mark for each part of a document in a window, int64 of shape (4, marks): the step and the rank that
        read the window, the file, and the number of the document in it; or of the first token, if documents
        are not known. And whether they are known.
        """
        selected = []
        for reading, step, count in self._steps(_MAX_RANKS, _STEPS):
            ids = reading.ids(step)
            windows = spread_over(ids.size, max(1, _MAX_WINDOWS // count))
            spans = spans_of(self.view, reading, step, ids, windows)
            if spans is None:
                return None
            marks = [(step, reading.shard, *span[:3]) for window in spans for span in window]
            places = spread_over(len(marks), max(1, MAX_POINTS // count))
            selected += [marks[place] for place in places.tolist()]
        if not selected:
            return None
        are_known = all(document is not None for _, _, _, document, _ in selected)
        chosen = [(*mark[:3], mark[3 if are_known else 4]) for mark in selected]
        return np.array(chosen, dtype=np.int64).T, are_known

    @property
    def has_lengths(self) -> bool:
        """Whether the run has batches of samples of different lengths, and the lengths are known."""
        plan = self.view.run.epoch(self.epoch).plan
        return plan is not None and plan.measure.lengths is not None

    @cached_property
    def batches(self) -> tuple[Ids, Ids, Ids, Ids]:
        """Steps, ranks, and the lengths of the shortest and the longest sample of each batch; whole steps."""
        plan = self.view.run.epoch(self.epoch).plan
        ranks = self.view.num_ranks
        if plan is None or not self.has_lengths or len(plan) < ranks:
            return (np.zeros(0, dtype=np.int64),) * 4
        steps = spread_over(len(plan) // ranks, max(1, min(_MAX_STEPS, _MAX_BATCHES // ranks)))
        numbers = (steps[:, None] * ranks + np.arange(ranks)).reshape(-1)
        samples = plan.samples(numbers)
        parts = samples.segments
        lengths = plan.measure.counted(samples.ids) if parts is None else parts.lengths
        lengths = lengths if lengths.ndim == 1 else lengths.sum(axis=1)
        low, high = (bound.reduceat(lengths, samples.edges[:-1]) for bound in (np.minimum, np.maximum))
        return np.repeat(steps, ranks), np.tile(np.arange(ranks), steps.size), low, high


def plot_data(runs: dict[str, Any], epoch: int = 0) -> list[PlotData]:
    """Returns the data of loaders, configs or views, which are given by their names in the pictures."""
    return [PlotData(name, RunView.of(run), epoch, number) for number, (name, run) in enumerate(runs.items())]
