"""A web server on loopback that serves a folder and counts."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from tests.storage.remote.server import served


class Web:
    """What a server was asked.

    Attributes:
        url: of the folder, without a slash at its end.
        asked: how often each method was asked for each file.
        queries: the queries that came along.
    """

    def __init__(self):
        self.url = ""
        self.asked = Counter()
        self.queries = set()
        self._lock = threading.Lock()

    def note(self, asked):
        with self._lock:
            self.asked[asked.method, Path(asked.name).name] += 1
            self.queries.add(asked.query)

    def count(self, method):
        return sum(count for (asked, _), count in self.asked.items() if asked == method)


@contextmanager
def serving(folder):
    """Serves a folder to this machine, and counts what is asked."""
    web = Web()
    with served(Path(folder), on_request=web.note) as server:
        web.url = server.url
        yield web
