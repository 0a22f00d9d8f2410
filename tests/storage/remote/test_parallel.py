"""Parts that are read through many connections in one thread, with responses split in any way."""

import random
import time

import pytest

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.storage import Span
from tests.storage.remote import faults
from tests.storage.remote.contents import DATA
from tests.storage.remote.server import answer_correctly, served

pytestmark = pytest.mark.usefixtures("separate_requests")


class InPieces:
    """Writes data in pieces, some of them late."""

    def __init__(self, file, draw):
        self.file, self.draw = file, draw

    def write(self, data):
        cuts = sorted(self.draw.randrange(len(data) + 1) for _ in range(self.draw.randrange(4)))
        for first, last in zip([0, *cuts], [*cuts, len(data)], strict=True):
            self.file.write(data[first:last])
            self.file.flush()
            time.sleep(self.draw.choice([0, 0, 0.003]))


def answers_in_pieces(handler, resource):
    """Answers correctly; the connection stays open, or closes, announced or not."""
    draw, file = random.Random(handler.headers["Range"]), handler.wfile
    handler.wfile = InPieces(file, draw)
    answer_correctly(handler, resource)
    handler.wfile = file
    if draw.random() < 0.1:
        handler.finish_connection()


@pytest.mark.parametrize("is_secure", [False, True], ids=["http", "https"])
def test_parts_do_not_depend_on_how_the_response_is_split(is_secure, certificate, storage):
    draw = random.Random(5)
    with served(certificate=certificate if is_secure else None) as server:
        url = server.put("/a", DATA)
        server.always["GET", "/a"] = answers_in_pieces
        reader = storage(threads=4, attempts=9, storage_options={"verify": str(certificate)})
        for _ in range(6):
            parts = [(draw.randrange(200_000), draw.choice([1, 700, 90_000])) for _ in range(25)]
            parts_read = reader.read([Span(url, *part) for part in parts])
            assert parts_read == [DATA[first : first + length] for first, length in parts]
        assert len(server.requests) <= reader.stats.requests


def test_a_connection_serves_one_part_after_another(server, storage, url):
    connections = set()

    def answers(handler, resource):
        connections.add(handler.client_address)
        answer_correctly(handler, resource)

    server.always["GET", "/a"] = answers
    spans = [Span(url, first, 700) for first in range(0, 100_000, 5000)]
    assert storage(threads=2).read(spans) == [DATA[span.offset :][:700] for span in spans]
    assert len(connections) <= 2


@pytest.mark.parametrize("is_secure", [False, True], ids=["http", "https"])
def test_a_header_without_an_end_is_an_incomplete_response(is_secure, certificate, storage):
    with served(certificate=certificate if is_secure else None) as server:
        url, head = server.put("/a", DATA), b"HTTP/1.1 206 Partial Content\r\n"
        server.always["GET", "/a"] = lambda handler, _: faults.flood(handler, head, b"a: b\r\n" * 10_000)
        reader = storage(attempts=1, storage_options={"verify": str(certificate)})
        with pytest.raises(DatasetError, match="the response broke off"):
            reader.read([Span(url, 0, 700), Span(url, 700, 700)])


def test_a_stalled_part_is_requested_again_and_delays_no_other(server, storage, url):
    other = server.put("/b", DATA)
    server.faults["GET", "/a"] = [faults.stall_before_headers, faults.stall_in_body]
    reader = storage(timeout=0.5, threads=2)
    spans = [Span(url, 0, 700), *(Span(other, first, 700) for first in range(0, 100_000, 5000))]
    assert reader.read(spans) == [DATA[span.offset :][:700] for span in spans]
    assert reader.stats.retries == 2
    assert len(server.calls("GET", "/b")) == 20


def test_a_part_larger_than_one_thread_reads_is_right(storage, url):
    spans = [Span(url, 5, 1 << 20), Span(url, 5, (1 << 20) + 1), Span(url, 0, len(DATA))]
    assert storage().read(spans) == [DATA[span.offset :][: span.length] for span in spans]
