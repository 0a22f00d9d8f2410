"""Parts that are read through many connections in one thread, and by many threads at once."""

import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.storage import RemoteStorage, Span
from tests.jobs import ended
from tests.storage.crowd import Child
from tests.storage.remote import faults
from tests.storage.remote.server import DATA, answer_correctly, content, served
from tests.waiting import new_threads, wait_until, within

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


def test_a_server_that_redirects_is_not_asked_in_vain_again(server, storage, url):
    server.always["GET", "/a"] = faults.redirect(302)
    reader, spans, numbers = storage(), [Span(url, first, 700) for first in range(0, 100_000, 50_000)], []
    for _ in range(2):
        server.requests.clear()
        assert reader.read(spans) == [DATA[span.offset :][:700] for span in spans]
        numbers.append(len(server.calls("GET")))
    assert numbers == [6, 4]


def test_a_part_larger_than_one_thread_reads_is_right(storage, url):
    spans = [Span(url, 5, 1 << 20), Span(url, 5, (1 << 20) + 1), Span(url, 0, len(DATA))]
    assert storage().read(spans) == [DATA[span.offset :][: span.length] for span in spans]


def interrupted(options, url):
    """Reads until it is interrupted, and waits until no thread is left."""
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt), RemoteStorage(options) as reader:
        reader.read([Span(url, number, 10) for number in range(20)])
    wait_until(lambda: not new_threads(before))
    return [thread.name for thread in new_threads(before)]


IMPORTS = """
import sys, threading
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage, Span
from samplerkit.storage.threads import importing

url, folder = sys.argv[1:]

class Finder:
    def find_spec(name, *_):
        if threading.current_thread() is not threading.main_thread() and not importing._is_owned():
            print(name)

def read():
    with RemoteStorage(RemoteOptions(cache=folder)) as reader:
        reader.read([Span(url, 1 << 18, 10), Span(url, 0, 10)])
        for _ in range(2):
            reader.fetch(url).close()
        reader.read_small(f"{url}-none")

sys.meta_path.insert(0, Finder)
thread = threading.Thread(target=read)
thread.start()
thread.join()
print("read")
"""


def test_threads_that_read_import_nothing(url, tmp_path):
    """A child that is forked while a thread imports a module waits for it without end: see `importing`."""
    assert ended("-c", IMPORTS, url, str(tmp_path), seconds=120)[:2] == (0, "read\n")


def test_a_failed_part_cancels_the_others(server, storage):
    stalled, missing, right_one = (server.put(path, DATA[:1000]) for path in ("/a", "/b", "/c"))
    server.always["GET", "/a"] = faults.stall_before_headers
    server.always["GET", "/b"] = faults.status(404)
    spans = [Span(stalled, number, 10) for number in range(3)]
    reader = storage(timeout=60.0, threads=4)
    reader.read([Span(right_one, 0, 10)])
    with within(15):
        with pytest.raises(DatasetError, match="status 404"):
            reader.read([*spans, Span(missing, 0, 10)])
        # Its threads are free again, long before the server lets them go.
        parts = [Span(right_one, number, 10) for number in range(4)]
        assert reader.read(parts) == [DATA[number : number + 10] for number in range(4)]
    assert len(server.calls("GET", "/a")) <= 4


def test_an_interrupted_read_leaves_no_thread(server, storage, url):
    server.always["GET", "/a"] = faults.stall_before_headers
    child = Child(interrupted, storage(timeout=60.0, threads=4).options, url)
    wait_until(lambda: len(server.calls("GET")) >= 4)
    with within(10):
        os.kill(child.process.pid, signal.SIGINT)
        assert child.result() == []


def test_descriptors_and_threads_do_not_grow_with_use(server, storage):
    def open_now():
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    urls = [server.put(f"/{number}", DATA[number:][:1000]) for number in range(5)]
    reader, before = storage(threads=2, max_cache_bytes=3000), open_now()
    for _ in range(15):
        reader.read([Span(url, first, 10) for url in urls for first in range(4)])
        for url in urls:
            content(reader.fetch(url))
    # Two threads, and one connection more for whole files. The server, in this process too, has a descriptor
    # and a thread for each connection. What is left of each of fifteen rounds would be more.
    most = before[0] + 2 * 3 + 1, before[1] + 2 + 3
    wait_until(lambda: all(now <= bound for now, bound in zip(open_now(), most, strict=True)))
