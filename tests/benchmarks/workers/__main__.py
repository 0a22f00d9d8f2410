"""Benchmark of workers end to end: none, processes and threads, over five kinds of data, beside the peers.

Run it with `python -m tests.benchmarks.workers` where torch, torchdata, webdataset, spdl, Pillow and
pyarrow are installed; `--python Grain=PATH` and `--python MosaicML=PATH` name the interpreters of peers
that need more. It prints Markdown. Rounds take turns between all who read, each in a process of its own,
so that all meet the same noise; a figure is the median of the rounds. Ratios count: machines are shared.
Memory is that of the loop's process, beyond what it held when the dataset was made; what a forked worker
shares with it counts for both.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.benchmarks.peers.measuring import epoch_of
from tests.benchmarks.peers.memory import PeakGrowth
from tests.benchmarks.report import print_header, print_row
from tests.benchmarks.workers.data import SIZES
from tests.benchmarks.workers.peers import CASES

SECONDS = 300


def rows_in(batch: Any) -> int:
    """How many samples a batch has."""
    first = next(iter(batch.values())) if isinstance(batch, dict) else batch
    return len(first[0] if isinstance(first, list | tuple) else first)


def measured(name: str, folder: Path) -> None:
    """Measures one who reads, in its process; prints a line of JSON for each of the data."""
    wanted, make = CASES[name]
    for data in wanted:
        begin = make(data, folder)
        growth = PeakGrowth()
        found = epoch_of(begin, SIZES[data], rows_in)
        worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(json.dumps([data, found, growth.mib(), worker]), flush=True)


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PATH")
    parser.add_argument("--one", nargs=2, metavar=("WHO", "FOLDER"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        measured(asked.one[0], Path(asked.one[1]))
        return
    others = dict(one.split("=", 1) for one in asked.python)
    rates: dict[tuple[str, str], list[float]] = {}
    growths: dict[tuple[str, str], float] = {}
    peaks: dict[str, float] = {}
    problems: dict[str, str] = {}
    with TemporaryDirectory() as folder:
        made = "from pathlib import Path; from tests.benchmarks.workers.data import write"
        subprocess.run([sys.executable, "-c", f"{made}; write(Path({folder!r}))"], check=True)
        for _ in range(asked.rounds):
            for name in CASES:
                python = others.get(name.split(",")[0].split()[0], sys.executable)
                command = [python, "-m", "tests.benchmarks.workers", "--one", name, folder]
                try:
                    run = subprocess.run(
                        command, capture_output=True, text=True, check=False, timeout=SECONDS
                    )
                except subprocess.TimeoutExpired:
                    problems[name] = f"over {SECONDS} s"
                    continue
                if run.returncode:
                    problems[name] = run.stderr.strip().splitlines()[-1][:120] if run.stderr else "no word"
                for line in run.stdout.splitlines():
                    if line.startswith("["):
                        data, found, growth, worker = json.loads(line)
                        rates.setdefault((name, data), []).append(found["per_second"])
                        growths[name, data] = max(growths.get((name, data), 0), growth)
                        peaks[name] = max(peaks.get(name, 0), worker)
    print("Samples/s (times torch's 2 processes), growth of the peak of the loop's process.\n")
    print_header("who", *SIZES, "peak of its largest worker")
    for name in CASES:
        cells = []
        for data in SIZES:
            found, base = rates.get((name, data)), rates.get(("torch, 2 processes", data))
            median = statistics.median(found) if found else 0.0
            ratio = f" ({median / statistics.median(base):.2f})" if base else ""
            memory = f", {growths.get((name, data), 0):.0f} MiB"
            cells.append(f"{median:,.0f}{ratio}{memory}" if found else problems.get(name, ""))
        worker = peaks.get(name, 0)
        print_row(name, *cells, f"{worker:.0f} MiB" if worker else "")


if __name__ == "__main__":
    main()
