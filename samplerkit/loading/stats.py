"""Figures of a loader, ready for a training log."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, final


@dataclass(frozen=True)
class LoaderStats:
    """Figures of the iteration under way, or of the last one.

    Args:
        epoch: which it reads.
        batches: the number of batches handed out.
        first_wait: seconds that the loop waited for the first one, the start of workers included.
        total_wait: seconds that it waited for all.
        longest_wait: seconds that it waited for one, the first one left out.
        seconds: from the first request to the last batch handed out: waits, and what the loop did between.
        skipped: samples that could not be read and were left out, since the loader was made.
        dataset: the figures of the dataset, such as files read and cache hits, where it has `stats`. With
            workers, those of all workers that the loader had, added up as their batches were handed out; for
            that they must be a dataclass that can be added, else it is None.

    Example:
        >>> LoaderStats(epoch=0, batches=4, total_wait=1.0, seconds=4.0).to_dict()["waiting"]
        0.25
    """

    epoch: int = 0
    batches: int = 0
    first_wait: float = 0.0
    total_wait: float = 0.0
    longest_wait: float = 0.0
    seconds: float = 0.0
    skipped: int = 0
    dataset: Any = None

    @property
    def waiting(self) -> float:
        """The share of the time that the loop waited."""
        return self.total_wait / self.seconds if self.seconds > 0 else 0.0

    def to_dict(self) -> dict[str, float]:
        """Gives all figures by name in one flat mapping, those of the dataset as `dataset/name`."""
        figures = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        of_dataset = figures.pop("dataset")
        figures["waiting"] = self.waiting
        if dataclasses.is_dataclass(of_dataset):
            for field in dataclasses.fields(of_dataset):
                figures[f"dataset/{field.name}"] = getattr(of_dataset, field.name)
        return figures


@final
class Waits:
    """Adds up how long a loop waited for its batches; the first one, which starts everything, apart."""

    def __init__(self) -> None:
        self.number = 0
        self.first = self.total = self.longest = 0.0

    def add(self, seconds: float) -> None:
        """Counts a wait."""
        if self.number == 0:
            self.first = seconds
        else:
            self.longest = max(self.longest, seconds)
        self.number += 1
        self.total += seconds
