"""A web server on loopback that serves a folder and counts, and a cluster's filesystem for fsspec."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import fsspec
from fsspec.registry import _registry


class Web:
    """What a server was asked.

    Attributes:
        url: of the folder, without a slash at its end.
        asked: how often each method was asked for each file.
        queries: the queries that came along.
    """

    def __init__(self, url):
        self.url = url
        self.asked = Counter()
        self.queries = set()

    def count(self, method):
        return sum(count for (asked, _), count in self.asked.items() if asked == method)


@contextmanager
def serving(folder):
    """Serves a folder to this machine, as a plain web server does: HEAD, GET, parts, tags."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self):
            self.answer(with_body=False)

        def do_GET(self):
            self.answer(with_body=True)

        def answer(self, with_body):
            address = urlsplit(self.path)
            with lock:
                web.asked[self.command, Path(address.path).name] += 1
                web.queries.add(address.query)
            path = Path(folder) / address.path.lstrip("/")
            if not path.is_file():
                self.send_error(404)
                return
            data, status = path.read_bytes(), 200
            size, first, last = len(data), 0, len(data) - 1
            if with_body and "Range" in self.headers:
                first, _, end = self.headers["Range"].removeprefix("bytes=").partition("-")
                first, last, status = int(first), min(int(end), size - 1) if end else size - 1, 206
            self.send_response(status)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("ETag", f'"{path.stat().st_mtime_ns:x}"')
            self.send_header("Content-Length", str(last + 1 - int(first)))
            if status == 206:
                self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
            self.end_headers()
            if with_body:
                self.wfile.write(data[int(first) : last + 1])

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.socket.listen(128)
    web = Web(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


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
