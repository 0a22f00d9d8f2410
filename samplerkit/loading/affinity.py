"""Which worker reads which files, so that each is read once a rank, and whose a batch so is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.loading.reading import Reading
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids

_NOBODY: Final = -1


@dataclass(frozen=True, eq=False)
class DealtFiles:
    """Which files were given to which workers up to a batch.

    Args:
        workers: of each file, int16 of shape (files,); -1 where no sample of it was asked for.
        samples: in the files of each worker.
    """

    workers: np.ndarray[Any, np.dtype[np.int16]]
    samples: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class BatchShare:
    """What is said of the samples of a batch that lie in the files of one worker.

    Args:
        worker: the number of the worker.
        places: theirs in the batch, ascending; None where all of the batch is theirs.
        files: whose the files are, where the worker begins to read in order; None where it goes on.
    """

    worker: int
    places: Ids | None
    files: DealtFiles | None


@final
class FileAffinity:
    """Gives each file to a worker when it first appears: to the one with the fewest samples so far.

    It holds for an epoch, so a file that is left and comes again meets the worker that has it.

    Args:
        layout: the files.
        files: what was given already.

    Example:
        >>> affinity = FileAffinity(Layout([4, 4, 4]), FileAffinity.nothing(Layout([4, 4, 4]), 2))
        >>> affinity.workers_of(np.array([5, 0, 9, 4]))
        array([1, 0, 0, 1], dtype=int16)
    """

    def __init__(self, layout: Layout, files: DealtFiles) -> None:
        self._layout: Final = layout
        self._workers: Final = files.workers.copy()
        self._samples: Final = list(files.samples)

    @staticmethod
    def nothing(layout: Layout, num_workers: int) -> DealtFiles:
        """Gives the beginning: no file is anyone's."""
        return DealtFiles(np.full(layout.num_files, _NOBODY, dtype=np.int16), (0,) * num_workers)

    @property
    def files(self) -> DealtFiles:
        """What was given so far."""
        return DealtFiles(self._workers.copy(), tuple(self._samples))

    def workers_of(self, ids: Ids) -> np.ndarray[Any, np.dtype[np.int16]]:
        """Gives the worker of each sample; ids are those of the batches of an epoch, in order."""
        files = self._layout.file_of(ids)
        for file in np.unique(files[self._workers[files] == _NOBODY]).tolist():
            worker = self._samples.index(min(self._samples))
            self._workers[file] = worker
            self._samples[worker] += int(self._layout.sizes[file])
        return self._workers[files]


def layout_of_files(dataset: Any) -> Layout:
    """Gives the files by which batches are dealt to workers.

    Raises:
        DatasetError: the dataset tells no files.
    """
    layout = Layout.of(dataset)
    if not layout.has_files:
        mend = "give it a layout, or leave file_affinity out"
        raise DatasetError("dataset", "tells no files that could be spread over workers", dataset, mend=mend)
    return layout


def ids_to_come(layout: Layout, reading: Reading, first: int, share: BatchShare) -> Iterator[Ids]:
    """Gives the ids of each batch from a step on that a worker reads, or of its share of it.

    Args:
        layout: the files.
        reading: what the rank reads.
        first: the step.
        share: of the worker in that step, where it begins to read in order.
    """
    assert share.files is not None  # noqa: S101  # for mypy: who begins to read in order is told
    affinity = FileAffinity(layout, share.files)
    for _, ids in reading.batches(first):
        own = ids[affinity.workers_of(ids) == share.worker]
        if own.size:
            yield own
