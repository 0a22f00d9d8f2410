"""Benchmark of Parquet from an object store on loopback: PARTIAL beside reading one file after another.

Run it with `python -m tests.benchmarks.formats`, with moto, s3fs and pyarrow; with Hugging Face's `datasets`
installed, its reader is measured too. It prints Markdown. The store is a process of its own, and waits before
each answer as long as `--latency` says. Ratios count: machines are shared, and times do not carry over.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

import samplerkit as sk
from tests.benchmarks.remote import serving

FILES, GROUPS, ROWS, TOKENS, BATCH, REPEATS = 4, 8, 512, 1024, 64, 3
SECRET = {"key": "test-key", "secret": "test-secret"}


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


def write(filesystem: Any) -> tuple[list[str], int]:
    """Writes files of tokens; gives their URLs and the bytes of all."""
    pa, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    filesystem.call_s3("create_bucket", Bucket="bench")
    random, urls, size = np.random.default_rng(0), [], 0
    for number in range(FILES):
        rows = np.arange(GROUPS * ROWS) + number * GROUPS * ROWS
        tokens = random.integers(0, 1 << 31, (rows.size, TOKENS), dtype=np.int32)
        table = pa.table(
            {"id": rows, "tokens": pa.FixedSizeListArray.from_arrays(pa.array(tokens.ravel()), TOKENS)}
        )
        sink = pa.BufferOutputStream()
        parquet.write_table(table, sink, row_group_size=ROWS, use_dictionary=False, compression="none")
        data = sink.getvalue().to_pybytes()
        filesystem.pipe(f"bench/{number}.parquet", data)
        urls.append(f"s3://bench/{number}.parquet")
        size += len(data)
    return urls, size


def ours(urls: list[str], options: dict[str, Any], mode: str, workers: int, **ahead: int) -> tuple[int, int]:
    """One epoch; gives how many row groups were read, and the requests."""
    sampler: sk.Sampler = sk.SequentialSampler()
    if mode == "partial":
        sampler = sk.RandomSampler(shuffle="partial", partial_size=4 * ROWS, seed=7)
    remote = {"storage_options": options}
    dataset = sk.ParquetDataset(
        urls, batches="tensors", max_chunks=12, remote=remote, progress=False, **ahead
    )
    collate = torch.utils.data.default_convert
    loader = sk.Loader(dataset, sampler, batch_size=BATCH, num_workers=workers, collate_fn=collate)
    with dataset, loader:
        read = sum(batch["id"].numel() for batch in loader)
        assert read == FILES * GROUPS * ROWS
        return dataset.stats.files_read, dataset.stats.requests


def peer(urls: list[str], options: dict[str, Any], channel: Connection) -> None:
    """Hugging Face's reader of streams, shuffled by a buffer of as many rows, in a process of its own.

    Its package changes what fsspec does with S3 for all who read in the same process.
    """
    begun = time.perf_counter()
    datasets = import_module("datasets")
    made = datasets.load_dataset(
        "parquet", data_files=urls, storage_options=options, streaming=True, split="train"
    )
    shuffled = made.shuffle(seed=7, buffer_size=4 * ROWS).with_format("torch")
    read = sum(batch["id"].numel() for batch in torch.utils.data.DataLoader(shuffled, batch_size=BATCH))
    assert read == FILES * GROUPS * ROWS
    channel.send(time.perf_counter() - begun)


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--latency", type=float, default=0.0, help="seconds that the store waits before each answer"
    )
    latency = parser.parse_args().latency
    with serving(serve, latency) as address:
        s3fs = import_module("s3fs")
        options = {**SECRET, "endpoint_url": address}
        filesystem = s3fs.S3FileSystem(**options, skip_instance_cache=True)
        urls, size = write(filesystem)
        told: dict[str, tuple[int, int]] = {}

        def kept(name: str, *how: Any, **ahead: int) -> Callable[[], None]:
            return lambda: told.update({name: ours(urls, options, *how, **ahead)})

        def whole() -> None:
            for url in urls:
                filesystem.cat_file(url)

        works: dict[str, Callable[[], None]] = {"whole objects one by one, nothing parsed": whole}
        for name, how, ahead in (
            ("in sequence, nothing ahead", ("sequential", 0), {"read_ahead": 0}),
            ("in sequence", ("sequential", 0), {}),
            ("PARTIAL", ("partial", 0), {}),
            ("PARTIAL, 4 row groups ahead by 4 threads", ("partial", 0), {"read_ahead": 4, "threads": 4}),
            ("PARTIAL, 2 workers", ("partial", 2), {}),
        ):
            works[name] = kept(name, *how, **ahead)
        seconds: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(REPEATS):
            for name, work in works.items():
                begun = time.perf_counter()
                work()
                seconds[name].append(time.perf_counter() - begun)
        if find_spec("datasets") is not None:
            mine, theirs = get_context("spawn").Pipe()
            process = get_context("spawn").Process(target=peer, args=(urls, options, theirs), daemon=True)
            process.start()
            seconds["Hugging Face datasets, streaming, with its import, once"] = [mine.recv()]
            process.join()
    print(
        f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"{size / 1e6:.0f} MB, {latency} s a request"
    )
    base = statistics.median(seconds["in sequence"])
    print("\n| who | MB/s | of in sequence | row groups read | requests |\n|---|---|---|---|---|")
    for name, found in seconds.items():
        middle = statistics.median(found)
        counts = " | ".join(map(str, told.get(name, ("", ""))))
        print(f"| {name} | {size / middle / 1e6:.0f} | {base / middle:.2f} | {counts} |")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
