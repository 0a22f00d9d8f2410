"""JSON lines beside Hugging Face's `datasets.load_dataset("json")` and a plain loop, on one file.

    python -m venv peers && peers/bin/pip install -e ".[jsonl]" datasets
    peers/bin/python -m tests.benchmarks.jsonl [--megabytes 1000] [--folder FOLDER]

Each reader is a process of its own with empty caches; the file itself is in the page cache. All hand out
batches of 64 dicts in a global random order to one loop. Printed are the seconds from the first call to the
first batch, and in another process that finds the caches; what was written to disk for it; and the samples a
second after that, with 0 and with 2 workers. Then how fast lines are found. Seconds of CPU are beside them:
others may use the machine.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch

import samplerkit as sk
from samplerkit.storage.files.lines import lines_of
from tests.benchmarks.report import print_header, print_row, versions
from tests.benchmarks.timing import answer_of, timed

BATCH, SECONDS = 64, 5.0
ROWS = {"texts": 150, "tiny rows": 8}
"""Words of a line, about."""


def written(path: Path, megabytes: int, words: int) -> int:
    """Writes a file of texts, and gives its number of lines."""
    rng = random.Random(0)
    known = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 10))) for _ in range(20_000)]
    number, size = 0, 0
    with path.open("w") as file:
        while size < megabytes * 1_000_000:
            text = " ".join(rng.choices(known, k=rng.randint(words // 2, 2 * words)))
            size += file.write(json.dumps({"id": number, "text": text}) + "\n")
            number += 1
    return number


class Offsets(torch.utils.data.Dataset[Any]):
    """What is written first by many: where each line begins, and a seek for each sample."""

    def __init__(self, path: str) -> None:
        self._path, self._file, self._starts = path, None, [0]
        with open(path, "rb") as file:  # noqa: PTH123
            for line in file:
                self._starts.append(self._starts[-1] + len(line))

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, index: int) -> Any:
        # A file that a worker has from its parent would share its position.
        if self._file is None or self._file[0] != os.getpid():
            self._file = (os.getpid(), open(self._path, "rb"))  # noqa: PTH123, SIM115
        self._file[1].seek(self._starts[index])
        return json.loads(self._file[1].readline())


def _torch_loader(dataset: Any, workers: int) -> Any:
    options = {"batch_size": BATCH, "shuffle": True, "collate_fn": list, "num_workers": workers}
    return torch.utils.data.DataLoader(dataset, **options)


def _plain(path: str, workers: int) -> Any:
    return _torch_loader(Offsets(path), workers)


def _hugging_face(path: str, workers: int) -> Any:
    datasets = importlib.import_module("datasets")
    datasets.disable_progress_bars()
    return _torch_loader(datasets.load_dataset("json", data_files=path, split="train"), workers)


def _ours(path: str, workers: int, kind: str = "processes") -> Any:
    dataset = sk.JsonlDataset(path, progress=False)
    options = {"batch_size": BATCH, "collate_fn": list, "num_workers": workers, "workers": kind}
    return sk.Loader(dataset, sk.RandomSampler(shuffle="global", seed=1), world=sk.World(1, 0), **options)


READERS: dict[str, Callable[[str, int], Any]] = {
    "plain loop": _plain,
    "datasets": _hugging_face,
    "JsonlDataset": _ours,
    "JsonlDataset, by threads": partial(_ours, kind="threads"),
}


def measured(reader: str, path: str, workers: int) -> dict[str, float]:
    """What one process does: to the first batch, and for some seconds after that; CPU of its own threads."""
    _ = sk.Loader, sk.JsonlDataset, sk.RandomSampler  # imports are not what is measured
    if reader == "datasets":
        importlib.import_module("datasets")
    begin, used = time.perf_counter(), time.process_time()
    batches: Iterator[Any] = iter(READERS[reader](path, workers))
    next(batches)
    first = {"first": time.perf_counter() - begin, "cpu": time.process_time() - used}
    for _batch in islice(batches, 50):  # workers have begun
        pass
    begin, used, samples = time.perf_counter(), time.process_time(), 0
    for batch in batches:
        samples += len(batch)
        if time.perf_counter() - begin > SECONDS:
            break
    seconds, spent = time.perf_counter() - begin, time.process_time() - used
    return first | {"rate": samples / seconds, "cost": spent / samples * 1e6}


def in_a_process(reader: str, path: Path, workers: int, cache: Path) -> dict[str, float]:
    """Measures in a process of its own, whose caches are in a folder."""
    places = {"XDG_CACHE_HOME": str(cache), "HF_HOME": str(cache / "hf"), "HF_HUB_OFFLINE": "1"}
    found: dict[str, float] = answer_of("jsonl", "--measure", reader, path, workers, **places)
    return found


def table(path: Path, kind: str, number: int, folder: Path) -> None:
    """Prints the rows of one file."""
    size = path.stat().st_size
    print(f"\n{kind}: {number:,} lines, {size / 1e6:,.0f} MB\n")
    first = "s to the first batch (CPU)", "the next time", "MB on disk"
    print_header("who", *first, "samples/s, 0 workers (CPU)", "2")
    for reader in READERS:
        with tempfile.TemporaryDirectory(dir=folder) as cache:
            path.read_bytes()  # into the page cache
            cold = in_a_process(reader, path, 0, Path(cache))
            disk = sum(file.stat().st_size for file in Path(cache).rglob("*") if file.is_file())
            warm = in_a_process(reader, path, 2, Path(cache))
            again = in_a_process(reader, path, 0, Path(cache))
        starts = (f"{of['first']:.2f} ({of['cpu']:.2f})" for of in (cold, again))
        rates = f"{cold['rate']:,.0f} ({cold['cost']:.1f} us)", f"{warm['rate']:,.0f}"
        print_row(reader, *starts, f"{disk / 1e6:,.1f}", *rates)
    used = [timed(lambda: lines_of(str(path), size))[1] for _ in range(5)]
    wall, cpu = (size / min(each) / 1e9 for each in zip(*used, strict=True))
    print(f"\nlines are found at {wall:.2f} GB/s, {cpu:.2f} a second of CPU")


def main() -> None:
    """Measures each reader on each file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    said = parser.parse_args()
    if said.measure:
        reader, path, workers = said.measure
        print(json.dumps(measured(reader, path, int(workers))))
        return
    packages = versions("samplerkit", "torch", "numpy", "orjson", "datasets", "pyarrow")
    print(f"{packages}; load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(dir=said.folder) as folder:
        for kind, words in ROWS.items():
            path = Path(folder, f"{words}.jsonl")
            table(path, kind, written(path, said.megabytes, words), Path(folder))
            path.unlink()


if __name__ == "__main__":
    main()
