"""Every kind of reading against its floor: the least code that does the same work without samplerkit.

Run it with `python -m tests.benchmarks.floor [--rounds 5] [--only TEXT]` (five minutes). It prints Markdown,
as in docs/performance.md, the worst ratio first. The contestants of a row take turns; shown are medians over
the rounds, and the median of the ratios of a round. Memory is what a process that was forked for it has more
at its peak, after a quarter of a second of reading.
"""

import argparse
import os
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory

import numpy as np
import torch

from tests.benchmarks.floor_files import rows
from tests.benchmarks.floor_rows import Make, Reader, Row
from tests.benchmarks.peers import page
from tests.benchmarks.peers.memory import PeakGrowth
from tests.benchmarks.timing import Used, forked

TURN = 0.12
"""Seconds of a contestant in a round."""


@dataclass(frozen=True)
class Measured:
    """A row with its figures: medians, by contestant.

    Args:
        row: what was read.
        ours: microseconds an item of the clock and of the processor.
        floor: likewise.
        peer: likewise, where there is one.
        ratio: to the floor: of the processor's time, or of the clock where other threads or processes read.
        memory: MiB, ours and the floor's.
        kind: of time that is compared.
    """

    row: Row
    ours: Used
    floor: Used
    peer: Used | None
    ratio: float
    memory: tuple[float, float]
    kind: str


def turn(read: Reader) -> Used:
    """Reads for a turn; returns the microseconds per item."""
    start, start_of_processor, items = time.perf_counter(), time.process_time(), 0
    while (clock := time.perf_counter() - start) < TURN:
        items += next(read)
    return Used(1e6 * clock / items, 1e6 * (time.process_time() - start_of_processor) / items)


def medians(times: Sequence[Used]) -> Used:
    """The median of each figure."""
    return Used(*(statistics.median(getattr(one, name) for one in times) for name in ("clock", "processor")))


def memory_of(make: Make) -> float:
    """MiB at the peak of a process of its own that reads for some turns."""

    def work() -> float:
        growth = PeakGrowth()
        read = make()
        for _ in range(2):
            turn(read)
        return growth.mib()

    return forked(work)


def measured(row: Row, rounds: int) -> Measured:
    """Measures a row."""
    makes = [row.ours, row.floor, *([] if row.peer is None else [row.peer])]
    readers = [make() for make in makes]
    for read in readers:
        next(read)
    rows = [[turn(read) for read in readers] for _ in range(rounds)]
    ours, floor, *peer = (medians(column) for column in zip(*rows, strict=True))
    # On a busy machine the clock includes other processes; but a worker's time is not this process's.
    is_alone = not any(word in row.name for word in ("thread", "device", "worker"))
    kind = "processor" if is_alone else "clock"
    ratio = statistics.median(getattr(one[0], kind) / getattr(one[1], kind) for one in rows)
    del readers
    # What has threads, workers or an environment of LMDB open is not forked.
    is_forked = is_alone and "LMDB" not in row.name
    memory = (memory_of(row.ours), memory_of(row.floor)) if is_forked else (float("nan"),) * 2
    return Measured(row, ours, floor, peer[0] if peer else None, ratio, memory, kind)


def shown(value: float) -> str:
    """Three digits of a number of microseconds or MiB."""
    return "-" if np.isnan(value) else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(measurements: Iterable[Measured]) -> str:
    """The table, the worst ratio first."""
    lines = []
    for result in sorted(measurements, key=lambda each: -each.ratio):
        row = result.row
        peer = ["", ""]
        if result.peer is not None:
            times = getattr(result.ours, result.kind) / getattr(result.peer, result.kind)
            peer = [f"{row.who}: {shown(getattr(result.peer, result.kind))}", f"{times:.2f}"]
        why = row.reason if result.ratio > row.target else ""
        floor = f"{row.least}: {shown(getattr(result.floor, result.kind))}"
        ours = [f"{row.name}, {row.unit}", shown(result.ours.clock), shown(result.ours.processor)]
        memory = f"{shown(result.memory[0])}, {shown(result.memory[1])}"
        lines.append([*ours, floor, f"{result.ratio:.2f}", str(row.target), *peer, memory, why])
    titles = ["", "us", "processor", "floor", "times that", "wanted", "peer", "times that"]
    return page.table([*titles, "MiB, floor's", "why"], lines)


def main() -> None:
    """Measures all rows, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="rows whose name has this text")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    measurements = []
    with TemporaryDirectory() as folder:
        for row in rows(folder):
            if options.only in row.name:
                measurements.append(measured(row, options.rounds))
                print(f"{row.name}: {measurements[-1].ratio:.2f}", file=sys.stderr, flush=True)
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(
        f"Python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}, "
        f"{os.cpu_count()} cores, load {load}; {options.rounds} rounds\n\n{table(measurements)}"
    )


if __name__ == "__main__":
    main()
