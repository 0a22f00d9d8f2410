"""Reads and errors that are the same with every client."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.storage import Span
from tests.jobs import ended
from tests.load_free_timer import LoadFreeTimer
from tests.storage.cluster import cluster
from tests.storage.remote import faults
from tests.storage.remote.conftest import CLIENTS
from tests.storage.remote.contents import content
from tests.storage.remote.server import MODIFIED
from tests.waiting import wait_until

PATH = "/shards/a"
DATA = random.Random(5).randbytes(9_000_000)


@dataclass
class Store:
    """Where a file is: how it is put there, how the tags of its versions begin, and the storage options."""

    put: Callable[[bytes], str]
    tag: str
    options: dict[str, Any] = field(default_factory=dict)


KINDS = ["http", "hdfs", *(f"s3 by {client}" for client in CLIENTS)]


@pytest.fixture
def store(request, server, tmp_path):
    kind, _, client = request.param.partition(" by ")
    if kind == "hdfs":

        def put_into_folder(data):
            (tmp_path / "a").write_bytes(data)
            return "hdfs://namenode:8020/a"

        with cluster(tmp_path):
            yield Store(put_into_folder, "mtime ", {"user": "me"})
        return

    def put_on_server(data):
        url = server.put(PATH, data)
        server.resources[PATH].modified = MODIFIED  # as stores report it
        return url if kind == "http" else f"s3:/{PATH}"

    if kind == "http":
        yield Store(put_on_server, '"')
        return
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    options = {"anon": True, "endpoint_url": server.url, **CLIENTS[client]}
    yield Store(put_on_server, '"', options)


every = pytest.mark.parametrize("store", KINDS, indirect=True)


@every
def test_a_file_is_read_in_parts_and_as_a_whole(store, storage):
    reader, url = storage(storage_options=store.options), store.put(DATA)
    assert reader.version(url).size == len(DATA)
    assert reader.version(url).tag.startswith(store.tag)
    assert reader.stats.requests == 1  # of both, since it is requested once
    assert reader.read([Span(url, 300, 5), Span(url, 0, 2), Span(url, 7, 0)]) == [
        DATA[300:305],
        DATA[:2],
        b"",
    ]
    assert content(reader.fetch(url)) == content(reader.fetch(url)) == DATA
    assert reader.stats.downloads == 1
    assert reader.read_small(url) == DATA
    assert reader.read_small(f"{url}-none") is None
    assert [reader.read_shared(each, 1 << 24) for each in (url, f"{url}-none")] == [DATA, None]
    assert reader.stats.retries == 0


@every
@pytest.mark.parametrize("other", [b"b" * 1000, b"a" * 1001], ids=["of the same size", "larger"])
def test_a_file_that_changes_is_never_mixed(store, storage, other):
    reader, url = storage(storage_options=store.options), store.put(b"a" * 1000)
    assert reader.read([Span(url, 0, 2)]) == [b"aa"]
    store.put(other)
    copied = pickle.loads(pickle.dumps(reader))  # noqa: S301  # our own bytes
    for call in (
        partial(reader.read, [Span(url, 0, 2)]),
        partial(reader.fetch, url),
        partial(reader.read_small, url),
        partial(copied.fetch, url),
    ):
        with pytest.raises(DatasetError, match="was changed while it was in use"):
            call()
    copied.close()
    assert content(storage(storage_options=store.options).fetch(url)) == other


def test_closing_ends_requests_in_flight(server, storage, url):
    reader = storage(timeout=60.0)
    reader.version(url)
    server.always["GET", "/a"] = faults.stall_before_headers
    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(reader.read, [Span(url, 0, 10)] * 3), threads.submit(reader.fetch, url)]
        wait_until(lambda: len(server.calls("GET")) >= 2)
        with LoadFreeTimer() as timer:
            reader.close()
            for each in running:
                with pytest.raises(DatasetError, match="was stopped"):
                    each.result(60)
        assert timer.seconds < 10
        server.released.set()


ENDS = """
import sys, threading, time
from pathlib import Path
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage, Span
url, folder = sys.argv[1:]
reader = RemoteStorage(RemoteOptions(timeout=300.0, cache=folder))
for call in (lambda: reader.read([Span(url, 0, 10)] * 3), lambda: reader.fetch(url)):
    threading.Thread(target=call, daemon=True).start()
while not list(Path(folder).glob("*.part")):
    time.sleep(0.01)
time.sleep(0.5)
print("ends")
"""


def test_the_interpreter_ends_without_waiting_for_requests(server, url, tmp_path):
    server.always["GET", "/a"] = faults.stall_before_headers
    code, printed, _ = ended("-c", ENDS, url, str(tmp_path), seconds=120)
    assert (code, printed) == (0, "ends\n")
