"""Loaders over tar shards of an S3 store, with workers of each kind, while the parent reads or not.

A program of its own, since it decides which libraries are imported, and used, before workers begin:
`python -m tests.storage.remote.fork_matrix URL FOLDER METHOD PARENT LOADERS EPOCHS`.
It prints whether those who read did so by obstore, and fails if a sample is wrong.
"""

from __future__ import annotations

import json
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

import samplerkit as sk
from samplerkit.storage.remote.object_stores import is_usable
from samplerkit.storage.remote.storage import RemoteStorage, Span

SHARDS, SAMPLES = 4, 8


def as_list(batch: Any) -> Any:
    """Collates nothing, and says whether its process reads by obstore."""
    is_fast = "obstore" in sys.modules and is_usable()
    return [(is_fast, int(sample["__key__"]), sample["bin"]) for sample in batch]


def content(number: int) -> bytes:
    """What a sample holds."""
    return np.random.default_rng(number).bytes(1000)


def loader(url: str, folder: str, method: str, seed: int, stack: ExitStack) -> sk.Loader:
    """Gives a loader with two workers, or none."""
    remote = {"cache": f"{folder}/{seed}", "timeout": 20, "attempts": 3, "retry_seconds": 1, "threads": 4}
    remote["storage_options"] = {"anon": True, "endpoint_url": url}
    urls = [f"s3://shards/{number}.tar" for number in range(SHARDS)]
    dataset = stack.enter_context(sk.TarDataset(urls, fetch="ranges", remote=remote))
    options: dict[str, Any] = {"num_workers": 2}
    if method == "threads":
        options["workers"] = "threads"
    elif method == "none":
        options = {}
    else:
        options |= {"multiprocessing_context": method, "timeout": 60}
    made = sk.Loader(dataset, sk.RandomSampler(seed=seed), batch_size=8, collate_fn=as_list, **options)
    return stack.enter_context(made)


@contextmanager
def parent(url: str, folder: str, how: str) -> Iterator[None]:
    """Has not read, has read, or reads in six threads meanwhile."""
    remote = {"cache": f"{folder}/parent", "storage_options": {"anon": True, "endpoint_url": url}}
    storage, stop = RemoteStorage(sk.RemoteOptions(**remote)), threading.Event()
    spans = [
        Span(f"s3://shards/{number}.tar", 512 * first, 100) for number in range(SHARDS) for first in range(40)
    ]

    def read() -> None:
        while not stop.is_set():
            storage.read(spans)

    threads = [threading.Thread(target=read, daemon=True) for _ in range(6 if how == "reading" else 0)]
    if how != "idle":
        while "obstore" not in sys.modules:
            storage.read(spans)
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
        storage.close()


def main() -> None:
    """Reads the epochs."""
    url, folder, method, how, loaders, epochs = sys.argv[1:]
    warnings.simplefilter("ignore")
    used: set[bool] = set()
    with parent(url, folder, how), ExitStack() as stack:
        made = [loader(url, folder, method, seed, stack) for seed in range(int(loaders))]
        for _ in range(int(epochs)):
            found: list[list[int]] = [[] for _ in made]
            for batches in zip(*made, strict=True):
                for keys, batch in zip(found, batches, strict=True):
                    for is_fast, key, data in batch:
                        assert data == content(key), "wrong bytes"
                        used.add(is_fast)
                        keys.append(key)
            assert all(sorted(keys) == list(range(SHARDS * SAMPLES)) for keys in found)
    print(json.dumps(sorted(used)))


if __name__ == "__main__":
    main()
