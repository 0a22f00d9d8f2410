"""Files that one rank reads in an epoch with 0, 2 and 4 workers, that are processes or threads.

Run as `python -m tests.benchmarks.worker_files`. It counts, so a busy machine changes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import samplerkit as sk
from tests.storage.formats.mds_shards import write

FILES, ROWS, BATCH = 32, 256, 32


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


def read(make: Callable[[], Any], mode: str, workers: int, how: Any) -> int:
    """Reads an epoch; gives how many files were read by all workers."""
    sampler = sk.RandomSampler(
        shuffle=mode, seed=7, **({"partial_size": 3 * ROWS} if mode == "partial" else {})
    )
    options = {"num_workers": workers, "collate_fn": list, **({"workers": how} if workers else {})}
    with make() as dataset, sk.Loader(dataset, sampler, batch_size=BATCH, **options) as loader:
        assert sum(len(batch) for batch in loader) == FILES * ROWS
        return int(dataset.stats.files_read)


def main() -> None:
    """Counts, and prints."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print("| of 32 | order | 0 workers | 2 processes | 4 processes | 2 threads | 4 threads |")
    print("|---|---|---|---|---|---|---|")
    for some in (parquet, tar, mds):
        with TemporaryDirectory() as place:
            make = some(Path(place))
            for mode in ("files", "partial"):
                counts = [read(make, mode, 0, None)]
                counts += [read(make, mode, w, how) for how in ("processes", "threads") for w in (2, 4)]
                print(f"| {some.__name__} | {mode.upper()} |", " | ".join(map(str, counts)), "|")


if __name__ == "__main__":
    main()
