"""Benchmark of data from an object store on loopback: PARTIAL beside plain requests and other readers.

Run it with `python -m tests.benchmarks.formats`, with moto, s3fs and pyarrow; with Hugging Face's `datasets`
or litData installed, their readers are measured too, each in a process of its own that has imported all
before the clock starts. It prints Markdown. The store is a process of its own, and waits before each answer
as long as `--latency` says; its CPU seconds are told beside the reader's. The best of `--repeats` in turn
counts: what others do on the machine only adds.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import active_children, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

import samplerkit as sk
from tests.benchmarks.formats_of_others import (
    BATCH,
    ROWS,
    SAMPLES,
    SECRET,
    hugging_face,
    litdata,
    plain,
    write,
    write_lit,
)
from tests.benchmarks.report import print_header, print_row, versions
from tests.benchmarks.timing import in_turns, timed

REPEATS = 3


@dataclass(frozen=True)
class Run:
    """What one epoch took: seconds, CPU seconds of the reader and of the store; chunks and requests."""

    seconds: float
    own: float
    store: float
    chunks: int | str = ""
    requests: int | str = ""


TIMES = ("seconds", "own", "store")


def serve(latency: float, channel: Connection) -> None:
    """What the store's process does until it is told to end."""
    server_of_moto = import_module("moto.server")
    app = import_module("moto.moto_server.werkzeug_app").DomainDispatcherApplication.__call__

    def slow(self: Any, environ: Any, start: Any) -> Any:
        time.sleep(latency)
        return app(self, environ, start)

    import_module("moto.moto_server.werkzeug_app").DomainDispatcherApplication.__call__ = slow
    server = server_of_moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    channel.send(f"http://{host}:{port}")
    channel.recv()
    server.stop()


@contextmanager
def serving(latency: float) -> Iterator[str]:
    """Serves from a process of its own, until it is told to end; gives the address."""
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=serve, args=(latency, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()


def ours(urls: Any, options: dict[str, Any], mode: str, workers: int, **ahead: int) -> tuple[int, int]:
    """One epoch; gives how many row groups were read, and the requests."""
    sampler: sk.Sampler = sk.SequentialSampler()
    if mode == "partial":
        sampler = sk.RandomSampler(shuffle="partial", partial_size=4 * ROWS, seed=7)
    remote = {"storage_options": options}
    dataset: Any
    if isinstance(urls, str):
        dataset = sk.LitDataset(urls, max_chunks=12, remote=remote, **ahead)
    else:
        dataset = sk.ParquetDataset(
            urls, batches="tensors", max_chunks=12, remote=remote, progress=False, **ahead
        )
    collate = list if isinstance(urls, str) else torch.utils.data.default_convert
    loader = sk.Loader(dataset, sampler, batch_size=BATCH, num_workers=workers, collate_fn=collate)
    with dataset, loader:
        read = sum(len(batch if isinstance(urls, str) else batch["id"]) for batch in loader)
        assert read == SAMPLES
        return dataset.stats.files_read, dataset.stats.requests


def peer(
    make: Callable[..., Callable[[], int]], data: Any, options: dict[str, Any], channel: Connection
) -> None:
    """Reads once when it is told to; its package changes what fsspec does with S3 for all in a process."""
    try:
        read = make(data, options)
        channel.send(None)
        channel.recv()
        count, used = timed(read)
        assert count == SAMPLES, count
        channel.send(tuple(used))
    except Exception as error:
        channel.send(f"{type(error).__name__}: {error}"[:300])


def store_seconds() -> float:
    """The CPU seconds of the store's process so far: the only one that is not a reader's."""
    (store,) = (child for child in active_children() if child.name == "store")
    user, system = (
        Path(f"/proc/{store.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[11:13]
    )
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def of_peer(make: Callable[..., Callable[[], int]], data: Any, options: dict[str, Any]) -> Run | str:
    """One epoch of a peer in a process of its own; or why there is none."""
    context = get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=peer, args=(make, data, options, theirs), daemon=True)
    process.start()
    told = mine.recv()
    before = store_seconds()
    if told is None:
        mine.send(None)
        told = mine.recv()
    process.join()
    return told if isinstance(told, str) else Run(*told, store_seconds() - before)


def run_of(work: Callable[[], Any]) -> Run:
    """One epoch in this process and its workers."""
    before = store_seconds()
    counts, used = timed(work)
    return Run(*used, store_seconds() - before, *(counts or ()))


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--latency", type=float, default=0.0, help="seconds that the store waits before each answer"
    )
    parser.add_argument("--repeats", type=int, default=REPEATS)
    given = parser.parse_args()
    with serving(given.latency) as address:
        active_children()[0].name = "store"
        options = {**SECRET, "endpoint_url": address}
        filesystem = import_module("s3fs").S3FileSystem(**options, skip_instance_cache=True)
        urls, size = write(filesystem)
        works: dict[str, Callable[[], Any]] = dict(plain(filesystem, urls, options))
        for name, data, how, ahead in (
            ("`ParquetDataset` in sequence, nothing ahead", urls, ("sequential", 0), {"read_ahead": 0}),
            ("`ParquetDataset` in sequence", urls, ("sequential", 0), {}),
            ("`ParquetDataset`, PARTIAL, 1 ahead", urls, ("partial", 0), {"read_ahead": 1, "threads": 1}),
            ("`ParquetDataset`, PARTIAL", urls, ("partial", 0), {}),
            ("the same, 2 workers", urls, ("partial", 2), {}),
        ):
            works[name] = lambda data=data, how=how, ahead=ahead: ours(data, options, *how, **ahead)
        peers: dict[str, Callable[[], Run | str]] = {}
        if find_spec("datasets") is not None:
            name = "Hugging Face's `datasets`, streaming, shuffled"
            peers[name] = partial(of_peer, hugging_face, urls, options)
        if find_spec("litdata") is not None:
            url = write_lit(filesystem)
            works["`LitDataset`, PARTIAL"] = lambda: ours(url, options, "partial", 0)
            peers["litData's loader, shuffled"] = partial(of_peer, litdata, url, options)
        found = in_turns(
            {**{name: partial(run_of, work) for name, work in works.items()}, **peers}, given.repeats
        )
    taken = f"{size / 1e6:.0f} MB, {given.latency} s a request, the best of {given.repeats}"
    print(f"{versions('torch')}, {taken}\n")
    base = min(run.seconds for run in found["row groups by s3fs one by one, nothing parsed"])
    cpu = "CPU s here", "CPU s of the store"
    print_header("who", "MB/s", "of one by one", *cpu, "chunks read", "requests")
    reasons = {name: run for name, runs in found.items() for run in runs if isinstance(run, str)}
    for name, runs in found.items():
        if name not in reasons:
            seconds, own, store = (min(getattr(run, at) for run in runs) for at in TIMES)
            rates = f"{size / seconds / 1e6:.0f}", f"{base / seconds:.2f}"
            print_row(name, *rates, f"{own:.2f}", f"{store:.2f}", runs[-1].chunks, runs[-1].requests)
    for name, reason in reasons.items():
        print(f"\n{name}: does not run here ({reason})")


if __name__ == "__main__":
    main()
