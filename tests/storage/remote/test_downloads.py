"""Whole files by HTTP: breaks, and servers without ranges or lengths."""

import pytest

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.storage import Span
from tests.storage.remote import faults
from tests.storage.remote.server import DATA, content


def send_without_size(handler, resource):
    """Sends the whole file in chunks, whatever part was requested."""
    if handler.headers.get("Range"):
        del handler.headers["Range"]
    faults.chunked(is_complete=True)(handler, resource)


@pytest.mark.parametrize("breaks", [faults.truncate_body, faults.reset_connection])
def test_a_broken_download_resumes_where_it_broke(server, storage, url, breaks):
    server.faults["GET", "/a"] = [breaks, breaks]
    reader = storage()
    assert content(reader.fetch(url)) == DATA
    ranges = [request.headers.get("Range") for request in server.calls("GET")]
    assert len(ranges) == 3
    # A reset throws away what the system has received already, so there may be nothing to resume from.
    if breaks is faults.truncate_body:
        assert ranges == [None, f"bytes={len(DATA) // 2}-", f"bytes={len(DATA) * 3 // 4}-"]
    assert reader.stats.bytes_downloaded == len(DATA)


@pytest.mark.parametrize(
    ("version", "second", "begins"),
    [('W/"weak"', None, None), ('"strong"', faults.ignore_range, f"bytes={len(DATA) // 2}-")],
    ids=["of a version that is not certain", "from a server without ranges"],
)
def test_a_broken_download_that_cannot_be_resumed_is_right(server, storage, url, version, second, begins):
    server.resources["/a"].etag = version
    server.faults["GET", "/a"] = [faults.truncate_body, second]
    assert content(storage().fetch(url)) == DATA
    assert [request.headers.get("Range") for request in server.calls("GET")] == [None, begins]


def test_a_download_that_broke_after_its_last_byte_is_complete(server, storage):
    data = DATA[: 1 << 20]  # as much as is read at a time
    url = server.put("/a", data)

    def without_the_last_chunk(handler, resource):
        handler.head(200, ETag=resource.etag, Transfer_Encoding="chunked")
        handler.body(b"%x\r\n%s\r\n" % (len(data), data))
        handler.finish_connection()

    server.faults["GET", "/a"] = [without_the_last_chunk]
    assert content(storage().fetch(url)) == data
    assert len(server.calls("GET")) == 1


def test_a_file_that_changes_before_its_download_resumes_is_never_mixed(server, storage, url, tmp_path):
    def breaks_and_changes(handler, resource):
        server.put("/a", DATA[::-1])
        faults.truncate_body(handler, resource)

    server.faults["GET", "/a"] = [breaks_and_changes]
    with pytest.raises(DatasetError, match="was changed while it was in use"):
        storage().fetch(url)
    assert list((tmp_path / "cache").glob("*.file")) == []


def test_a_file_on_a_server_without_ranges_is_requested_once_as_a_whole(server, storage):
    url = server.put("/a", DATA[:50_000])
    server.always["GET", "/a"] = faults.ignore_range
    reader = storage()
    assert reader.read([Span(url, 40_000, 10)]) == [DATA[40_000:40_010]]
    for first in (0, 17, 49_990):
        assert reader.read([Span(url, first, 10), Span(url, 1, 2)]) == [DATA[first : first + 10], DATA[1:3]]
    assert len(server.calls("GET")) == 3  # a plain one, the one that was noticed, and the one into the cache


def test_the_response_with_the_version_also_reports_that_ranges_are_unsupported(server, storage):
    url = server.put("/a", DATA[:50_000])
    server.always["GET", "/a"] = server.always["VERSION", "/a"] = faults.ignore_range
    assert storage().read([Span(url, 40_000, 10)]) == [DATA[40_000:40_010]]
    assert [request.headers.get("Range") for request in server.requests] == ["bytes=0-0", None]


def test_a_file_whose_server_reports_no_size_is_an_error_unless_it_is_small(server, storage):
    url = server.put("/a", DATA[:50_000])
    server.always["GET", "/a"] = server.always["VERSION", "/a"] = send_without_size
    for call in (storage().version, storage().fetch, lambda url: storage().read([Span(url, 3, 4)])):
        with pytest.raises(DatasetError, match="has no size, so truncation could not be detected"):
            call(url)
    assert storage().read_small(url) == DATA[:50_000]  # whose end is marked

    def without_an_end(handler, resource):
        handler.head(200, Connection="close", ETag=resource.etag)
        handler.body(resource.data)
        handler.finish_connection()

    server.always["GET", "/a"] = without_an_end
    with pytest.raises(DatasetError, match="has no size, so truncation could not be detected"):
        storage().read_small(url)
