"""Parts and versions of files by HTTP, from a server without faults."""

from __future__ import annotations

import itertools
import pickle
import random
from dataclasses import asdict

import pytest

from samplerkit.errors import DatasetError, OutOfDatasetError
from samplerkit.storage.remote.storage import Span
from tests.storage.remote import faults
from tests.storage.remote.contents import DATA, content
from tests.storage.remote.server import MODIFIED, Resource, answer_correctly


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
    assert stats.bytes == 50 + 100 + 200 + len(DATA)
    assert stats.downloads == 1
    reader.close()
    assert reader.stats == pickle.loads(pickle.dumps(stats)) == stats  # noqa: S301  # our own bytes
    assert asdict(stats)["downloads"] == 1


def test_a_part_outside_of_its_file_is_an_error_before_the_request(server, storage):
    url = server.put("/a", DATA[:100])
    with pytest.raises(DatasetError, match="has 100 bytes, but those from 90 to 101 were requested"):
        storage().read([Span(url, 90, 11)])
    with pytest.raises(OutOfDatasetError):
        storage().read([Span(url, -1, 1)])
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
        (
            (None, MODIFIED),
            f"modified {MODIFIED}",
            (DATA[100:200], None, MODIFIED.replace("2025", "2026")),
        ),
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
    assert storage().read_shared(url, 100) is None
    server.always["VERSION", "/a"] = server.always["GET", "/a"] = faults.status(500)
    with pytest.raises(DatasetError, match="status 500"):
        storage().read_shared(url, 100)


def test_a_small_file_is_read_by_one_request(server, storage):
    url = server.put("/index", DATA[:1000])
    reader = storage()
    assert reader.read_small(url) == DATA[:1000]
    assert reader.version(url).size == 1000
    assert reader.read_small(f"{server.url}/none") is None
    assert [(request.method, request.path) for request in server.requests] == [
        ("GET", "/index"),
        ("GET", "/none"),
    ]
    with pytest.raises(DatasetError, match="1000 bytes, but 999 are the most"):
        storage().read_small(url, max_bytes=999)
    server.put("/index", DATA[1:1001])
    with pytest.raises(DatasetError, match="was changed"):
        reader.read_small(url)


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
