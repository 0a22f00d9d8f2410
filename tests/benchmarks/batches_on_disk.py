"""Batches of a whole set of a billion samples, whose lengths and table are files on disk.

    python -m tests.benchmarks.batches_on_disk FOLDER    # 6 GB there; --samples for fewer

Makes the lengths (2 GB) and the table (4 GB) once, in FOLDER. Both maps are touched, and then one rank of
eight starts, seeks and reads. Times are of this thread on the processor, by the clock in brackets. The floor
is one random place of the table, read by numpy in the same run: a sample costs one in any case.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap

import samplerkit as sk

BUDGET, RANKS, PARTS = 32_768, 8, 100
SOUGHT, READ = 40, 12_000


def write_lengths(path: Path, samples: int) -> None:
    """Web text in tokens, as in `tests.benchmarks.batches`, a part at a time."""
    lengths = open_memmap(path, "w+", np.uint16, (samples,))
    for part, begin in enumerate(range(0, samples, -(-samples // PARTS))):
        here = lengths[begin : begin + -(-samples // PARTS)]
        drawn = np.random.default_rng((0, part)).standard_normal(here.size, dtype=np.float32)
        here[:] = np.clip(np.exp(drawn * np.float32(1.02) + np.float32(5.65)), 8, 4096)
    lengths.flush()


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds of the processor, seconds by the clock, and what comes of it."""
    processor, clock = time.thread_time(), time.perf_counter()
    made = work()
    return time.thread_time() - processor, time.perf_counter() - clock, made


def said(name: str, *times: tuple[float, float, Any]) -> None:
    """Prints the median and the longest."""
    processor, clock = sorted(one[0] for one in times), sorted(one[1] for one in times)
    middle = len(times) // 2
    more = "" if len(times) == 1 else f"; longest {processor[-1] * 1e3:,.2f} ms ({clock[-1] * 1e3:,.2f})"
    print(f"{name}: {processor[middle] * 1e3:,.2f} ms ({clock[middle] * 1e3:,.2f}){more}", flush=True)


def main() -> None:
    """Prints a line for each figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples", type=int, default=10**9)
    chosen = parser.parse_args()
    os.environ["XDG_CACHE_HOME"] = str(chosen.folder / "cache")
    path = chosen.folder / f"lengths-{chosen.samples}.npy"
    if not path.exists():
        write_lengths(path, chosen.samples)

    def loader(rank: int = 0) -> sk.Loader:
        recipe = sk.TokenBatches(BUDGET, lengths=path, abreast=RANKS)
        return sk.Loader(
            range(chosen.samples), sk.RandomSampler(seed=7), batches=recipe, world=sk.World(RANKS, rank)
        )

    first = timed(lambda: loader().plan)
    said("imports, and the table if there is none", first)
    table = first[-1]._members._table
    touched = timed(lambda: (table[::1024].sum(), np.load(path, mmap_mode="r")[::2048].sum()))
    said("to touch each page of both maps", touched)
    starts = [timed(loader) for _ in range(5)]
    said("a loader", *starts)
    said("its first batch", *(timed(lambda made=made: made.ids(0)) for *_, made in starts))
    run = starts[0][-1]
    steps = np.random.default_rng(0).integers(0, len(run), SOUGHT).tolist()
    said("a seek", *(timed(lambda step=step: run.ids(step)) for step in steps))
    plan, ids = run.plan, np.random.default_rng(1).integers(0, chosen.samples, SOUGHT).tolist()
    said("batch_of", *(timed(lambda one=one: plan.batch_of(one)) for one in ids))
    print(f"a state: {len(json.dumps(run.state_dict(step=1000)))} bytes")
    read = run._reading.samples()
    places = np.random.default_rng(2).integers(0, chosen.samples, (64, 16_384))
    sum(samples.ids.size for _, samples in islice(read, READ // 2))
    for _ in range(3):
        seconds, _, count = timed(lambda: sum(samples.ids.size for _, samples in islice(read, READ)))
        print(f"steady: {seconds / count * 1e9:.0f} ns a sample, {READ} batches")
        seconds, *_ = timed(lambda: [table[some] for some in places])
        print(f"floor: {seconds / places.size * 1e9:.0f} ns a random place of the table", flush=True)
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"memory at most {usage / 1024:,.0f} MiB, of which the maps' pages are shared with other processes")


if __name__ == "__main__":
    main()
