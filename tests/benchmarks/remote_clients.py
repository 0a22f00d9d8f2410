"""Clients of a store that read small parts of large objects, one run each, in a process of its own.

`python -m tests.benchmarks.remote_clients NAME URL BYTES THREADS REQUESTS` prints requests a second, and the
microseconds of processor time that each took. All look at the ETag of each answer, but for s3fs.
"""

import http.client
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any

import s3fs
import urllib3

from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage, Span
from tests.benchmarks.timing import timed

OBJECTS, OBJECT = 32, 4 << 20
BATCH = 64
"""The parts of a batch: a client that reads batches waits for all parts of one before the next."""

Part = tuple[int, int]


def parts(size: int, count: int) -> list[Part]:
    """Gives the number of an object, and the first byte, of each part."""
    draw = random.Random(size)
    return [(draw.randrange(OBJECTS), draw.randrange(OBJECT - size + 1)) for _ in range(count)]


def head(part: Part, size: int) -> dict[str, str]:
    """The range of a part, as a header."""
    return {"Range": f"bytes={part[1]}-{part[1] + size - 1}"}


def dealt(ranges: list[Part], threads: int, work: Callable[[Iterator[Part]], None]) -> None:
    """Reads ranges in threads that take them from one list."""
    rest = iter(ranges)
    with ThreadPoolExecutor(threads) as pool:
        running = [pool.submit(work, rest) for _ in range(threads)]
        for each in running:
            each.result()


def by_http_client(url: str, size: int, threads: int) -> Callable[[list[Part]], None]:
    """One connection a thread: the floor in Python."""
    host = url.removeprefix("http://")

    def work(rest: Iterator[Part]) -> None:
        connection = http.client.HTTPConnection(host)
        for part in rest:
            connection.request("GET", f"/bucket/{part[0]}.bin", headers=head(part, size))
            answer = connection.getresponse()
            assert len(answer.read()) == size
            assert answer.getheader("ETag")

    return lambda ranges: dealt(ranges, threads, work)


def by_urllib3(url: str, size: int, threads: int) -> Callable[[list[Part]], None]:
    """A pool of connections."""
    pool = urllib3.PoolManager(maxsize=threads)

    def work(rest: Iterator[Part]) -> None:
        for part in rest:
            answer = pool.request(
                "GET", f"{url}/bucket/{part[0]}.bin", headers=head(part, size), retries=False
            )
            assert len(answer.data) == size
            assert answer.headers["ETag"]

    return lambda ranges: dealt(ranges, threads, work)


def by_s3fs(url: str, size: int, threads: int) -> Callable[[list[Part]], None]:
    """`cat_ranges`, so many at a time."""
    store = s3fs.S3FileSystem(anon=True, endpoint_url=url)

    def read(ranges: list[Part]) -> None:
        paths, begins = [f"bucket/{number}.bin" for number, _ in ranges], [begin for _, begin in ranges]
        results = store.cat_ranges(paths, begins, [begin + size for begin in begins], batch_size=threads)
        assert all(len(data) == size for data in results)

    return read


def by_obstore(url: str, size: int, threads: int) -> Callable[[list[Part]], None]:
    """`get`, with `if_match`, in threads."""
    client = {"allow_http": True, "timeout": timedelta(seconds=60)}
    obstore: Any = import_module("obstore")
    store = import_module("obstore.store").S3Store(
        "bucket", endpoint=url, region="us-east-1", skip_signature=True, client_options=client
    )
    tags = [obstore.head(store, f"{number}.bin")["e_tag"] for number in range(OBJECTS)]

    def work(rest: Iterator[Part]) -> None:
        for number, begin in rest:
            options = {"range": (begin, begin + size), "if_match": tags[number]}
            assert len(bytes(obstore.get(store, f"{number}.bin", options=options).bytes())) == size

    return lambda ranges: dealt(ranges, threads, work)


def by_samplerkit(url: str, size: int, threads: int, *, scheme: str) -> Callable[[list[Part]], None]:
    """A batch at a time, as datasets read."""
    base = "s3://bucket" if scheme == "s3" else f"{url}/bucket"
    store = {"anon": True, "endpoint_url": url} if scheme == "s3" else {}
    storage = RemoteStorage(RemoteOptions(cache=tempfile.mkdtemp(), threads=threads, storage_options=store))

    def read(ranges: list[Part]) -> None:
        for first in range(0, len(ranges), BATCH):
            batch = [Span(f"{base}/{n}.bin", begin, size) for n, begin in ranges[first : first + BATCH]]
            assert all(len(data) == size for data in storage.read(batch))

    return read


CLIENTS: dict[str, Callable[[str, int, int], Callable[[list[Part]], None]]] = {
    "http.client, a connection a thread": by_http_client,
    "urllib3": by_urllib3,
    "samplerkit, `http://`": partial(by_samplerkit, scheme="http"),
    "s3fs, `cat_ranges`": by_s3fs,
    "obstore, `get(range, if_match)`": by_obstore,
    "samplerkit, `s3://`": partial(by_samplerkit, scheme="s3"),
}


def main() -> None:
    """Reads the parts once they have been warmed up: what a client does only once is not measured."""
    name, url, size, threads, count = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    read = CLIENTS[name](url, size, threads)
    ranges = parts(size, count)
    read(parts(size, 400))
    _, used = timed(lambda: read(ranges))
    print(json.dumps([count / used.clock, 1e6 * used.processor / count]))


if __name__ == "__main__":
    main()
