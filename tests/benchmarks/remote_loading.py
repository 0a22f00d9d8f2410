"""Loaders over remote shards, one run each, in a process of its own.

`python -m tests.benchmarks.remote_loading CASE URL WORKERS` prints samples a second, and the microseconds of
processor time that each took in this process. All that a case needs is imported before the clock starts, ours
as webdataset: a job imports once, and reads for hours. `tests.benchmarks.remote` writes the data.
"""

import asyncio
import http.client
import json
import os
import queue
import shutil
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import webdataset

import samplerkit as sk
from tests.benchmarks.peers.torch_rows import as_fetched
from tests.benchmarks.peers.torchvision_operators import declare
from tests.benchmarks.timing import timed

SHARDS, SAMPLES, SIZE, BATCH = 64, 200, 100_000, 64
SAMPLE = SIZE + 1888
"""Bytes of a sample in its shard: two headers, and what pads its two files."""


def write(folder: Path) -> None:
    """Writes 64 shards of 200 samples of 100 KB; for MosaicML streaming in files of its own too."""
    random = np.random.default_rng(0)
    with sk.TarWriter(f"{folder}/train-%02d.tar", samples_per_shard=SAMPLES) as writer:
        for number in range(SHARDS * SAMPLES):
            writer.write({"__key__": f"{number:08}", "jpg": random.bytes(SIZE), "cls": number % 1000})
    if find_spec("streaming"):
        declare()
        columns = {"jpg": "bytes", "cls": "int"}
        writer = import_module("streaming").MDSWriter
        with writer(out=f"{folder}/mds", columns=columns, size_limit=SAMPLES * (SIZE + 100)) as out:
            for number in range(SHARDS * SAMPLES):
                out.write({"jpg": random.bytes(SIZE), "cls": number % 1000})


@contextmanager
def remote(url: str, scheme: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Gives the address of the bucket, and the options, with a cache of this run."""
    cache = tempfile.mkdtemp()
    store = {"anon": True, "endpoint_url": url} if scheme == "s3" else {}
    yield "s3://bucket" if scheme == "s3" else f"{url}/bucket", {"cache": cache, "storage_options": store}
    shutil.rmtree(cache)


def epoch(dataset: Any, sampler: Any, workers: int) -> Iterator[int]:
    """Reads an epoch; gives how many samples each batch has."""
    with (
        dataset,
        sk.Loader(dataset, sampler, batch_size=BATCH, num_workers=workers, collate_fn=as_fetched) as loader,
    ):
        yield from map(len, loader)


def tar(
    url: str, workers: int, *, scheme: str, shuffle: sk.Shuffle, fetch: Literal["ranges", "shards"]
) -> Iterator[int]:
    """Shards: single samples by ranges, or whole shards, fetched into a cache that is empty."""
    blocks = {"partial_size": 4 * SAMPLES} if shuffle == sk.Shuffle.PARTIAL else {}
    with remote(url, scheme) as (base, options):
        names = f"{base}/train-{{00..{SHARDS - 1}}}.tar"
        dataset = sk.TarDataset(names, lengths=[SAMPLES] * SHARDS, fetch=fetch, remote=options)
        yield from epoch(dataset, sk.RandomSampler(seed=7, shuffle=shuffle, **blocks), workers)


def by_webdataset(url: str, workers: int) -> Iterator[int]:
    """webdataset by its own way to URLs, a pipe from curl, and its shuffle of what is in memory."""
    names = f"pipe:curl -s -L {url}/bucket/train-{{00..{SHARDS - 1}}}.tar"
    source = webdataset.WebDataset(names, shardshuffle=SHARDS).shuffle(1000).batched(BATCH, collation_fn=None)
    for batch in torch.utils.data.DataLoader(source, batch_size=None, num_workers=workers):
        yield len(batch)


def by_streaming(url: str, workers: int) -> Iterator[int]:
    """MosaicML streaming, of the same samples in files of its own, which it downloads by boto3."""
    streaming = import_module("streaming")
    os.environ |= {"S3_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "K", "AWS_SECRET_ACCESS_KEY": "S"}
    with tempfile.TemporaryDirectory() as local:
        dataset = streaming.StreamingDataset(
            remote="s3://bucket/mds", local=local, batch_size=BATCH, shuffle=True
        )
        loader = streaming.StreamingDataLoader(
            dataset, batch_size=BATCH, num_workers=workers, collate_fn=as_fetched
        )
        for batch in loader:
            yield len(batch)


def ranges_alone(url: str, workers: int) -> Iterator[int]:  # noqa: ARG001  # as all cases
    """The ranges of GLOBAL by obstore, a batch at a time, and nothing else: no samples are made of them."""
    obstore, store = import_module("obstore"), import_module("obstore.store")
    bucket = store.S3Store(
        "bucket", endpoint=url, region="us-east-1", skip_signature=True, client_options={"allow_http": True}
    )
    order = sk.RandomSampler(seed=7).order(SHARDS * SAMPLES)

    async def read(ids: list[int]) -> int:
        ranges = (
            obstore.get_range_async(
                bucket, f"train-{id // SAMPLES:02}.tar", start=id % SAMPLES * SAMPLE, length=SAMPLE
            )
            for id in ids
        )
        return len([bytes(data) for data in await asyncio.gather(*ranges)])

    with asyncio.Runner() as runner:
        for at in range(0, len(order), BATCH):
            yield runner.run(read(order[at : at + BATCH].tolist()))


def shards_alone(url: str, workers: int) -> Iterator[int]:  # noqa: ARG001
    """Whole shards received, written to files and read again, by a thread each, and nothing else."""
    host, folder = url.removeprefix("http://"), Path(tempfile.mkdtemp())
    arrived: queue.Queue[Path] = queue.Queue(2)

    def receive() -> None:
        connection, buffer = http.client.HTTPConnection(host), memoryview(bytearray(1 << 20))
        for number in range(SHARDS):
            connection.request("GET", f"/bucket/train-{number:02}.tar")
            with connection.getresponse() as body, (folder / str(number)).open("wb", 0) as file:
                while count := body.readinto(buffer):
                    file.write(buffer[:count])
            arrived.put(folder / str(number))

    thread = threading.Thread(target=receive)
    thread.start()
    for _ in range(SHARDS):
        with arrived.get().open("rb", 0) as file:
            yield len([file.read(SAMPLE) for _ in range(SAMPLES)])
    thread.join()
    shutil.rmtree(folder)


CASES: dict[str, Callable[[str, int], Iterator[int]]] = {
    "webdataset, curl, `shuffle(1000)`": by_webdataset,
    **({"ranges by obstore, and nothing else": ranges_alone} if find_spec("obstore") else {}),
    "shards to disk and back, and nothing else": shards_alone,
    **({"MosaicML streaming, `s3://`": by_streaming} if find_spec("streaming") else {}),
    **{
        f"{shuffle.name} by {fetch}, `{scheme}://`": partial(tar, scheme=scheme, shuffle=shuffle, fetch=fetch)
        for shuffle in (sk.Shuffle.GLOBAL, sk.Shuffle.PARTIAL, sk.Shuffle.FILES)
        for fetch in ("ranges", "shards")
        if (shuffle, fetch) != (sk.Shuffle.GLOBAL, "shards")
        for scheme in ("http", "s3")
    },
}


def import_all() -> None:
    """Imports what cases would import when they begin, as webdataset is imported above."""
    if find_spec("streaming"):
        declare()
        import_module("streaming")
    if find_spec("obstore"):
        import_module("obstore.store")
    for name in ("Loader", "RandomSampler", "TarDataset"):
        getattr(sk, name)
    for module in (
        "samplerkit.storage.remote.http",
        "botocore.session",
        "botocore.loaders",
        "botocore.client",
    ):
        import_module(module)


def main() -> None:
    """Reads an epoch, from the first byte on."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    import_all()
    start = time.process_time()  # of this process alone
    count, used = timed(lambda: sum(CASES[sys.argv[1]](sys.argv[2], int(sys.argv[3]))))
    print(json.dumps([count / used.clock, 1e6 * (time.process_time() - start) / count]))


if __name__ == "__main__":
    main()
