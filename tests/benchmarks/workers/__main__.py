"""Benchmark of workers end to end: none, processes and threads, over five kinds of data, against the peers.

Run it with `python -m tests.benchmarks.workers` where torch, torchdata, webdataset, spdl, Pillow and
pyarrow are installed; `--python Grain=PATH` and `--python MosaicML=PATH` name the interpreters of peers
that need more. It prints Markdown. The readers take turns in each round, each epoch in its own process, so
that all meet the same noise; a figure is the median of the rounds. Ratios count: machines are shared.
Memory is that of the loop's process, beyond what it held when the dataset was made; what a forked worker
shares with it counts for both.
"""

import argparse
import json
import resource
import statistics
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.benchmarks.peers.measuring import epoch_of
from tests.benchmarks.peers.memory import PeakGrowth
from tests.benchmarks.timing import answer_of, forked, print_header, print_row
from tests.benchmarks.workers.data import SIZES, write
from tests.benchmarks.workers.peers import CASES

SECONDS = 300


def rows_in(batch: Any) -> int:
    """How many samples a batch has."""
    first = next(iter(batch.values())) if isinstance(batch, dict) else batch
    return len(first[0] if isinstance(first, list | tuple) else first)


def measured(name: str, data: str, folder: Path) -> tuple[float, float, float]:
    """Samples a second of one who reads, in its process; MiB that it grows by, and of its largest worker."""
    begin = CASES[name][1](data, folder)
    growth = PeakGrowth()
    epoch = epoch_of(begin, SIZES[data], rows_in)
    worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return epoch["per_second"], growth.mib(), worker


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PATH")
    parser.add_argument("--one", nargs=3, metavar=("WHO", "DATA", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, data, folder = options.one
        print(json.dumps(measured(name, data, Path(folder))))
        return
    others = dict(one.split("=", 1) for one in options.python)
    rates: dict[tuple[str, str], list[float]] = {}
    growths: dict[tuple[str, str], float] = {}
    peaks: dict[str, float] = {}
    problems: dict[tuple[str, str], str] = {}
    with TemporaryDirectory() as place:
        forked(partial(write, Path(place)))
        for _ in range(options.rounds):
            for name, data in ((name, data) for name, (kinds, _) in CASES.items() for data in kinds):
                python = others.get(name.split(",")[0].split()[0], sys.executable)
                one = "--one", name, data, place
                try:
                    rate, growth, worker = answer_of("workers", *one, python=python, timeout=SECONDS)
                except RuntimeError as error:
                    problems[name, data] = str(error)[:120]
                    continue
                rates.setdefault((name, data), []).append(rate)
                growths[name, data] = max(growths.get((name, data), 0), growth)
                peaks[name] = max(peaks.get(name, 0), worker)
    print("Samples/s (times torch's 2 processes), growth of the peak of the loop's process.\n")
    print_header("who", *SIZES, "peak of its largest worker")
    for name in CASES:
        cells = []
        for data in SIZES:
            times, base = rates.get((name, data)), rates.get(("torch, 2 processes", data))
            median = statistics.median(times) if times else 0.0
            ratio = f" ({median / statistics.median(base):.2f})" if base else ""
            memory = f", {growths.get((name, data), 0):.0f} MiB"
            cells.append(f"{median:,.0f}{ratio}{memory}" if times else problems.get((name, data), ""))
        worker = peaks.get(name, 0)
        print_row(name, *cells, f"{worker:.0f} MiB" if worker else "")


if __name__ == "__main__":
    main()
