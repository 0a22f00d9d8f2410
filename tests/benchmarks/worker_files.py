"""Files that one rank reads in an epoch with 0, 2 and 4 workers: processes, also with affinity, or threads.

Run as `python -m tests.benchmarks.worker_files`. It counts, so a busy machine changes nothing. With `--cost`
it measures for small samples of Parquet, with and without `file_affinity`, in rounds that take turns, the
processor time of loop and workers; and how far workers overlap, over samples that take 1 ms of waiting.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import samplerkit as sk
from tests.benchmarks.report import print_header, print_row
from tests.benchmarks.timing import in_turns, seconds, timed
from tests.storage.formats.mds_shards import write

FILES, ROWS, BATCH = 32, 256, 32

MANY = 2048
"""Rows of a row group whose cost is measured."""

COSTS: dict[str, dict[str, Any]] = {
    "0 workers": {},
    "2 processes": {"num_workers": 2},
    "2 with affinity": {"num_workers": 2, "file_affinity": True},
}

HOW: dict[str, dict[str, Any]] = {
    "processes": {},
    "with affinity": {"file_affinity": True},
    "threads": {"workers": "threads"},
}


def parquet(folder: Path) -> Callable[[], Any]:
    """32 row groups in 4 files."""
    for number in range(4):
        rows = range(number * 8 * ROWS, (number + 1) * 8 * ROWS)
        pq.write_table(pa.table({"id": rows}), folder / f"{number}.parquet", row_group_size=ROWS)
    return lambda: sk.ParquetDataset(f"{folder}/*.parquet", max_chunks=8)


def tar(folder: Path) -> Callable[[], Any]:
    """32 shards, opened one by one, as those that lie elsewhere are."""
    with sk.TarWriter(f"{folder}/%02d.tar", samples_per_shard=ROWS) as writer:
        for number in range(FILES * ROWS):
            writer.write({"__key__": f"{number}", "id": str(number)})
    return lambda: sk.TarDataset(f"{folder}/*.tar", lengths=[ROWS] * FILES, cache=folder)


def mds(folder: Path) -> Callable[[], Any]:
    """32 shards of numbers and texts."""
    write(folder, [(number * ROWS, (number + 1) * ROWS) for number in range(FILES)])
    return lambda: sk.MdsDataset(folder, max_chunks=8)


def read(make: Callable[[], Any], mode: str, workers: int, how: dict[str, Any]) -> int:
    """Reads an epoch; gives how many files were read by all workers."""
    options = {"batch_size": BATCH, "num_workers": workers, "collate_fn": list, **how}
    with make() as dataset:
        assert epoch(dataset, mode, ROWS, **options) == FILES * ROWS // BATCH
        return int(dataset.stats.files_read)


def epoch(dataset: Any, mode: str, block: int, **options: Any) -> int:
    """Reads an epoch; gives how many batches it has."""
    blocks = {"partial_size": 3 * block} if mode == "partial" else {}
    sampler = sk.RandomSampler(shuffle=mode, seed=7, **blocks)
    with sk.Loader(dataset, sampler, **options) as loader:
        return sum(1 for _ in loader)


def cost(made: Callable[[], Any], mode: str, **options: Any) -> tuple[float, float]:
    """Reads an epoch; gives the processor time, and that by the clock, in us a batch."""
    with made() as dataset:
        number, used = timed(partial(epoch, dataset, mode, MANY, **options))
    return used.processor / number * 1e6, used.clock / number * 1e6


def costs() -> None:
    """Measures, and prints medians."""
    print_header("batches", "order", "batch", *COSTS)
    with TemporaryDirectory() as place:
        for number in range(4):
            ids = np.arange(number * 8 * MANY, (number + 1) * 8 * MANY)
            columns = {"id": ids, "x": ids * 0.5, "text": [f"{one:>50}" for one in ids.tolist()]}
            pq.write_table(pa.table(columns), f"{place}/{number}.parquet", row_group_size=MANY)
        for batches, mode, batch in itertools.product(
            ("samples", "columns"), ("files", "partial"), (32, 256)
        ):
            made = partial(sk.ParquetDataset, f"{place}/*.parquet", batches=batches, max_chunks=8)
            found = in_turns(
                {how: partial(cost, made, mode, batch_size=batch, **more) for how, more in COSTS.items()}, 3
            )
            medians = [tuple(map(statistics.median, zip(*each, strict=True))) for each in found.values()]
            shown = [f"{processor:,.0f} ({clock:,.0f})" for processor, clock in medians]
            print_row(batches, mode.upper(), batch, *shown)


class Waiting:
    """16 files of 8 batches; each sample takes a millisecond, and none of the processor."""

    layout = sk.Layout([8 * BATCH] * 16)

    def __len__(self) -> int:
        return len(self.layout)

    def __getitem__(self, index: int) -> int:
        time.sleep(0.001)
        return index


def overlaps() -> None:
    """Measures how long an epoch takes where reading is nothing but waiting, and prints it."""
    print()
    print_header("order", "`prefetch_factor`", "2 processes", "2 with affinity")
    for mode, ahead in (("files", 2), ("files", 4), ("files", 8), ("partial", 2), ("partial", 8)):
        options = {"batch_size": BATCH, "num_workers": 2, "prefetch_factor": ahead}
        works = (
            partial(epoch, Waiting(), mode, ROWS, file_affinity=affinity, **options)
            for affinity in (False, True)
        )
        print_row(mode.upper(), ahead, *(f"{seconds(work):.1f}" for work in works))


def main() -> None:
    """Counts or measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cost", action="store_true", help="measure processor time")
    if parser.parse_args().cost:
        costs()
        overlaps()
        return
    print_header("of 32", "order", "0 workers", *(f"{w} {how}" for how in HOW for w in (2, 4)))
    for some in (parquet, tar, mds):
        with TemporaryDirectory() as place:
            make = some(Path(place))
            for mode in ("files", "partial"):
                counts = [read(make, mode, 0, {})]
                counts += [read(make, mode, w, how) for how in HOW.values() for w in (2, 4)]
                print_row(some.__name__, mode.upper(), *counts)


if __name__ == "__main__":
    main()
