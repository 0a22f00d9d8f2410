"""Samples from files on this machine, shuffled: LMDB's and litData's own loaders beside ours, same files.

    python -m venv peers
    peers/bin/pip install torch==2.13.0 litdata==0.2.76 zstd -e '.[lmdb,litdata]'
    peers/bin/python -m tests.benchmarks.formats_peers

Each reader is a process of its own, and all take turns, each giving the same samples, after a look at the
files; samples a second of CPU time of the process and its workers, and of time on the clock, medians; bytes
are what the process has asked the system for, without what is mapped into memory. It prints Markdown. Ratios
count: machines are shared.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import samplerkit as sk
from tests.benchmarks.report import print_header, print_row, versions
from tests.benchmarks.timing import forked, in_turns, now, timed

SAMPLES, SIZE, BATCH, REPEATS, CHUNK = 32_000, 4096, 64, 3, 500


def write(folder: Path) -> None:
    """Writes the same samples as a store of LMDB and as a folder of litData."""
    random = np.random.default_rng(0)
    values = [random.bytes(SIZE) for _ in range(SAMPLES)]
    lmdb = importlib.import_module("lmdb")
    with lmdb.open(str(folder / "lmdb"), map_size=1 << 30) as store, store.begin(write=True) as writing:
        for id, value in enumerate(values):
            writing.put(b"%08d" % id, value)
    # As arrays: its views of bytes do not leave a worker.
    samples = ((id, np.frombuffer(value, np.uint8)) for id, value in enumerate(values))
    (folder / "litdata").mkdir()
    writer = importlib.import_module("litdata.streaming.writer").BinaryWriter(f"{folder}/litdata", CHUNK)
    for number, sample in enumerate(samples):
        writer.add_item(number, sample)
    writer.done()
    writer.merge()


class LmdbOfPeer(torch.utils.data.Dataset[dict[str, bytes]]):
    """What people write around LMDB's package: opened once a process, one get a sample."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.reading: Any = None

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, id: int) -> dict[str, bytes]:
        if self.reading is None:
            lmdb = importlib.import_module("lmdb")
            store = lmdb.open(self.path, readonly=True, lock=False, readahead=False, max_spare_txns=1)
            self.reading = store.begin()
        key = b"%08d" % id
        return {"key": key, "value": self.reading.get(key)}


def lmdb_of_peer(folder: Path, workers: int) -> Any:
    """torch's DataLoader over it."""
    dataset = LmdbOfPeer(str(folder / "lmdb"))
    return torch.utils.data.DataLoader(dataset, BATCH, shuffle=True, num_workers=workers, collate_fn=list)


def litdata_of_peer(folder: Path, workers: int) -> Any:
    """litData's loader, shuffled."""
    litdata = importlib.import_module("litdata")
    dataset = litdata.StreamingDataset(f"{folder}/litdata", shuffle=True)
    return litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=workers, collate_fn=list)


def ours(dataset: Any, workers: int, **mode: Any) -> Any:
    """A Loader."""
    sampler = sk.RandomSampler(seed=7, **mode)
    return sk.Loader(dataset, sampler, batch_size=BATCH, num_workers=workers, collate_fn=list)


def lmdb_of_ours(folder: Path, workers: int) -> Any:
    """GLOBAL."""
    return ours(sk.LmdbDataset(folder / "lmdb"), workers)


def litdata_of_ours(folder: Path, workers: int) -> Any:
    """PARTIAL, over blocks of a chunk."""
    dataset = sk.LitDataset(folder / "litdata", max_chunks=12)
    return ours(dataset, workers, shuffle="partial", partial_size=4 * CHUNK)


READERS: dict[str, Callable[[Path, int], Any]] = {
    "lmdb 3.0.0 in torch's DataLoader": lmdb_of_peer,
    "`LmdbDataset`, GLOBAL": lmdb_of_ours,
    "litData's StreamingDataLoader, shuffled": litdata_of_peer,
    "`LitDataset`, PARTIAL over 4 chunks": litdata_of_ours,
}


def asked() -> int:
    """The bytes that this process has asked the system for."""
    told = Path("/proc/self/io").read_text(encoding="ascii").split()
    return int(told[1])


def samples_of(loader: Any) -> int:
    """Reads an epoch; gives how many samples it has."""
    return sum(len(batch) for batch in loader)


def measured(name: str, folder: str, workers: int) -> tuple[int, float, float, int]:
    """Reads all once in this process: samples, seconds of all CPUs, seconds, and bytes."""
    loader = READERS[name](Path(folder), workers)
    len(loader)
    before = asked()
    count, used = timed(partial(samples_of, loader))
    read, ended = asked() - before, now()
    del loader  # with its workers, whose time counts from now on
    return count, used.processor + now().processor - ended.processor, used.clock, read


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    repeats = parser.parse_args().repeats
    # Once for all: the readers are forks of this process.
    for package in ("lmdb", "litdata"):
        importlib.import_module(package)
    with tempfile.TemporaryDirectory() as place:
        write(Path(place))
        works = {
            (name, workers): partial(forked, partial(measured, name, place, workers))
            for workers in (0, 2)
            for name in READERS
        }
        found = in_turns(works, repeats)
    print(f"{versions('torch', 'litdata')}, {SAMPLES} samples of {SIZE} bytes\n")
    print_header("who", "workers", "samples a second of CPU", "samples/s", "MB asked for")
    for (name, workers), runs in found.items():
        assert all(count == SAMPLES for count, *_ in runs), (name, workers)
        cpu, wall = (statistics.median(SAMPLES / run[at] for run in runs) for at in (1, 2))
        size = "" if workers else f"{statistics.median(run[3] for run in runs) / 1e6:.0f}"
        print_row(name, workers, f"{cpu:,.0f}", f"{wall:,.0f}", size)


if __name__ == "__main__":
    main()
