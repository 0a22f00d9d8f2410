"""Loaders over remote tar shards, with workers of each kind, while the parent process reads or does not.

`python -m tests.storage.remote.fork_matrix URL FOLDER SCHEME METHOD PARENT LOADERS EPOCHS` is one cell, in a
process of its own, since that decides which libraries are imported, and used, before workers begin. It fails
if a sample is wrong.
"""

import multiprocessing
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import samplerkit as sk
from samplerkit.storage.remote.storage import RemoteStorage, Span
from tests.storage.remote.server import MODIFIED, Server

SHARDS, SAMPLES = 4, 8

SCHEMES = ("http", "s3")
METHODS = ("fork", "forkserver", "spawn", "threads")
PARENTS = ("idle", "read", "reading")

PRELOADED = ["torch.utils.data", "samplerkit.loading.loader", "samplerkit.storage.tar.dataset"]
"""What a fork server imports once: to import torch takes seconds. No client of a store is among it."""


def as_list(batch: Any) -> Any:
    """Collates nothing."""
    return [(int(sample["__key__"]), sample["bin"]) for sample in batch]


def content(number: int) -> bytes:
    """What a sample holds."""
    return np.random.default_rng(number).bytes(1000)


def put_shards(server: Server, folder: Path) -> None:
    """Puts the shards where both kinds of URLs have them."""
    with sk.TarWriter(f"{folder}/%d.tar", samples_per_shard=SAMPLES, index=False) as writer:
        for number in range(SHARDS * SAMPLES):
            writer.write({"__key__": f"{number:06}", "bin": content(number)})
    for path in map(Path, writer.paths):
        server.put(f"/shards/{path.name}", path.read_bytes(), MODIFIED)


def shards(url: str, scheme: str) -> tuple[list[str], dict[str, Any]]:
    """Returns their URLs, and the further options of a `RemoteStorage`."""
    base = "s3://shards" if scheme == "s3" else f"{url}/shards"
    store = {"key": "key", "secret": "secret", "endpoint_url": url}
    kwargs = {"storage_options": store} if scheme == "s3" else {}
    return [f"{base}/{number}.tar" for number in range(SHARDS)], kwargs


def loader(url: str, folder: str, scheme: str, method: str, seed: int, stack: ExitStack) -> sk.Loader:
    """Returns a loader of two workers, which start again in each epoch, unless each starts an interpreter."""
    urls, kwargs = shards(url, scheme)
    remote = {"cache": f"{folder}/{seed}", "timeout": 20, "attempts": 3, "retry_seconds": 1, "threads": 4}
    dataset = stack.enter_context(sk.TarDataset(urls, fetch="ranges", remote={**remote, **kwargs}))
    options: dict[str, Any] = {"num_workers": 2, "persistent_workers": method == "spawn"}
    if method == "threads":
        options["workers"] = "threads"
    else:
        # Four interpreters that start and import torch on a busy machine take a minute.
        options |= {"multiprocessing_context": method, "timeout": 300}
    sampler = sk.RandomSampler(seed=seed)
    return stack.enter_context(sk.Loader(dataset, sampler, batch_size=8, collate_fn=as_list, **options))


@contextmanager
def parent(url: str, folder: str, scheme: str, how: str) -> Iterator[None]:
    """Has not read, has read, or reads in six threads during the block."""
    urls, kwargs = shards(url, scheme)
    storage, stop = RemoteStorage(sk.RemoteOptions(cache=f"{folder}/parent", **kwargs)), threading.Event()
    spans = [Span(each, 512 * first, 100) for each in urls for first in range(20)]

    def read() -> None:
        while not stop.is_set():
            storage.read(spans)

    threads = [threading.Thread(target=read, daemon=True) for _ in range(6 if how == "reading" else 0)]
    if how != "idle":
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


def read_epochs(loaders: list[sk.Loader], epochs: int) -> None:
    """Reads epochs of loaders at the same time, and compares each sample."""
    for _ in range(epochs):
        keys_of_loaders: list[list[int]] = [[] for _ in loaders]
        for batches in zip(*loaders, strict=True):
            for keys, batch in zip(keys_of_loaders, batches, strict=True):
                for key, data in batch:
                    assert data == content(key), "wrong bytes"
                    keys.append(key)
        assert all(sorted(keys) == list(range(SHARDS * SAMPLES)) for keys in keys_of_loaders)


def run_cell(url: str, folder: str, scheme: str, method: str, how: str, loaders: int, epochs: int) -> None:
    """Reads the epochs of one cell."""
    warnings.simplefilter("ignore")
    multiprocessing.set_forkserver_preload(PRELOADED)
    with parent(url, folder, scheme, how), ExitStack() as stack:
        read_epochs([loader(url, folder, scheme, method, seed, stack) for seed in range(loaders)], epochs)
    print("read")


if __name__ == "__main__":
    run_cell(*sys.argv[1:6], *map(int, sys.argv[6:]))  # type: ignore[arg-type]
