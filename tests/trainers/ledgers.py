"""Counts what training loops received, from the ledgers of the examples. Imports nothing of samplerkit."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain, pairwise, zip_longest
from pathlib import Path


@dataclass(frozen=True)
class Line:
    """What one rank received in one step of the run that began at step `start`."""

    rank: int
    start: int
    epoch: int
    step: int
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Ledger:
    """The samples that the model has learned from, and those that were received again.

    Args:
        samples: the size of the dataset.
        kept: the lines that count: of each run those before the step at which the next one began.
        replayed: the lines of a run that a later one, which began at a checkpoint, received again.
    """

    samples: int
    kept: tuple[Line, ...]
    replayed: tuple[Line, ...]

    @classmethod
    def read(cls, folder: Path, samples: int) -> Ledger:
        """Reads the ledgers of a folder."""
        lines = [
            Line(int(path.stem.removeprefix("rank-")), **{**line, "ids": tuple(line["ids"])})
            for path in sorted(folder.glob("rank-*.jsonl"))
            for line in map(json.loads, path.read_text().splitlines())
        ]
        starts = sorted({line.start for line in lines})
        ends = dict(pairwise([*starts, math.inf]))
        counts = [line.step < ends[line.start] for line in lines]
        kept = tuple(line for line, count in zip(lines, counts, strict=True) if count)
        return cls(samples, kept, tuple(line for line, count in zip(lines, counts, strict=True) if not count))

    def only(self, counts: Callable[[Line], bool]) -> Ledger:
        """Leaves out lines."""
        return replace(self, kept=tuple(filter(counts, self.kept)))

    @property
    def epochs(self) -> list[int]:
        return sorted({line.epoch for line in self.kept})

    @property
    def lost(self) -> list[int]:
        """How many samples of each epoch no rank received."""
        return [self.samples - len(self._times(epoch)) for epoch in self.epochs]

    @property
    def repeated(self) -> list[int]:
        """How often a sample was received that had been received in that epoch, for each epoch."""
        return [self._times(epoch).total() - len(self._times(epoch)) for epoch in self.epochs]

    @property
    def ranks(self) -> list[int]:
        """How many ranks took part in each run."""
        starts = sorted({line.start for line in self.kept})
        return [len({line.rank for line in self.kept if line.start == start}) for start in starts]

    def order(self, epoch: int) -> list[int]:
        """The samples of an epoch as they come when ranks take turns, pads included."""
        steps: dict[int, dict[int, tuple[int, ...]]] = {}
        for line in self.kept:
            if line.epoch == epoch:
                assert line.rank not in steps.setdefault(line.step, {}), "a rank received a step twice"
                steps[line.step][line.rank] = line.ids
        rows = (
            zip_longest(*(batches[rank] for rank in sorted(batches))) for _, batches in sorted(steps.items())
        )
        return [sample for sample in chain.from_iterable(chain(*rows)) if sample is not None]

    def _times(self, epoch: int) -> Counter[int]:
        return Counter(sample for line in self.kept if line.epoch == epoch for sample in line.ids)
