"""A `datasets.Dataset` as it is, with a layout."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, final

import numpy as np

from samplerkit.errors import ArgumentTypeError, DatasetError
from samplerkit.order import arguments
from samplerkit.order.caching import cached_property
from samplerkit.order.dataset_protocol import find_fingerprint
from samplerkit.order.layout import Layout
from samplerkit.storage.ids import checked_ids, checked_index

_MOST_RUNS = 4
"""Rows that were selected in so many runs a chunk are still in files; more are scattered."""


@final
class HuggingFaceDataset:
    """A `datasets.Dataset` as it is, with the layout of its chunks; nothing is copied.

    Its format, transform and selection are what they were: samples and batches are what it gives. Rows that
    were selected in order keep the layout; shuffled ones have none, and GLOBAL. It maps its files into memory
    itself; `ArrowDataset` reads the same folders without that.

    Args:
        dataset: of Hugging Face `datasets`.
        batches: what a batch is: `samples`, a list of dicts; or `columns`, the dict that the dataset gives
            for a list of ids, in its format.

    Attributes:
        dataset: the same.

    Raises:
        ArgumentTypeError: it is none, or an iterable one.
        ArgumentValueError: `batches` is another word.
    """

    def __init__(self, dataset: Any, *, batches: Literal["samples", "columns"] = "samples") -> None:
        if not all(hasattr(dataset, name) for name in ("data", "column_names", "select", "_fingerprint")):
            hint = "give one split, and no IterableDataset"
            raise ArgumentTypeError(
                "dataset", "must be a datasets.Dataset", type(dataset).__name__, hint=hint
            )
        arguments.choice("batches", batches, ("samples", "columns"))
        self.dataset: Final = dataset
        self._gives_columns: Final = batches == "columns"

    @cached_property
    def layout(self) -> Layout:
        """How many rows are in which chunk."""
        sizes = np.array([len(chunk) for chunk in self.dataset.data.column(0).chunks], dtype=np.int64)
        selected = getattr(self.dataset, "_indices", None)
        if selected is None:
            return Layout(sizes[sizes > 0])
        rows = np.concatenate([np.asarray(chunk) for chunk in selected.column(0).chunks] or [sizes[:0]])
        chunk = np.searchsorted(np.cumsum(sizes), rows, side="right")
        borders = np.flatnonzero(np.diff(chunk)) + 1
        if borders.size >= _MOST_RUNS * max(1, sizes.size):
            return Layout(len(rows))
        return Layout(np.diff([0, *borders, len(rows)]))

    @property
    def fingerprint(self) -> str | None:
        """What the dataset says of its content and of all that was done to it."""
        return find_fingerprint(self.dataset)

    @property
    def column_names(self) -> list[str]:
        """The columns of the dataset."""
        return list(self.dataset.column_names)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int | str) -> Any:
        """Gives a sample, in the format of the dataset; or, by its name, a column as an array."""
        if isinstance(index, str):
            return self.dataset.select_columns(index).with_format("numpy")[:][index]
        return self.dataset[checked_index(index, self)]

    def __getitems__(self, ids: Iterable[int]) -> Any:
        """Returns a batch, in the order of the ids.

        Raises:
            OutOfDatasetError: there is no such sample.
            DatasetError: a transform makes more or fewer samples than ids.
        """
        wanted = checked_ids(ids, len(self))
        if self._gives_columns:
            return self.dataset[wanted.tolist()]
        samples = self.dataset.__getitems__(wanted.tolist()) if wanted.size else []
        if len(samples) != wanted.size:
            problem = f"makes {len(samples)} samples of {wanted.size} rows"
            hint = "let its transform give a row for each row, or take batches='columns'"
            raise DatasetError("dataset", problem, hint=hint)
        return samples

    def __repr__(self) -> str:
        return f"HuggingFaceDataset({len(self)} samples)"
