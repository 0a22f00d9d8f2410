"""Benchmark of the device loader on the cpu: what a step costs, in units of the longer of load and step.

Run it with `python -m tests.benchmarks.device`; `--only` measures some tables. It prints Markdown, as in
docs/device.md. All parts of a row are measured in one run, in turns: machines are shared, and times do not
carry over.
"""

import argparse
import gc
import statistics
import time
import warnings
import weakref
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader

from samplerkit.loading.device.loader import DeviceLoader
from tests.benchmarks.device_cases import (
    WORK,
    Case,
    Loads,
    PublishedDesign,
    amounts_per_second,
    epoch_seconds,
    overlap_ratios,
    published_cases,
)
from tests.benchmarks.timing import print_header, print_row, side_by_side, versions

STEPS = 120

TABLES: dict[str, tuple[str, list[Case]]] = {
    "sleep": ("Loads and steps that sleep", published_cases("sleep")),
    "torch": ("Loads and steps of torch operations", published_cases("torch")),
    "python": (
        "Loads of pure Python, steps of torch dispatches",
        [Case("1.000", "Python", "dispatches", 0.02, 0.02)],
    ),
}

LOADERS: dict[str, tuple[int, Callable[[DataLoader], Iterable[torch.Tensor]]]] = {
    "plain, 0 workers": (0, lambda batches: batches),
    "plain, 2 workers": (2, lambda batches: batches),
    "published design": (0, lambda batches: PublishedDesign(batches, "cpu")),
    "DeviceLoader, 0 workers": (0, lambda batches: DeviceLoader(batches, "cpu")),
    "DeviceLoader, 2 workers": (2, lambda batches: DeviceLoader(batches, "cpu")),
}


FLOOR = "no loader: loads and steps in two processes"
"""What this machine needs for both at a time when nothing joins them: its cores share caches and memory."""


def floor_seconds(dataset: Loads, step: Callable[[Any], None]) -> float:
    """How long the loads and the steps of an epoch take side by side, in two processes."""

    def load() -> None:
        torch.set_num_threads(1)
        for index in range(STEPS):
            dataset[index]

    return side_by_side(load, lambda: epoch_seconds(range(STEPS), step))


def ratios(case: Case, rates: dict[str, float], repeats: int) -> dict[str, float]:
    """The medians of total / max(T_load, T_train), T_load and T_train each alone and without a worker."""
    dataset = Loads(case.kind, case.load * rates[case.kind], STEPS)

    def step(_: Any) -> None:
        WORK[case.step_kind](case.step * rates[case.step_kind])

    def total(workers: int, wrap: Callable[[DataLoader], Iterable[torch.Tensor]]) -> float:
        gc.collect()
        # The thread of the published design never ends; it waits for ever in front of its full queue.
        batches = wrap(DataLoader(dataset, 1, num_workers=workers, persistent_workers=workers > 0))
        if workers:
            # Starting them is no part of a step; the next section has what an epoch's start takes.
            epoch_seconds(batches, step)
        return epoch_seconds(batches, step)

    both = {name: partial(total, *how) for name, how in LOADERS.items()}
    both[FLOOR] = partial(floor_seconds, dataset, step)
    load, alone = partial(epoch_seconds, DataLoader(dataset, 1)), partial(epoch_seconds, range(STEPS), step)
    return overlap_ratios(load, alone, both, repeats)[2]


def print_ratios(title: str, cases: list[Case], rates: dict[str, float], repeats: int) -> None:
    """Measures some cases and prints their table."""
    print(f"\n### {title}\n")
    print_header("T_load / T_train", *LOADERS, FLOOR)
    for case in cases:
        print_row(case.name, *(f"{value:.3f}" for value in ratios(case, rates, repeats).values()))


class Uneven(torch.utils.data.Dataset):
    """Every sixth batch takes five times as long as the others; counts how many are alive at once."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.alive = self.peak = 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.025 if index % 6 == 5 else 0.005)
        batch = torch.full((64,), index)
        self.alive += 1
        self.peak = max(self.peak, self.alive)
        weakref.finalize(batch, self._released)
        return batch

    def _released(self) -> None:
        self.alive -= 1


def print_depths(repeats: int) -> None:
    """Memory against wait."""
    print("\n### Depth: memory against wait\n")
    print("Loads of 5 ms, every sixth of 25 ms; steps of 10 ms; 120 batches.\n")
    print_header("depth", "batches alive at the peak", "wait for a batch, mean", "longest")
    for depth in (1, 2, 4):
        rows = []
        for _ in range(repeats):
            dataset = Uneven(STEPS)
            loader = DeviceLoader(DataLoader(dataset, batch_size=None), "cpu", depth=depth)
            epoch_seconds(loader, lambda _: time.sleep(0.01))
            stats = loader.stats
            mean = (stats.total_wait - stats.first_wait) / (stats.batches - 1)
            rows.append((dataset.peak, mean * 1e3, stats.longest_wait * 1e3))
        peak, mean, longest = (statistics.median(column) for column in zip(*rows, strict=True))
        print_row(depth, f"{peak:.0f}", f"{mean:.2f} ms", f"{longest:.1f} ms")


def print_borders(repeats: int) -> None:
    """How long the loop waits for the first batch of an epoch."""
    print("\n### The first batch of an epoch\n")
    print("12 batches an epoch, loads and steps of 10 ms; epochs after the first.\n")
    print_header("loader", "wait")
    for name, workers, persistent, run_ahead in (
        ("plain, 2 workers", 2, False, None),
        ("plain, 2 persistent workers", 2, True, None),
        ("DeviceLoader, 0 workers", 0, False, False),
        ("DeviceLoader, 0 workers, run_ahead", 0, False, True),
        ("DeviceLoader, 2 persistent workers, run_ahead", 2, True, True),
    ):
        dataset = Loads("sleep", 0.01, 12)
        batches = DataLoader(dataset, 1, num_workers=workers, persistent_workers=persistent)
        loader = batches if run_ahead is None else DeviceLoader(batches, "cpu", run_ahead=run_ahead)
        waits = []
        for _ in range(3 * repeats + 1):
            start = time.perf_counter()
            for number, _ in enumerate(loader):
                if number == 0:
                    waits.append(time.perf_counter() - start)
                time.sleep(0.01)
        print_row(name, f"{statistics.median(waits[1:]) * 1e3:.1f} ms")
        if isinstance(loader, DeviceLoader):
            loader.close()


def main() -> None:
    """Measures and prints everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    everything = [*TABLES, "depth", "borders"]
    parser.add_argument("--only", nargs="+", choices=everything, default=everything)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", "This DataLoader will create")
    # One core for the load and one for the step, on a machine that may have no more.
    torch.set_num_threads(1)
    rates = amounts_per_second()
    measured = f"no accelerator used; {STEPS} steps, medians of {options.repeats}"
    print(f"{datetime.now(UTC):%Y-%m-%d}, {versions('torch', 'samplerkit')}, {measured}")
    for name, (title, cases) in TABLES.items():
        if name in options.only:
            print_ratios(title, cases, rates, options.repeats)
    if "depth" in options.only:
        print_depths(options.repeats)
    if "borders" in options.only:
        print_borders(options.repeats)


if __name__ == "__main__":
    main()
