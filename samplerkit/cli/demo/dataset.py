"""The dataset of the demo: samples in several files, few of which are held at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
import torch.utils.data

from samplerkit.errors import DatasetError
from samplerkit.order.layout import Layout

Sample = tuple[torch.Tensor, int, int]
"""Pixels in [0, 1] (float32 of shape (64,)), label, id."""


@final
class NpzFiles(torch.utils.data.Dataset[Sample]):
    """An ordinary map-style dataset over .npz files, which counts the files that it opens.

    A file is opened when one of its samples is asked for, and the last few stay in memory: an order that
    jumps between files opens them again and again, which is what file-aware shuffles avoid.

    Args:
        paths: the files, with `pixels` and `labels`.
        layout: how many samples lie in which file.
        held: how many files stay in memory.
    """

    def __init__(self, paths: Iterable[Path], layout: Layout, held: int = 3) -> None:
        self.layout = layout
        self.files_opened = 0
        self._paths = tuple(paths)
        self._held = held
        self._files: OrderedDict[int, tuple[torch.Tensor, list[int]]] = OrderedDict()
        if len(self._paths) != layout.num_files:
            raise DatasetError(
                "dataset.sizes", f"names {layout.num_files} files, and there are {len(self._paths)}"
            )

    def __len__(self) -> int:
        return len(self.layout)

    def __getitem__(self, index: int) -> Sample:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int] | np.ndarray[Any, Any]) -> list[Sample]:
        ids = np.asarray(indices, dtype=np.int64)
        numbers = self.layout.file_of(ids)
        within = ids - self.layout.starts[numbers]
        samples: list[Sample | None] = [None] * ids.size
        # File by file, so that a batch opens each file at most once.
        for number in np.unique(numbers).tolist():
            pixels, labels = self._file(number)
            for place in np.flatnonzero(numbers == number).tolist():
                row = within[place]
                samples[place] = pixels[row], labels[row], int(ids[place])
        return [sample for sample in samples if sample is not None]

    def _file(self, number: int) -> tuple[torch.Tensor, list[int]]:
        if number in self._files:
            self._files.move_to_end(number)
            return self._files[number]
        self._files[number] = self._read(number)
        if len(self._files) > self._held:
            self._files.popitem(last=False)
        return self._files[number]

    def _read(self, number: int) -> tuple[torch.Tensor, list[int]]:
        self.files_opened += 1
        with np.load(self._paths[number], allow_pickle=False) as file:
            pixels = torch.from_numpy(file["pixels"]).float() / 16
            labels: list[int] = file["labels"].tolist()
        expected = int(self.layout.sizes[number])
        if len(labels) != expected:
            raise DatasetError(
                f"dataset.sizes[{number}]",
                f"says {expected} samples, and {self._paths[number].name} holds {len(labels)}",
            )
        return pixels, labels
