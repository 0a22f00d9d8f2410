"""Benchmark of files with a reader: reading ahead, openings and memory with workers, and which file goes.

Run it with `python -m tests.benchmarks.files`; `--quick` takes a quarter of the files. It prints Markdown, as
it stands in docs/files.md. Reading and training are timed in the same run, so that their ratios carry over.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch.utils.data

import samplerkit as sk
from samplerkit.storage.files.dataset import FileDataset
from samplerkit.storage.files.readers import NpzReader
from tests.benchmarks.report import print_header, print_row, versions
from tests.benchmarks.timing import seconds, side_by_side

ROWS, BATCH, RANKS = 256, 32, 4
STEPS_PER_FILE = ROWS // BATCH

Reader = Callable[[str], Any]


class Sleeping:
    """A reader that takes a given time, as one that waits for a network does."""

    def __init__(self, pause: float) -> None:
        self.pause = pause

    def __call__(self, path: str) -> dict[str, Any]:
        time.sleep(self.pause)
        return {"x": np.zeros((ROWS, 16), dtype=np.float32)}


class Told:
    """A dataset that writes down, for each process that reads, what it has done so far."""

    def __init__(self, dataset: FileDataset, folder: Path) -> None:
        self._dataset = dataset
        self._folder = folder
        self.layout = dataset.layout
        self.expect = dataset.expect

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitems__(self, ids: Iterable[int]) -> list[Any]:
        samples = self._dataset.__getitems__(ids)
        stats = self._dataset.stats
        figures = {"files": stats.files_read, "bytes": stats.peak_bytes, "in memory": stats.peak_files}
        (self._folder / str(os.getpid())).write_text(json.dumps(figures), encoding="utf-8")
        return samples


def write_files(folder: Path, number: int, width: int, *, compressed: bool) -> list[str]:
    """Writes npz files of random small integers, which compress to about a fifth."""
    folder.mkdir()
    generator = np.random.default_rng(7)
    paths = [str(folder / f"{file:03}.npz") for file in range(number)]
    for file, path in enumerate(paths):
        x = generator.integers(0, 3, (ROWS, width), dtype=np.uint8)
        ids = np.arange(file * ROWS, (file + 1) * ROWS)
        (np.savez_compressed if compressed else np.savez)(path, x=x, id=ids)
    return paths


def epoch_seconds(dataset: FileDataset, step: float) -> float:
    """How long an epoch of FILES takes, with a training step that takes `step` seconds."""
    with dataset:
        loader = sk.Loader(dataset, sk.RandomSampler(shuffle="files", seed=7), batch_size=BATCH)
        begun = time.perf_counter()
        for _ in loader:
            time.sleep(step)
        return time.perf_counter() - begun


def overlap(paths: list[str], reader: Reader, ratio: float) -> dict[str, float]:
    """Seconds of reading alone, of training alone, and of both: without and with reading ahead, and apart.

    Args:
        paths: the files.
        reader: reads one.
        ratio: training over reading.
    """
    lengths = [ROWS] * len(paths)
    begun = time.perf_counter()
    for path in paths:
        reader(path)
    read = time.perf_counter() - begun
    step = ratio * read / (len(paths) * STEPS_PER_FILE)
    # Training alone: the same loop over files that are in memory already.
    in_memory = {path: reader(path) for path in paths}
    train = epoch_seconds(FileDataset(paths, in_memory.__getitem__, lengths), step)
    after = epoch_seconds(FileDataset(paths, reader, lengths, read_ahead=0), step)
    ahead = epoch_seconds(FileDataset(paths, reader, lengths), step)
    training = FileDataset(paths, in_memory.__getitem__, lengths)
    apart = side_by_side(lambda: [reader(path) for path in paths], lambda: epoch_seconds(training, step))
    return {"read": read, "train": train, "one after the other": after, "ahead": ahead, "apart": apart}


def print_overlap(folder: Path, number: int, repeats: int) -> None:
    """Prints what reading ahead gains."""
    compressed = write_files(folder / "compressed", number, 32 << 10, compressed=True)
    readers: dict[str, Reader] = {"waiting 50 ms": Sleeping(0.05), "npz, compressed": NpzReader()}
    print(f"\n{number} files of {STEPS_PER_FILE} steps; seconds an epoch, medians of {repeats}.\n")
    taken = "read", "train", "one after the other", "read ahead", "two processes"
    print_header("reader", *taken, "over the larger", "two processes over it")
    for name, reader in readers.items():
        for ratio in (0.5, 1.0, 2.0):
            runs = [overlap(compressed, reader, ratio) for _ in range(repeats)]
            # Within a run, so that the noise of the machine meets both sides.
            over = [
                statistics.median(run[key] / max(run["read"], run["train"]) for run in runs)
                for key in ("ahead", "apart")
            ]
            figures = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            shown = (f"{value:.2f}" for value in figures.values())
            print_row(name, *shown, f"{over[0]:.3f}", f"{over[1]:.3f}")


def of_workers(paths: list[str], sampler: sk.Sampler, workers: int) -> dict[str, int]:
    """Figures of an epoch of all ranks, one after another."""
    files = most_bytes = most_files = 0
    for rank in range(RANKS):
        with tempfile.TemporaryDirectory() as folder:
            dataset = FileDataset(paths, "npz", [ROWS] * len(paths))
            told = Told(dataset, Path(folder))
            world = sk.World(RANKS, rank)
            with sk.Loader(told, sampler, batch_size=BATCH, num_workers=workers, world=world) as loader:
                for _ in loader:
                    pass
            dataset.close()
            figures = [json.loads(path.read_text(encoding="utf-8")) for path in Path(folder).iterdir()]
        files += sum(figure["files"] for figure in figures)
        most_bytes = max(most_bytes, sum(figure["bytes"] for figure in figures))
        most_files = max(most_files, sum(figure["in memory"] for figure in figures))
    return {"files": files, "bytes": most_bytes, "in memory": most_files}


ORDERS = {
    "FILES": {"shuffle": "files"},
    "PARTIAL, 1.5 files": {"shuffle": "partial", "partial_size": ROWS * 3 // 2},
    "PARTIAL, 0.6 files, two pools": {"shuffle": "partial", "partial_size": ROWS * 6 // 10, "pools": 2},
}


def print_workers(paths: list[str]) -> None:
    """Prints what workers cost."""
    print(f"\n{len(paths)} files, {RANKS} ranks, max_files=4, sums over the ranks; memory of one rank.\n")
    print_header("order", "workers", "files read", "files in memory", "MiB in memory")
    for name, arguments in ORDERS.items():
        for workers in (0, 2, 4):
            found = of_workers(paths, sk.DistributedSampler(**arguments, seed=7), workers)
            mib = found["bytes"] / (1 << 20)
            print_row(name, workers, found["files"], found["in memory"], f"{mib:.1f}")


def files_read(paths: list[str], sampler: sk.Sampler, max_files: int, *, is_told: bool) -> int:
    """Files that one rank reads in an epoch, told what comes next or not."""
    dataset = FileDataset(paths, "npz", [ROWS] * len(paths), max_files=max_files, read_ahead=0)
    batches = list(sampler.order(dataset).chunks(BATCH))
    with dataset:
        if is_told:
            dataset.expect(iter(batches))
        for ids in batches:
            dataset.__getitems__(ids)
        return dataset.stats.files_read


def print_policies(paths: list[str]) -> None:
    """Prints how often files are read, by which file goes."""
    print(
        f"\n{len(paths)} files, 1 rank, files read an epoch: told what comes next, and least recently used.\n"
    )
    print_header("order", "max_files", "told", "least recently used")
    orders = {**ORDERS, "PARTIAL, 5.5 files": {"shuffle": "partial", "partial_size": ROWS * 11 // 2}}
    for name, arguments in orders.items():
        for max_files in (2, 4, 8):
            sampler = sk.RandomSampler(**arguments, seed=7)
            told, lru = (files_read(paths, sampler, max_files, is_told=is_told) for is_told in (True, False))
            print_row(name, max_files, told, lru)


def print_rate(folder: Path) -> None:
    """Prints how fast a loader hands out small samples from files in memory, as samples and as columns."""
    paths = write_files(folder / "small", 4, 16, compressed=False)
    print("\nA loader over 4 files of two small arrays in memory, batches of 256, 0 workers.\n")
    print_header("batches", "k samples/s")
    for as_columns in (False, True):
        dataset = FileDataset(paths, "npz", [ROWS] * 4, as_columns=as_columns)
        collate = torch.utils.data.default_convert if as_columns else None
        with dataset, sk.Loader(dataset, sk.RandomSampler(), batch_size=256, collate_fn=collate) as loader:
            taken = statistics.median(seconds(partial(deque, loader, 0)) for _ in range(50))
        how = "as columns" if as_columns else "samples, collated by torch"
        print_row(how, f"{4 * ROWS / taken / 1e3:.0f}")


def main() -> None:
    """Prints all tables, or one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the files, one repeat")
    parser.add_argument("--only", choices=["workers", "policies", "rate", "overlap"], help="one table")
    arguments = parser.parse_args()
    quick, only = arguments.quick, arguments.only
    print(f"{versions('numpy')}, {os.cpu_count()} cores")
    warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores, on purpose
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = write_files(folder / "plain", 16 if quick else 64, 1 << 10, compressed=False)
        tables = {
            "workers": lambda: print_workers(paths),
            "policies": lambda: print_policies(paths),
            "rate": lambda: print_rate(folder),
            "overlap": lambda: print_overlap(folder, 12 if quick else 48, 1 if quick else 3),
        }
        for table, print_table in tables.items():
            if only in {None, table}:
                print_table()


if __name__ == "__main__":
    main()
