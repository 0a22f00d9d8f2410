"""A web server for tests, what it serves, and what is in local files and in a cache."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import random
import re
import socket
import ssl
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from samplerkit.storage.remote.cache_entries import FOLDER_LOCK, exclusive_lock
from samplerkit.storage.remote.storage import LocalFile
from samplerkit.storage.threads import Stop

MODIFIED = "Sat, 01 Nov 2025 10:00:00 GMT"
"""When a file was changed, which S3 always reports."""


@dataclass
class Resource:
    """The content of a path."""

    data: bytes
    etag: str | None = None
    modified: str | None = None

    @classmethod
    def of(cls, data: bytes, modified: str | None = None) -> Resource:
        return cls(data, f'"{hashlib.sha256(data).hexdigest()[:16]}"', modified)


@dataclass
class Request:
    """A request; its query is not a part of its path.

    The method of a request for the version is VERSION: a GET of the first byte, or the HEAD of s3fs.
    """

    method: str
    path: str
    headers: dict[str, str]
    query: str = ""

    @property
    def name(self) -> str:
        """The path as that of a file in a folder."""
        return unquote(self.path.lstrip("/"))

    @property
    def part(self) -> tuple[int, int] | None:
        """The first byte and the one after the last that were requested; None for all."""
        header = next((value for name, value in self.headers.items() if name.lower() == "range"), "")
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", header)
        return None if match is None else (int(match[1]), int(match[2]) + 1 if match[2] else 1 << 60)


Fault = Callable[["Handler", Resource], None]
"""Answers in place of the server; the body of a HEAD is left out by the handler."""


@dataclass
class Server:
    """A server that runs in threads of this process.

    Attributes:
        url: of its root, without a slash at the end.
        folder: whose files are served, with ETags, where `resources` has nothing.
        seconds: that each answer takes.
        on_request: is called with each request before it is answered.
        resources: by path.
        faults: by method and path: they answer the next requests, in order; None answers correctly.
        always: by method and path: it answers all requests after those of `faults`.
        requests: all of them, in order.
        released: is set when stalled answers are to end.
    """

    url: str = ""
    folder: Path | None = None
    seconds: float = 0.0
    on_request: Callable[[Request], object] | None = None
    resources: dict[str, Resource] = field(default_factory=dict)
    faults: dict[tuple[str, str], list[Fault | None]] = field(default_factory=lambda: defaultdict(list))
    always: dict[tuple[str, str], Fault] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, path: str, data: bytes, modified: str | None = None) -> str:
        """Puts data at a path, with an ETag of its content; gives the URL."""
        self.resources[path] = Resource.of(data, modified)
        return self.url + path

    def calls(self, method: str, path: str | None = None) -> list[Request]:
        """The requests of a method, to a path."""
        return [each for each in self.requests if each.method == method and path in {None, each.path}]

    @property
    def counts(self) -> Counter[tuple[str, str]]:
        """The number of requests by method and file, the latter by its name without folders."""
        return Counter((each.method, Path(each.name).name) for each in self.requests)

    def downloads(self) -> list[str]:
        """The files, without indexes, that were requested as a whole, sorted."""
        return sorted(
            each.name for each in self.calls("GET") if each.part is None and ".skidx" not in each.name
        )

    def parts(self) -> list[Request]:
        """The requests for parts."""
        return [each for each in self.calls("GET") if each.part]

    def resource(self, request: Request) -> Resource | None:
        """The requested content, or None."""
        resource = self.resources.get(request.path)
        if resource is not None or self.folder is None:
            return resource
        try:
            data, about = (self.folder / request.name).read_bytes(), (self.folder / request.name).stat()
        except OSError:
            return None
        return Resource(data, f'"{about.st_ino:x}-{about.st_mtime_ns:x}-{about.st_size:x}"')


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers one request after another on a connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a head waits for its body
    state: Server

    def _handle(self) -> None:
        path, _, query = self.path.partition("?")
        request = Request(self.command, path, dict(self.headers.items()), query)
        if self.command == "HEAD" or request.part == (0, 1):
            request.method = "VERSION"
        key = request.method, path
        with self.state.lock:
            self.state.requests.append(request)
            plan = self.state.faults.get(key)
            fault = plan.pop(0) if plan else self.state.always.get(key)
        if self.state.on_request is not None:
            self.state.on_request(request)
        time.sleep(self.state.seconds)
        resource = self.state.resource(request)
        if resource is None:
            self.send(404, b"no such file")
        else:
            (fault or answer_correctly)(self, resource)

    do_GET = do_HEAD = _handle  # noqa: N815  # as http.server calls them

    @property
    def requested_range(self) -> tuple[int, int] | None:
        """The first byte and the one after the last that are requested."""
        return Request(self.command, self.path, dict(self.headers.items())).part

    def head(self, status: int, **headers: object) -> None:
        """Sends the head; an underscore in a name is a hyphen, None leaves a header out."""
        self.send_response(status)
        for name, value in headers.items():
            if value is not None:
                self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def body(self, data: bytes) -> None:
        """Sends the body, unless the request is a HEAD."""
        if self.command != "HEAD":
            self.wfile.write(data)

    def send(self, status: int, data: bytes = b"", **headers: object) -> None:
        """Sends a whole answer."""
        self.head(status, **{"Content_Length": len(data), **headers})
        self.body(data)

    def response_to(self, resource: Resource) -> tuple[int, bytes, dict[str, object]]:
        """The status, the body and the headers of the right answer."""
        size = len(resource.data)
        headers: dict[str, object] = {
            "Content_Length": size,
            "ETag": resource.etag,
            "Last_Modified": resource.modified,
            "Accept_Ranges": "bytes",
        }
        if self.requested_range is None:
            return 200, resource.data, headers
        first, end = self.requested_range
        if first >= size:
            return 416, b"", {"Content_Range": f"bytes */{size}", "Content_Length": 0}
        data = resource.data[first:end]
        content_range = f"bytes {first}-{first + len(data) - 1}/{size}"
        return 206, data, {**headers, "Content_Length": len(data), "Content_Range": content_range}

    def reset(self) -> None:
        """Resets the connection."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.finish_connection()

    def finish_connection(self) -> None:
        """Closes the connection."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.flush()
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)

    def log_message(self, *arguments: object) -> None:
        """Logs nothing."""


def answer_correctly(handler: Handler, resource: Resource) -> None:
    """Answers without a fault."""
    status, data, headers = handler.response_to(resource)
    handler.head(status, **headers)
    handler.body(data)


def private(url: str) -> str:
    """Adds a user, a password, a query and a fragment to a URL."""
    return url.replace("://", "://secret-user:secret-password@") + "?token=secret-query#secret-query"


class _Threading(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away are what is tested here."""


@contextlib.contextmanager
def served(
    folder: Path | None = None,
    certificate: Path | None = None,
    *,
    wants_certificate: bool = False,
    handler: type[Handler] = Handler,
    **options: Any,
) -> Iterator[Server]:
    """Runs a server until the end of the block; one of HTTPS if there is a certificate with its key."""
    state = Server(folder=folder, **options)
    server = _Threading(("127.0.0.1", 0), type("Bound", (handler,), {"state": state}))
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        if wants_certificate:
            context.load_verify_locations(certificate)
            context.verify_mode = ssl.CERT_REQUIRED
        # The thread of the connection does the handshake.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        state.url = state.url.replace("http://", "https://")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


DATA = random.Random(7).randbytes(3_000_000)


def content(local: LocalFile) -> bytes:
    """Reads a fetched file, and closes it."""
    with local:
        return Path(local.path).read_bytes()


def bytes_held(folder: Path) -> int:
    """Counts the bytes of a cache while it is locked; a file that is renamed meanwhile counts once."""
    if not (folder / FOLDER_LOCK).exists():
        return 0
    sizes: dict[str, int] = {}
    with exclusive_lock(folder / FOLDER_LOCK, Stop()):
        for path in [*folder.glob("*.part"), *folder.glob("*.file")]:
            with suppress(FileNotFoundError):
                sizes[path.stem] = path.stat().st_size
    return sum(sizes.values())


def cached_sizes(folder: Path) -> list[int]:
    """The sizes of the files in a cache."""
    return sorted(path.stat().st_size for path in folder.glob("samplerkit-*.file"))


def leftovers(folder: Path) -> list[str]:
    """The names in a cache other than complete files, each with its lock."""
    files = {path.stem for path in folder.glob("samplerkit-*.file")}
    names = {path.name for path in folder.iterdir()} - {"samplerkit-remote.lock", "samplerkit-turn.lock"}
    return sorted(names - {f"{stem}.{kind}" for stem in files for kind in ("file", "lock")})
