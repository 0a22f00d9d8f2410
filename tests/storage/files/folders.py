"""Folders of npz files for tests, and readers that record their calls."""

import threading
import time
from pathlib import Path

import numpy as np


def write_npz(folder: Path, sizes, name="{:03}.npz"):
    """Writes a file of arrays for each size: `id` counts through all files, `row` within each."""
    folder.mkdir(parents=True, exist_ok=True)
    first = 0
    for number, size in enumerate(sizes):
        ids = np.arange(first, first + size)
        np.savez(folder / name.format(number), id=ids, row=np.arange(size), pair=np.stack([ids, -ids], 1))
        first += size
    return [folder / name.format(number) for number in range(len(sizes))]


def samples_of(sizes):
    """The samples of these files, read directly."""
    rows = [row for size in sizes for row in range(size)]
    return [(number, row, [number, -number]) for number, row in enumerate(rows)]


def plain(sample):
    """A sample of these files in plain Python."""
    return (int(sample["id"]), int(sample["row"]), sample["pair"].tolist())


def received(loader):
    """The samples of an epoch, batch by batch."""
    return [
        [plain({key: column[row] for key, column in batch.items()}) for row in range(len(batch["id"]))]
        for batch in loader
    ]


class Watching:
    """A reader of npz files that keeps a ledger of what it read, may be slow, and may fail."""

    def __init__(self, seconds=0.0):
        self.seconds = seconds
        self.read: list[str] = []
        self.at_a_time = 0
        self.failing: dict[str, BaseException] = {}
        self._now = 0
        self._lock = threading.Lock()

    def __call__(self, path):
        with self._lock:
            self.read.append(Path(path).name)
            self._now += 1
            self.at_a_time = max(self.at_a_time, self._now)
        try:
            time.sleep(self.seconds)
            if Path(path).name in self.failing:
                raise self.failing[Path(path).name]
            with np.load(path) as arrays:
                return dict(arrays)
        finally:
            with self._lock:
                self._now -= 1


def reading_threads():
    """The threads that read ahead in this process."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("samplerkit-read-ahead")]
