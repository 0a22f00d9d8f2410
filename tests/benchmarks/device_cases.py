"""The loads and training steps of the benchmark of the device loader, and the published design."""

from __future__ import annotations

import queue
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import truediv
from typing import Any

import torch

from tests.benchmarks.timing import in_turns, seconds

PUBLISHED = {
    1: (0.6390, 1.3863, 0.8858),
    2: (0.4363, 1.1073, 0.7982),
    3: (0.4501, 1.1226, 0.7707),
    4: (0.5326, 1.2118, 0.7777),
}
"""By batch size: seconds of loading, of sequential and of asynchronous steps, as they were published."""

SCALE = 1 / 40
"""Of the published times, so that an epoch takes seconds."""


@dataclass(frozen=True)
class Case:
    """How long a load and a step take, and what they do meanwhile.

    Args:
        kind: of `WORK`: what loading does.
        step_kind: likewise, what training does.
        load: seconds that a batch takes to load.
        step: seconds that a step takes.
    """

    name: str
    kind: str
    step_kind: str
    load: float
    step: float


def published_cases(kind: str) -> list[Case]:
    """The four ratios of the published table."""
    return [
        Case(f"{load / (total - load):.3f}", kind, kind, load * SCALE, (total - load) * SCALE)
        for load, total, _ in PUBLISHED.values()
    ]


ROWS = torch.rand(256, 256)
"""An operation on them takes about a millisecond, and lets go of the interpreter."""


def _sleep(amount: float) -> None:
    time.sleep(amount)


def _torch(amount: float) -> None:
    for _ in range(round(amount)):
        ROWS @ ROWS


def _python(amount: float) -> None:
    total = 0
    for number in range(int(amount)):
        total += number * number


def _dispatches(amount: float) -> None:
    total = torch.zeros(8)
    for _ in range(int(amount)):
        total = total + 1


WORK = {"sleep": _sleep, "torch": _torch, "Python": _python, "dispatches": _dispatches}


def amounts_per_second() -> dict[str, float]:
    """How much of each kind of work one thread does in a second on this machine, now."""
    amounts = {"sleep": 1.0}
    for kind, amount in (("torch", 40), ("Python", 100_000), ("dispatches", 3000)):
        taken = (seconds(lambda: WORK[kind](amount)) for _ in range(9))  # noqa: B023  # called at once
        amounts[kind] = amount / statistics.median(taken)
    return amounts


class Loads(torch.utils.data.Dataset):
    """Samples that take some work each.

    Args:
        kind: of `WORK`.
        amount: of it, for each sample.
        size: the number of samples.
    """

    def __init__(self, kind: str, amount: float, size: int) -> None:
        self.kind, self.amount, self.size = kind, amount, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        WORK[self.kind](self.amount)
        return torch.full((64,), index)


class PublishedDesign:
    """The published design, implemented from its description; on the cpu, without streams.

    A daemon thread reads the loader over and over, moves each batch and puts it into a bounded queue.
    """

    def __init__(self, loader: torch.utils.data.DataLoader, device: str, queue_size: int = 2) -> None:
        self.loader, self.device = loader, torch.device(device)
        self.side = None
        if self.device.type == "cuda":
            self.side = torch.cuda.Stream(self.device)
        self.queue: queue.Queue = queue.Queue(queue_size)
        self.remaining = 0
        threading.Thread(target=self._load, daemon=True).start()

    def _load(self) -> None:
        while True:
            for batch in self.loader:
                with torch.cuda.stream(self.side):
                    self.queue.put(batch.to(self.device, non_blocking=True))

    def __iter__(self) -> PublishedDesign:
        self.remaining = len(self.loader)
        return self

    def __next__(self) -> torch.Tensor:
        if self.remaining == 0:
            raise StopIteration
        self.remaining -= 1
        return self.queue.get()


def epoch_seconds(batches: Iterable[Any], step: Callable[[Any], object] = lambda _: None) -> float:
    """How long one epoch takes, until a GPU that is used has done its work."""

    def epoch() -> None:
        for batch in batches:
            step(batch)
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()

    return seconds(epoch)


Epoch = Callable[[], float]
"""Gives the seconds of an epoch."""


def overlap_ratios(
    load: Epoch, step: Epoch, both: Mapping[str, Epoch], repeats: int
) -> tuple[float, float, dict[str, float]]:
    """Measures epochs in turns.

    Args:
        load: one that only loads.
        step: one that only trains.
        both: those that do both, by name.
        repeats: how many rounds.

    Returns:
        The medians of load and step, and those of total / max(T_load, T_train) by name.
    """
    loads, steps, *totals = in_turns({"load": load, "step": step, **both}, repeats).values()
    longer = [*map(max, loads, steps)]
    ratios = (statistics.median(map(truediv, total, longer)) for total in totals)
    return statistics.median(loads), statistics.median(steps), dict(zip(both, ratios, strict=True))
