"""The figures of a loader as one flat mapping, for a training log; and a loop with a progress bar."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from samplerkit.loading.bar import with_bar
from samplerkit.loading.stats import LoaderStats
from samplerkit.loading.steps import CountsSteps
from samplerkit.loading.units import BatchUnits
from samplerkit.order.layout import Layout

STEPS_LOOKED_AT = 64
"""Of how many steps, the latest ones, shares and efficiency are told."""


class Told(CountsSteps, ABC):
    """What a log and a terminal are told of a loader."""

    @property
    @abstractmethod
    def stats(self) -> LoaderStats:
        """Figures of the iteration under way, or of the last one."""

    def figures(self) -> dict[str, float]:
        """Gives the figures of this rank for a training log, by name; `samplerkit.sinks` hands them on.

        - `epoch`, `position`: where the state stands; `epoch_step`, `steps`: the steps of the epoch up to
          there, and in all; `epochs`: both in one number, for the axis of a curve.
        - `batches`, `seconds`, `first_wait`, `total_wait`, `longest_wait`, `waiting`, `skipped`: `stats`.
        - `ids_per_second`: samples handed out, pads included, since the iteration began.
        - `share/NAME`: the share of each part of a tree of datasets in the latest 64 steps.
        - `efficiency`: with `batches`, the part of the padded tokens of these steps that are tokens.
        - `dataset/NAME`: what the dataset tells, such as `files_read` and `bytes_read`.

        Nothing is read for them, and no other rank is asked.

        Example:
            >>> import samplerkit as sk
            >>> dataset = sk.TreeDataset({"web": range(60), "code": range(20)})
            >>> loader = sk.Loader(dataset, sk.SequentialSampler(), batch_size=8)
            >>> for batch in loader:
            ...     if loader.step == 9:
            ...         figures = loader.figures()
            >>> [figures[name] for name in ("epoch", "position", "epochs", "share/code")]
            [0, 72, 0.9, 0.16666666666666666]
        """
        stats = self.stats.to_dict()
        place, steps = self._cursor.place(), len(self)
        is_new = place.epoch != self._cursor.epoch  # the last batch was handed out
        step = 0 if is_new else self.epoch_step
        told: dict[str, float] = {"epoch": place.epoch, "position": place.position}
        told |= {"epoch_step": step, "steps": steps, "epochs": place.epoch + (step / steps if steps else 0.0)}
        told |= {name: value for name, value in stats.items() if name != "epoch"}
        latest = range(max(0, self.step - STEPS_LOOKED_AT), self.step)
        if not latest:
            return told
        ids = [self.ids(each) for each in latest]
        rate = stats["batches"] / stats["seconds"] if stats["seconds"] else 0.0
        told["ids_per_second"] = rate * sum(len(each) for each in ids) / len(latest)
        return {**told, **self._shares(np.concatenate(ids)), **self._efficiency(latest)}

    def progress(self) -> Iterator[Any]:
        """Iterates like `iter(loader)`, with a progress bar on the terminal of the first rank.

        It tells the epoch, the steps done and left, ids a second and the share of the time that the loop
        waited. Where there is no terminal, nothing is shown. The batches, and what a state says, are those of
        `iter(loader)`.

        Example:
            >>> import samplerkit as sk
            >>> loader = sk.Loader(range(6), sk.SequentialSampler(), batch_size=3)
            >>> [batch.tolist() for batch in loader.progress()]
            [[0, 1, 2], [3, 4, 5]]
        """
        return with_bar(self)

    def _shares(self, ids: np.ndarray[Any, Any]) -> dict[str, float]:
        layout = Layout.of(self._run.dataset)
        if not layout.parts or not ids.size:
            return {}
        parts = np.searchsorted(layout.part_starts, ids, side="right") - 1
        counts = np.bincount(parts, minlength=len(layout.parts)) / ids.size
        return {f"share/{name}": float(share) for name, share in zip(layout.parts, counts, strict=False)}

    def _efficiency(self, steps: range) -> dict[str, float]:
        reading = self._reading
        if not isinstance(reading.units, BatchUnits):
            return {}
        plan, delivery = reading.units.plan, reading.delivery
        numbers = [int(delivery.dealt(reading.shard, step)[0]) for step in steps]
        numbers = [number for number in numbers if plan.has(number)]
        return {"efficiency": float(plan.tokens(numbers).sum() / plan.padded_tokens(numbers).sum())}
