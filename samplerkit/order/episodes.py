"""Orders over files that are episodes: windows of consecutive samples in each, and some of them whole."""

from __future__ import annotations

from typing import final

import numpy as np

from samplerkit.order.intervals import edges_of, interval_of
from samplerkit.order.layout import Layout
from samplerkit.order.located import Located
from samplerkit.order.once import once
from samplerkit.order.order import Order
from samplerkit.order.sequences import found
from samplerkit.order.typing import Ids


@final
class EpisodeWindows(Order):
    """The first sample of each window of `size` consecutive samples, `stride` apart, each within one file.

    Args:
        layout: the files; one without files is one episode.
        size: samples in a window.
        stride: from one window of a file to the next.
    """

    def __init__(self, layout: Layout, size: int, stride: int) -> None:
        self._episodes = layout
        self._size = size
        self._stride = stride
        fitting = layout.sizes >= size
        self._counts: Ids = np.where(fitting, (layout.sizes - size) // stride + 1, 0)
        self._starts = edges_of(self._counts)

    @property
    def recipe(self) -> tuple[object, ...]:
        return self._episodes, self._size, self._stride

    def __len__(self) -> int:
        return int(self._starts[-1])

    @once
    def layout(self) -> Layout:
        return Layout(self._counts if self._episodes.has_files else len(self))

    def ids_at(self, positions: Ids) -> Ids:
        file = interval_of(self._starts, positions)
        return self._episodes.starts[file] + (positions - self._starts[file]) * self._stride

    def locate(self, ids: Ids) -> Located:
        which = np.flatnonzero((ids >= 0) & (ids < len(self._episodes)))
        file = self._episodes.file_of(ids[which])
        window, between = np.divmod(ids[which] - self._episodes.starts[file], self._stride)
        begins = (between == 0) & (window < self._counts[file])
        return which[begins], (self._starts[file] + window)[begins]


@final
class WholeFiles(Order):
    """The samples of some files of a layout, as they stand.

    Args:
        layout: the files.
        files: the numbers of those that are read, ascending; int64 of shape (m,).
    """

    def __init__(self, layout: Layout, files: Ids) -> None:
        self._all = layout
        self._files = files
        self._starts = edges_of(layout.sizes[files])
        self._moves: Ids = layout.starts[files] - self._starts[:-1]

    @property
    def recipe(self) -> tuple[object, ...]:
        return self._all, self._files

    def __len__(self) -> int:
        return int(self._starts[-1])

    @once
    def layout(self) -> Layout:
        return Layout(self._all.sizes[self._files])

    def ids_at(self, positions: Ids) -> Ids:
        return positions + self._moves[interval_of(self._starts, positions)]

    def locate(self, ids: Ids) -> Located:
        which = np.flatnonzero((ids >= 0) & (ids < len(self._all)))
        if not self._files.size:
            return which[:0], which[:0]
        file = self._all.file_of(ids[which])
        place = np.minimum(np.searchsorted(self._files, file), self._files.size - 1)
        kept, positions = found(ids[which] - self._moves[place], self._files[place] == file)
        return which[kept], positions
