"""A small HTTP server over a folder: it tells what it was asked, and can be slow or hold answers back."""

from __future__ import annotations

import re
import sys
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

_RANGE = re.compile(r"bytes=(\d+)-(\d*)\Z")


@dataclass(frozen=True)
class Asked:
    """One request.

    Args:
        method: of it.
        name: of the file, without query.
        part: the first and the last byte that were asked for; None for all.
        query: what stood behind the name.
    """

    method: str
    name: str
    part: tuple[int, int] | None
    query: str = ""


class Server:
    """Serves the files of a folder on loopback, with ETags.

    Args:
        folder: of the files.
        seconds: that each answer takes.
        on_request: is called with each request before it is answered.
    """

    def __init__(self, folder: Path, seconds: float = 0.0, on_request: Any = None) -> None:
        self.folder = folder
        self.seconds = seconds
        self.on_request = on_request
        self.asked: list[Asked] = []
        self._server = _HttpServer(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def forget(self) -> None:
        """Begins to note requests again."""
        self.asked = []

    def downloads(self) -> list[str]:
        """The shards that were asked for as a whole, sorted."""
        return sorted(
            one.name for one in self.asked if one.method == "GET" and one.part is None and _is_shard(one.name)
        )

    def parts(self) -> list[Asked]:
        """The requests for parts of shards; one for a byte or two only asks which version it is."""
        return [
            one
            for one in self.asked
            if one.method == "GET" and one.part is not None and one.part[1] - one.part[0] > 1
        ]

    def indexes(self) -> list[str]:
        """The indexes beside shards that were asked for, sorted."""
        return sorted(one.name for one in self.asked if one.method == "GET" and one.name.endswith(".skidx"))

    def noted(self, asked: Asked) -> Path:
        """Notes a request, and gives the file that is asked for when it is time to answer."""
        self.asked.append(asked)
        if self.on_request is not None:
            self.on_request(asked)
        time.sleep(self.seconds)
        return self.folder / asked.name


def _is_shard(name: str) -> bool:
    return name.endswith((".tar", ".tar.gz", ".tgz"))


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Tests close connections in the middle of an answer.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body would else wait for one another.
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *arguments: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        name, _, query = self.path.partition("?")
        matched = _RANGE.match(self.headers.get("Range", ""))
        part = (int(matched[1]), int(matched[2] or sys.maxsize)) if matched else None
        path = self.server.owner.noted(Asked(self.command, unquote(name.lstrip("/")), part, query))
        if path.is_file():
            self._send_part(path, part)
        else:
            self._send(404, b"", {})

    def _send_part(self, path: Path, part: tuple[int, int] | None) -> None:
        about = path.stat()
        tag = f'"{about.st_ino:x}-{about.st_mtime_ns:x}-{about.st_size:x}"'
        headers = {"ETag": tag, "Accept-Ranges": "bytes"}
        if part is None or self.headers.get("If-Range", tag) != tag:
            self._send(200, path.read_bytes() if self.command == "GET" else about.st_size, headers)
            return
        last = min(part[1], about.st_size - 1)
        headers["Content-Range"] = f"bytes {part[0]}-{last}/{about.st_size}"
        with path.open("rb") as file:
            file.seek(part[0])
            self._send(206, file.read(last + 1 - part[0]), headers)

    def _send(self, status: int, data: bytes | int, headers: dict[str, str]) -> None:
        """Sends data, or the head of an answer that would have so many bytes."""
        length = data if isinstance(data, int) else len(data)
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(key, value)
        self.end_headers()
        if isinstance(data, bytes) and self.command != "HEAD":
            self.wfile.write(data)
        self.wfile.flush()
