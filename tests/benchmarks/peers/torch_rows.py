"""Rows in memory, for the peers that are read through torch's DataLoader."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from tests.benchmarks.peers.cases import BATCH, WIDTH


class Sized:
    """A dataset of which only the length costs anything: ids come back as they are."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        return index


class Rows:
    """Rows of float32 that are handed out one by one."""

    def __init__(self, count: int) -> None:
        self.rows = torch.zeros(count, WIDTH)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index]


class Batches(Rows):
    """Rows that are handed out by the batch."""

    def __getitems__(self, indices: Any) -> torch.Tensor:
        return self.rows[torch.as_tensor(indices)]


def as_fetched(batch: torch.Tensor) -> torch.Tensor:
    """Collates what the dataset has built already."""
    return batch


ONE_BY_ONE, WHOLE = "`__getitem__`", "`__getitems__`"

VARIANTS: dict[str, tuple[type[Rows], Any]] = {ONE_BY_ONE: (Rows, None), WHOLE: (Batches, as_fetched)}
"""The dataset and the collate function of each way to read rows."""


def rows_by(make: Any, count: int, workers: int, variant: str) -> Callable[[], Iterable[Any]]:
    """Prepares rows for a DataLoader, or what takes its place."""
    kind, collate = VARIANTS[variant]
    loader = make(kind(count), BATCH, shuffle=True, num_workers=workers, collate_fn=collate)
    return lambda: loader
