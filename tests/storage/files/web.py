"""A web server on loopback that serves a folder and counts, and a cluster's filesystem for fsspec."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import fsspec
from fsspec.registry import _registry

from tests.storage.tar.server import Server


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
    with Server(Path(folder), on_request=web.note) as server:
        web.url = server.url
        yield web


class Cluster(fsspec.AbstractFileSystem):
    """A folder that looks like a cluster's filesystem: what a user registers for HDFS."""

    protocol = "hdfs"
    cachable = False
    folder = ""
    ledger = ""

    @classmethod
    def _strip_protocol(cls, path):
        address = urlsplit(path) if "://" in path else None
        return (address.path if address else path).rstrip("/") or "/"

    def _here(self, path):
        return Path(self.folder) / self._strip_protocol(path).lstrip("/")

    def info(self, path, **options):
        found = self._here(path)
        if not found.exists():
            raise FileNotFoundError(path)
        status = found.stat()
        kind = "directory" if found.is_dir() else "file"
        name = self._strip_protocol(path)
        return {"name": name, "size": status.st_size, "type": kind, "mtime": status.st_mtime_ns}

    def ls(self, path, detail=True, **options):
        folder = self._here(path)
        if not folder.is_dir():
            found = [self.info(path)]
        else:
            base = self._strip_protocol(path).rstrip("/")
            found = [self.info(f"{base}/{entry.name}") for entry in sorted(folder.iterdir())]
        return found if detail else [entry["name"] for entry in found]

    def _open(self, path, mode="rb", **options):
        with Path(self.ledger).open("a", encoding="utf-8") as ledger:
            ledger.write(f"{Path(path).name}\n")
        return self._here(path).open(mode)


@contextmanager
def cluster(folder, ledger):
    """Registers a filesystem for `hdfs`, as the owner of a cluster does, that serves a folder."""
    Cluster.folder, Cluster.ledger = str(folder), str(ledger)
    Path(ledger).write_text("", encoding="utf-8")
    before = _registry.get("hdfs")
    fsspec.register_implementation("hdfs", Cluster, clobber=True)
    try:
        yield "hdfs://namenode:8020"
    finally:
        _registry.pop("hdfs")  # fsspec has no way to take one back
        if before is not None:
            _registry["hdfs"] = before
