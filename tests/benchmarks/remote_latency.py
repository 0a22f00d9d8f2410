"""Benchmark of remote tar shards, from a server on loopback that takes its time: 20 ms a request.

Run it with `python -m tests.benchmarks.remote_latency`; `--quick` takes a quarter of the samples. It prints
Markdown.
Ratios are what counts: machines are shared, and times do not carry over. The server is a process of its own;
its latency is the same for a byte and for a shard, and the loopback is otherwise as fast as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import samplerkit as sk
from tests.storage.tar.server import Server

SHARDS, BATCH, LATENCY, WORK, REPEATS = 16, 64, 0.02, 0.02, 3
WARM_UP = 4
"""Batches that are read before the clock starts: the first shard has to come first."""


def as_list(batch: Any) -> Any:
    """The collate function of all loaders: what is measured is reading."""
    return batch


def write(folder: Path, samples: int, size: int) -> str:
    """Writes shards of samples of two members, of `size` bytes together; gives the pattern of their names."""
    random = np.random.default_rng(0)
    with sk.TarWriter(f"{folder}/train-%02d.tar", samples_per_shard=samples // SHARDS) as writer:
        for number in range(samples):
            writer.write({"__key__": f"{number:08}", "jpg": random.bytes(size - 4), "cls": number % 1000})
    return f"train-{{00..{SHARDS - 1:02}}}.tar"


def serve(folder: Path, seconds: float, channel: Connection) -> None:
    """What the server's process does until it is told to end."""
    with Server(folder, seconds) as server:
        channel.send(server.url)
        channel.recv()


@contextlib.contextmanager
def serving(serve: Callable[..., None], *arguments: object) -> Iterator[str]:
    """Serves from a process of its own, until it is told to end; gives the address."""
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=serve, args=(*arguments, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()


def epoch(dataset: sk.TarDataset, sampler: sk.Sampler, workers: int, work: float) -> float:
    """The samples a second of one epoch, the first batches left out; each batch is worked on for a while."""
    loader = sk.Loader(dataset, sampler, batch_size=BATCH, num_workers=workers, collate_fn=as_list)
    count, begun = 0, 0.0
    with loader:
        for number, batch in enumerate(loader):
            if number == WARM_UP:
                begun = time.perf_counter()
            count += len(batch) if number >= WARM_UP else 0
            if work:
                time.sleep(work)
    return count / (time.perf_counter() - begun)


def medians(works: dict[str, Callable[[], float]]) -> dict[str, float]:
    """The median of each; they take turns, so that all meet the same noise."""
    rates: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(REPEATS):
        for name, work in works.items():
            rates[name].append(work())
    return {name: statistics.median(found) for name, found in rates.items()}


def report(title: str, base: str, rates: dict[str, float]) -> None:
    print(f"\n### {title}\n\n| who | samples/s | times {base} |\n|---|---|---|")
    for name, rate in rates.items():
        print(f"| {name} | {rate:,.0f} | {rate / rates[base]:.2f} |")
    sys.stdout.flush()


def report_partial(url: str, folder: Path, pattern: str, samples: int) -> None:
    """PARTIAL: the first epoch fetches all shards, ahead of need; the second one finds them in the cache."""
    each = samples // SHARDS
    sampler = sk.RandomSampler(shuffle=sk.Shuffle.PARTIAL, partial_size=each, seed=7)
    local = sk.TarDataset(f"{folder}/{pattern}", cache=folder / "local")

    def first(workers: int, work: float, read_ahead: int = 2) -> float:
        options: dict[str, Any] = {"lengths": [each] * SHARDS, "read_ahead": read_ahead}
        with (
            TemporaryDirectory() as cache,
            sk.TarDataset(f"{url}/{pattern}", cache=cache, **options) as dataset,
        ):
            return epoch(dataset, sampler, workers, work)

    for workers, work in ((0, WORK), (2, WORK)):
        shown = f"{workers} workers, {1000 * work:.0f} ms of work a batch of {BATCH}"
        rates = {
            "local": lambda workers=workers, work=work: epoch(local, sampler, workers, work),
            "remote": lambda workers=workers, work=work: first(workers, work),
        }
        if not workers:
            rates["remote, nothing ahead"] = lambda work=work: first(0, work, 0)
        report(f"PARTIAL, first epoch, {shown}", "local", medians(rates))
    with (
        TemporaryDirectory() as cache,
        sk.TarDataset(f"{url}/{pattern}", cache=cache, lengths=[each] * SHARDS) as dataset,
    ):
        epoch(dataset, sampler, 0, 0.0)
        for workers in (0, 2):
            rates = {
                "local": lambda workers=workers: epoch(local, sampler, workers, 0.0),
                "remote": lambda workers=workers: epoch(dataset, sampler, workers, 0.0),
            }
            report(f"PARTIAL, second epoch, {workers} workers, no work", "local", medians(rates))


def report_global(url: str, pattern: str, samples: int) -> None:
    """GLOBAL: single samples by range requests."""
    each = samples // SHARDS
    few = min(samples, 256)
    ids = sk.RandomSampler(seed=7).order(sk.Layout([each] * SHARDS))[:few]

    def read(threads: int, batch: int, told: bool) -> float:
        options = {"lengths": [each] * SHARDS, "fetch": "ranges", "remote": {"threads": threads}}
        with (
            TemporaryDirectory() as cache,
            sk.TarDataset(f"{url}/{pattern}", cache=cache, **options) as dataset,
        ):
            dataset.keys(ids)  # the indexes beside the shards are here
            begun = time.perf_counter()
            parts = np.split(ids, range(batch, few, batch))
            if told and dataset.expect is not None:
                dataset.expect(iter(parts))
            for part in parts:
                dataset.__getitems__(part)
            return few / (time.perf_counter() - begun)

    base = "one request at a time"
    rates = medians(
        {
            base: lambda: read(1, 1, False),
            "16 threads": lambda: read(16, BATCH, False),
            "16 threads, one batch ahead": lambda: read(16, BATCH, True),
            "64 threads, one batch ahead": lambda: read(64, BATCH, True),
        }
    )
    report(f"GLOBAL, {few} samples by range requests, batches of {BATCH}", base, rates)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the samples")
    options = parser.parse_args()
    samples, size = (4_096 if options.quick else 16_384), 20_000
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    versions = {"Python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__}
    versions |= {"samplerkit": sk.__version__}
    print(", ".join(f"{name} {version}" for name, version in versions.items()), platform.machine())
    print(
        f"\n{samples:,} samples of {size // 1000} KB, 2 members each, in {SHARDS} shards; "
        f"{1000 * LATENCY:.0f} ms a request; medians of {REPEATS}."
    )
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        pattern = write(folder, samples, size)
        with serving(serve, folder, LATENCY) as url:
            report_partial(url, folder, pattern, samples)
            report_global(url, pattern, samples)


if __name__ == "__main__":
    main()
