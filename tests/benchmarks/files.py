"""Benchmark of files with a reader: what reading ahead hides of the reading behind the training.

Run it with `python -m tests.benchmarks.files`; `--quick` takes a quarter of the files. It prints Markdown, as
it stands in docs/files.md. Reading and training are timed in the same run, so that their ratios carry over.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import samplerkit as sk
from samplerkit.storage.files.dataset import FileDataset
from samplerkit.storage.files.readers import NpzReader
from tests.benchmarks.report import print_header, print_row, versions
from tests.benchmarks.timing import side_by_side

ROWS, BATCH = 256, 32
STEPS_PER_FILE = ROWS // BATCH

Reader = Callable[[str], Any]


def sleeping(_: str) -> dict[str, Any]:
    """A reader that takes 50 ms, as one that waits for a network does."""
    time.sleep(0.05)
    return {"x": np.zeros((ROWS, 16), dtype=np.float32)}


def write_files(folder: Path, number: int) -> list[str]:
    """Writes npz files of random small integers, which compress to about a fifth."""
    generator = np.random.default_rng(7)
    paths = [str(folder / f"{file:03}.npz") for file in range(number)]
    for file, path in enumerate(paths):
        x = generator.integers(0, 3, (ROWS, 32 << 10), dtype=np.uint8)
        np.savez_compressed(path, x=x, id=np.arange(file * ROWS, (file + 1) * ROWS))
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


def main() -> None:
    """Prints what reading ahead gains."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the files, one repeat")
    number, repeats = (12, 1) if parser.parse_args().quick else (48, 3)
    print(f"{versions('numpy')}, {os.cpu_count()} cores")
    print(f"\n{number} files of {STEPS_PER_FILE} steps; seconds an epoch, medians of {repeats}.\n")
    taken = "read", "train", "one after the other", "read ahead", "two processes"
    print_header("reader", *taken, "over the larger", "two processes over it")
    readers: dict[str, Reader] = {"waiting 50 ms": sleeping, "npz, compressed": NpzReader()}
    with tempfile.TemporaryDirectory() as folder:
        paths = write_files(Path(folder), number)
        for name, reader in readers.items():
            for ratio in (0.5, 1.0, 2.0):
                runs = [overlap(paths, reader, ratio) for _ in range(repeats)]
                # Within a run, so that the noise of the machine meets both sides.
                over = [
                    statistics.median(run[key] / max(run["read"], run["train"]) for run in runs)
                    for key in ("ahead", "apart")
                ]
                figures = [statistics.median(run[key] for run in runs) for key in runs[0]]
                print_row(name, *(f"{value:.2f}" for value in figures), *(f"{each:.3f}" for each in over))


if __name__ == "__main__":
    main()
