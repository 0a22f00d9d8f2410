"""What holds by whichever client a file is read."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

import pytest

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.storage import Span
from tests.jobs import ended
from tests.own_seconds import OwnSeconds
from tests.storage.cluster import cluster
from tests.storage.remote import faults
from tests.storage.remote.conftest import read_by
from tests.storage.remote.contents import content
from tests.storage.remote.server import MODIFIED
from tests.waiting import wait_until

PATH = "/shards/a"
DATA = random.Random(5).randbytes(9_000_000)


def generations(handler, resource):
    """Answers as the stores of Google and Azure do."""
    status, data, headers = handler.served(resource)
    generation = int(resource.etag[1:12], 16)
    handler.head(status, **headers, x_goog_generation=generation, x_ms_version="2023-11-03")
    handler.body(data)


@dataclass
class Store:
    """Where a file is: how it is put there, how the tags of its versions begin, and what has to be said."""

    put: Callable[[bytes], str]
    tag: str
    options: dict[str, Any] = field(default_factory=dict)


def put_on(server, url, data):
    """Puts a file on a server that says when it was changed last, as stores do."""
    server.put(PATH, data)
    server.resources[PATH].modified = MODIFIED
    return url


def put_in_bucket(bucket, data):
    """Puts a file into a bucket of moto."""
    bucket.put_object(Key="a", Body=data)
    return "s3://shards/a"


def put_into(folder, data):
    """Puts a file into the folder of a cluster."""
    (folder / "a").write_bytes(data)
    return "hdfs://namenode:8020/a"


WAYS = ["fsspec", "both", "obstore alone"]
KINDS = ["http", "hdfs", "gs", "az", *(f"{store} by {way}" for store in ("s3", "moto") for way in WAYS)]
"""Where moto answers, and not the server of these tests, it does so as S3 does, with conditions."""


@pytest.fixture
def store(request, server, monkeypatch, tmp_path):
    kind, _, way = request.param.partition(" by ")
    if kind == "http":
        yield Store(partial(put_on, server, server.url + PATH), '"')
        return
    if kind == "hdfs":
        with cluster(tmp_path):
            yield Store(partial(put_into, tmp_path), "mtime ", {"user": "me"})
        return
    if find_spec("s3fs") is None or find_spec("obstore") is None:
        pytest.skip("s3fs or obstore is not installed")
    read_by(way or "obstore alone", monkeypatch)
    if kind == "moto":
        options = {
            "key": "test-key",
            "secret": "test-secret",
            "endpoint_url": request.getfixturevalue("endpoint"),
        }
        yield Store(partial(put_in_bucket, request.getfixturevalue("bucket")), 'ETag "', options)
        return
    tag, options = {
        "s3": ("ETag ", {"anon": True, "endpoint_url": server.url}),
        "gs": ("generation ", {"token": "anon", "endpoint_url": server.url}),
        "az": ("etag ", {"account_name": "me", "anon": True}),
    }[kind]
    if kind != "s3":
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", server.url)
        monkeypatch.setenv("GOOGLE_BASE_URL", server.url)
        monkeypatch.setattr("samplerkit.storage.remote.store_options.Bucket.allows_http", True)
        server.always["GET", PATH] = server.always["HEAD", PATH] = generations
    yield Store(partial(put_on, server, f"{kind}:/{PATH}"), tag, options)


every = pytest.mark.parametrize("store", KINDS, indirect=True)
both = pytest.mark.parametrize("store", ["http", "s3 by obstore alone"], indirect=True)


@every
def test_a_file_is_read_in_parts_and_as_a_whole(store, storage):
    reader, url = storage(storage_options=store.options), store.put(DATA)
    assert reader.version(url).size == len(DATA)
    assert reader.version(url).tag.startswith(store.tag)
    assert reader.stats.requests == 1  # of both, since it is asked once
    assert reader.read([Span(url, 300, 5), Span(url, 0, 2), Span(url, 7, 0)]) == [
        DATA[300:305],
        DATA[:2],
        b"",
    ]
    assert content(reader.fetch(url)) == content(reader.fetch(url)) == DATA
    assert (reader.stats.downloads, reader.stats.cache_hits) == (1, 1)
    assert reader.read_small(url) == DATA
    assert reader.read_small(f"{url}-none") is None
    assert [reader.exists(each) for each in (url, f"{url}-none")] == [True, False]
    assert reader.stats.retries == 0


@every
@pytest.mark.parametrize("other", [b"b" * 1000, b"a" * 1001], ids=["of the same size", "larger"])
def test_a_file_that_changes_is_never_mixed(store, storage, other):
    reader, url = storage(storage_options=store.options), store.put(b"a" * 1000)
    assert reader.read([Span(url, 0, 2)]) == [b"aa"]
    store.put(other)
    for call in (
        partial(reader.read, [Span(url, 0, 2)]),
        partial(reader.fetch, url),
        partial(reader.read_small, url),
    ):
        with pytest.raises(DatasetError, match="was changed while it was in use"):
            call()
    assert content(storage(storage_options=store.options).fetch(url)) == other


@both
def test_closing_ends_what_is_on_its_way(store, server, storage):
    reader, url = storage(timeout=60.0, storage_options=store.options), store.put(DATA)
    reader.version(url)
    server.always["GET", PATH] = faults.stalls_before_the_head
    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(reader.read, [Span(url, 0, 10)] * 3), threads.submit(reader.fetch, url)]
        wait_until(lambda: len(server.asked("GET")) >= 2)
        with OwnSeconds() as own:
            reader.close()
            for each in running:
                with pytest.raises(DatasetError, match="was given up"):
                    each.result(60)
        assert own.seconds < 10
        server.released.set()


ENDS = """
import json, sys, threading, time
from pathlib import Path
from samplerkit.storage.remote import resources
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage, Span
resources.has_filesystem = lambda scheme: False
url, folder, known = sys.argv[1:]
reader = RemoteStorage(RemoteOptions(timeout=300.0, cache=folder, storage_options=json.loads(known)))
for call in (lambda: reader.read([Span(url, 0, 10)] * 3), lambda: reader.fetch(url)):
    threading.Thread(target=call, daemon=True).start()
while not list(Path(folder).glob("*.part")):
    time.sleep(0.01)
time.sleep(0.5)
print("obstore" in sys.modules)
"""


@both
def test_an_interpreter_that_ends_does_not_wait_for_what_is_on_its_way(store, server, tmp_path):
    url = store.put(DATA)
    server.always["GET", PATH] = faults.stalls_before_the_head
    code, printed, _ = ended("-c", ENDS, url, str(tmp_path), json.dumps(store.options), seconds=120)
    assert (code, printed) == (0, f"{url.startswith('s3')}\n")
