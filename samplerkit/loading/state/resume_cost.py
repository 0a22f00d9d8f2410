"""What it costs to resume at a position of a different order: samples of the epoch skipped or repeated."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from samplerkit.loading.state.state import State
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import RunConstants

MOST_COUNTED: Final = 1 << 24
"""Samples of an epoch up to which the cost is counted; beyond that, an upper bound is given."""

_FILES_TRIED: Final = 64
_SIZE = re.compile(r"(\d+) samples\b")


@final
@dataclass(frozen=True)
class ResumeCost:
    """What a run skips and repeats if it resumes from a state although a field differs.

    Args:
        saved: the state.
        here: a state of the run that loads it.
        sampler: of that run.
        dataset: what it reads.
    """

    saved: State
    here: State
    sampler: Sampler
    dataset: Any

    def of(self, name: str) -> str:
        """Returns the cost of a field, one of `COMPARED`, as a clause for an error or the log."""
        position = self.saved.position
        if name == "tail":
            return "the order is the same"
        if not position:
            return "the state is at the beginning of an epoch, so no sample is skipped or repeated"
        return f"the epoch resumes at position {position} of a different order, {self._skipped(name)}"

    def _skipped(self, name: str) -> str:
        position, unit = self.saved.position, self.saved.unit
        size = counted = None
        # A sampler need not read another dataset, or this one: what differs must be reported all the same.
        with suppress(Exception):
            size = len(self._order(self.dataset)) if unit == "samples" else None
            counted = self._counted(name)
        if size is None:
            return f"which may skip and repeat up to {position} {unit}"
        if position > size:
            return f"which has only {size} samples: it cannot be loaded, call set_epoch for the next epoch"
        if counted is None:
            most = min(position, size - position)
            return f"which may skip up to {position} of its {size} samples and repeat up to {most}"
        return (
            f"which skips {counted[0]} of its {size} samples and repeats {counted[1]}, "
            "if each id is the same sample as before"
        )

    def _counted(self, name: str) -> tuple[int, int] | None:
        """Counts samples skipped and repeated; None where the order of before cannot be made again."""
        size, differing = _SIZE.match(self.saved.dataset), {*self.saved.differing(self.here)} - {"tail"}
        is_read = any(hasattr(type(link), "__iter__") for link in self.sampler._tree())
        if name != "dataset" or differing != {name} or size is None or is_read:
            return None
        before, now = int(size[1]), len(Layout.of(self.dataset))
        if max(before, now) > MOST_COUNTED or not all(map(self._ignores_files, (before, now))):
            return None
        old, new = self._order(before)[:], self._order(self.dataset)[:]
        read, comes, wanted = np.zeros((3, max(before, now)), dtype=bool)
        read[old[: self.saved.position]] = True
        comes[new[self.saved.position :]] = True
        wanted[new] = True
        return int((wanted & ~read & ~comes).sum()), int((read & comes).sum())

    def _ignores_files(self, size: int) -> bool:
        """Whether the order of so many samples is the same in files: then it follows from the size."""
        cuts = np.linspace(0, size, min(size, _FILES_TRIED) + 1).astype(np.int64)
        return np.array_equal(self._order(Layout(np.diff(cuts)))[:], self._order(size)[:])

    def _order(self, dataset: Any) -> Order:
        constants = RunConstants(self.saved.lanes, self.saved.limit)
        return self.sampler.undealt_order(dataset, self.saved.epoch, constants=constants)
