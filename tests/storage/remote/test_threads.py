"""Threads: when they are free again, and that none remains."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.storage import RemoteStorage, Span
from tests.jobs import ended
from tests.load_free_timer import LoadFreeTimer
from tests.storage.remote import faults
from tests.storage.remote.children import Child
from tests.storage.remote.contents import DATA, content
from tests.waiting import new_threads, wait_until

pytestmark = pytest.mark.usefixtures("separate_requests")


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
    with LoadFreeTimer() as timer:
        with pytest.raises(DatasetError, match="status 404"):
            reader.read([*spans, Span(missing, 0, 10)])
        # Its threads are free again, long before the server lets them go.
        parts = [Span(right_one, number, 10) for number in range(4)]
        assert reader.read(parts) == [DATA[number : number + 10] for number in range(4)]
    assert timer.seconds < 15
    assert len(server.calls("GET", "/a")) <= 4


def test_an_interrupted_read_leaves_no_thread(server, storage, url):
    server.always["GET", "/a"] = faults.stall_before_headers
    child = Child(interrupted, storage(timeout=60.0, threads=4).options, url)
    wait_until(lambda: len(server.calls("GET")) >= 4)
    with LoadFreeTimer() as timer:
        os.kill(child.process.pid, signal.SIGINT)
        assert child.result() == []
    assert timer.seconds < 10


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
