"""A small HTTP server over a folder: it tells what it was asked, and can be slow or hold answers back."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.storage.remote.server import Handler, Resource, right, served


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
        self._running = ExitStack()

    def __enter__(self) -> Server:
        handler = type("OfFolder", (_Handler,), {"owner": self})
        self.url = self._running.enter_context(served(handler=handler)).url
        return self

    def __exit__(self, *exception: object) -> None:
        self._running.close()

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


class _Handler(Handler):
    owner: Server

    def _answer(self) -> None:
        name, _, query = self.path.partition("?")
        first, end = self.asked_range or (0, 0)
        part = (first, end - 1) if end else None
        path = self.owner.noted(Asked(self.command, unquote(name.lstrip("/")), part, query))
        if not path.is_file():
            self.say(404)
            return
        about = path.stat()
        tag = f'"{about.st_ino:x}-{about.st_mtime_ns:x}-{about.st_size:x}"'
        right(self, Resource(path.read_bytes(), tag))
