"""Remote files over HTTP and by every client: right bytes, few requests, and responses that fit them."""

import hashlib
import itertools
import pickle
import random
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import pytest

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.http_response import Response
from samplerkit.storage.remote.storage import RemoteStorage, Span
from samplerkit.storage.threads import Stop
from tests.jobs import ended
from tests.storage.cluster import cluster
from tests.storage.remote import faults
from tests.storage.remote.conftest import CLIENTS
from tests.storage.remote.server import DATA, MODIFIED, Resource, answer_correctly, content
from tests.waiting import wait_until, within


@pytest.mark.usefixtures("separate_requests")
def test_the_counts_agree_with_those_of_the_server(server, storage, url):
    server.faults["GET", "/a"] = [faults.status(503), faults.truncate_body, None]
    reader = storage(threads=1)
    reader.read([Span(url, 0, 100), Span(url, 500, 200)])
    with reader.fetch(url), reader.fetch(url):
        pass
    stats = reader.stats
    assert stats.requests == len(server.requests) == 6
    assert stats.retries == 2
    assert stats.bytes_downloaded == 50 + 100 + 200 + len(DATA)
    assert stats.downloads == 1
    reader.close()
    assert reader.stats == pickle.loads(pickle.dumps(stats)) == stats  # noqa: S301  # our own bytes
    assert asdict(stats)["downloads"] == 1


def test_a_part_outside_of_its_file_is_an_error_before_the_request(server, storage):
    url = server.put("/a", DATA[:100])
    with pytest.raises(DatasetError, match="has 100 bytes, but those from 90 to 101 were requested"):
        storage().read([Span(url, 90, 11)])
    for part in ((-1, 2), (5, -1)):
        with pytest.raises(DatasetError, match="has 100 bytes"):
            storage().read([Span(url, *part)])
    assert server.calls("GET") == []


def test_an_empty_file_is_a_file(server, storage):
    url = server.put("/empty", b"")
    reader = storage()
    assert reader.version(url).size == 0
    assert content(reader.fetch(url)) == b""
    assert reader.read([Span(url, 0, 0)]) == [b""]


@pytest.mark.usefixtures("separate_requests")
def test_a_file_that_changes_between_the_parts_of_one_call_is_never_mixed(server, storage):
    # A path for each moment: what was given up at one may still be answered at the next.
    for after in range(1, 40, 4):
        path = f"/{after}"
        url = server.put(path, b"a" * 1000)
        answers = itertools.count(1)

        def answer(handler, resource, after=after, answers=answers):
            answer_correctly(handler, Resource.of(b"b" * 1000) if next(answers) > after else resource)

        server.always["GET", path] = answer
        with pytest.raises(DatasetError, match="was changed"):
            storage().read([Span(url, 10 * number, 10) for number in range(40)])


@pytest.mark.parametrize(
    ("before", "tag", "after"),
    [
        ((None, MODIFIED), f"modified {MODIFIED}", (DATA[100:200], None, MODIFIED.replace("2025", "2026"))),
        ((), "", (DATA[:101],)),
    ],
    ids=["a time", "the size alone"],
)
def test_without_an_etag_versions_are_distinguished_by_other_headers(server, storage, before, tag, after):
    url, reader = server.put("/a", b""), storage()
    server.resources["/a"] = Resource(DATA[:100], *before)
    assert reader.version(url).tag == tag
    assert reader.read([Span(url, 5, 7)]) == [DATA[5:12]]
    assert content(reader.fetch(url)) == DATA[:100]
    server.resources["/a"] = Resource(*after)
    with pytest.raises(DatasetError, match="was changed"):
        reader.read([Span(url, 0, 10)])


def test_a_shared_read_without_permission_returns_none(server, storage):
    url = server.put("/a", DATA[:10])
    server.always["VERSION", "/a"] = faults.status(403)
    assert storage().read_shared(url) is None
    server.always["VERSION", "/a"] = server.always["GET", "/a"] = faults.status(500)
    with pytest.raises(DatasetError, match="status 500"):
        storage().read_shared(url)


@pytest.mark.parametrize("read", [RemoteStorage.read_shared, RemoteStorage.read_small])
def test_a_file_with_another_digest_is_an_error_however_it_is_read(server, storage, read):
    url = server.put("/a", DATA[:10])
    with pytest.raises(DatasetError, match=r"the digest is md5:.*, but md5:0{32} was given"):
        read(storage(digests={"a": f"md5:{'0' * 32}"}), url)
    assert read(storage(digests={"a": f"md5:{hashlib.md5(DATA[:10]).hexdigest()}"}), url) == DATA[:10]  # noqa: S324


def test_a_small_file_is_read_by_one_request(server, storage, monkeypatch):
    url = server.put("/index", DATA[:1000])
    reader = storage()
    assert reader.read_small(url) == DATA[:1000]
    assert reader.version(url).size == 1000
    assert reader.read_small(f"{server.url}/none") is None
    requests = [(request.method, request.path) for request in server.requests]
    assert requests == [("GET", "/index"), ("GET", "/none")]
    monkeypatch.setattr("samplerkit.storage.remote.retries.MAX_BYTES", 999)
    with pytest.raises(DatasetError, match="1000 bytes, but 999 are the most"):
        storage().read_small(url)


def test_parts_near_one_another_share_a_request_and_long_ones_have_several(server, storage, monkeypatch):
    monkeypatch.setattr("samplerkit.storage.remote.access.LONGEST", 200_000)
    url, other = server.put("/a", DATA), server.put("/b", DATA[::-1])
    reader = storage()
    draw = random.Random(3)
    spans = [Span(url, draw.randrange(100_000), draw.randrange(50_000)) for _ in range(40)]
    spans += [Span(url, 500_000 + 64 * 1024 * number, 7) for number in range(4)]
    spans += [Span(url, 1_000_000, 900_000), Span(url, 1_700_000, 300_000), Span(url, 2_000_100, 9)]
    spans += [spans[3], Span(other, 2_000_200, 9), Span(url, len(DATA), 0)]
    data = {url: DATA, other: DATA[::-1]}
    assert reader.read(spans) == [data[span.url][span.offset :][: span.length] for span in spans]
    assert reader.read([]) == []
    assert len(server.calls("VERSION")) == 2
    requests = [(request.name, request.part) for request in server.calls("GET")]
    assert len(requests) == len(set(requests)) <= 12
    assert max(end - first for _, (first, end) in requests) <= 200_000


PATH = "/shards/a"
LARGE = random.Random(5).randbytes(9_000_000)


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
        url = server.put(PATH, data, MODIFIED)
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
    reader, url = storage(storage_options=store.options), store.put(LARGE)
    assert reader.version(url).size == len(LARGE)
    assert reader.version(url).tag.startswith(store.tag)
    assert reader.stats.requests == 1  # of both, since it is requested once
    assert reader.read([Span(url, 300, 5), Span(url, 0, 2), Span(url, 7, 0)]) == [
        LARGE[300:305],
        LARGE[:2],
        b"",
    ]
    assert content(reader.fetch(url)) == content(reader.fetch(url)) == LARGE
    assert reader.stats.downloads == 1
    assert reader.read_small(url) == LARGE
    assert reader.read_small(f"{url}-none") is None
    assert [reader.read_shared(each) for each in (url, f"{url}-none")] == [LARGE, None]
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
        with within(10):
            reader.close()
            for each in running:
                with pytest.raises(DatasetError, match="was closed while it was read"):
                    each.result(60)
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


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
RESPONSES = {
    "a length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde", b"abcde", True),
    "lines that end with newlines alone": (b"HTTP/1.1 200 OK\nContent-Length: 5\n\nabcde", b"abcde", True),
    "a response before": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
        b"a",
        True,
    ),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    "chunks": (CHUNKED + b"2;note\r\nab\r\n3\r\ncde\r\n0\r\n\r\n", b"abcde", True),
    "no length": (b"HTTP/1.1 200 OK\r\n\r\nabcde", b"abcde", False),
    "a length that is not kept to": (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabcde", b"abcde", False),
    "an end": (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na", b"a", False),
    "an old version": (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", b"a", False),
}


@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("case", RESPONSES)
def test_a_body_ends_as_framed_and_a_short_remainder_is_read(case, is_read):
    data, body, stays_open = RESPONSES[case]
    near, far = socket.socketpair()
    with near, far:
        far.sendall(data)
        far.shutdown(socket.SHUT_WR)
        response = Response(near, 5.0, Stop().check)
        if is_read:
            assert b"".join(map(bytes, iter(response.read, b""))) == body
        assert response.finish() == (stays_open and (is_read or case != "chunks"))
