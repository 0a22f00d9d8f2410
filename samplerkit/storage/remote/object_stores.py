"""The stores of S3, Google and Azure through obstore, where it may be used: it does not survive a fork."""

from __future__ import annotations

import logging
import re
import sys
import threading
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Any, final

from samplerkit.storage.remote.attempt import Absent, Refused, Transient, Version, changed, in_other_words
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.retries import Counts
from samplerkit.storage.remote.store_options import Bucket, bucket_of, is_forked_from_user
from samplerkit.storage.threads import Stop

_LOG = logging.getLogger(__name__)
_MIB = 1 << 20
_STATUS = re.compile(r"status code: (\d{3})")
_DENIED = {"PermissionDeniedError", "UnauthenticatedError"}
_MISTAKES = {"InvalidPathError", "NotSupportedError", "UnknownConfigurationKeyError"}

_REASONS = {
    "kind: Connect": "its server cannot be reached",
    "kind: Timeout": "the answer stalled",
    "kind: Interrupted": "the answer broke off",
    "UnexpectedRange": "other bytes came than were asked for",
    "NotPartial": "the whole file came in place of a part",
}
"""What obstore's errors have in their texts, which are not passed on: they have URLs in them."""


def is_usable() -> bool:
    """Whether this process may use obstore: it is installed, and was not used before a fork."""
    return not is_forked_from_user() and ("obstore" in sys.modules or find_spec("obstore") is not None)


@final
class ObjectStores:
    """The buckets of one process, each method one attempt; each answer is checked against the version.

    Args:
        options: how they are reached.
        counts: of the requests and bytes.
    """

    def __init__(self, options: RemoteOptions, counts: Counts) -> None:
        self._options = options
        self._counts = counts
        self._lock = threading.Lock()
        self._buckets: dict[str, Bucket | None] = {}
        self._stores: dict[tuple[str, bool], Any] = {}
        self.without_ranges: set[str] = set()

    def serves(self, url: str) -> bool:
        """Whether obstore may be used here, and can read a URL with the options that were given."""
        return is_usable() and self._bucket(url) is not None

    def version(self, url: str, stop: Stop) -> Version:
        """Asks for the size and the tag."""
        store, bucket, path = self._opened(url, 0)
        self._counts.add(requests=1)
        answer = self._called(lambda: _obstore().get(store, path, options={**_named(url), "head": True}))
        return Version(answer.meta["size"], bucket.tag(answer.meta))

    def part(self, url: str, version: Version, offset: int, length: int, stop: Stop) -> bytes:
        """Reads a part of a file, of at least one byte, and of the version that is given."""
        store, bucket, path = self._opened(url, length)
        options = {**_named(url), "range": (offset, offset + length)}
        if version.tag.startswith("ETag "):
            options["if_match"] = version.tag.removeprefix("ETag ")
        self._counts.add(requests=1)

        def ask() -> bytes:
            # obstore has compared the part that it was sent with the one that was asked for.
            answer = _obstore().get(store, path, options=options)
            _check(version, Version(answer.meta["size"], bucket.tag(answer.meta)))
            return _body(answer, length)

        data: bytes = self._called(ask)
        self._counts.add(bytes=len(data))
        return data

    def small(self, url: str, most: int, stop: Stop) -> tuple[bytes, Version]:
        """Reads a whole small file by one request; its version is in the same answer."""
        store, bucket, path = self._opened(url, most)
        self._counts.add(requests=1)

        def ask() -> tuple[bytes, Version]:
            answer = _obstore().get(store, path, options=_named(url))
            version = Version(answer.meta["size"], bucket.tag(answer.meta))
            if version.size > most:
                raise Refused(f"has {version.size} bytes, but {most} are the most that are read at once")
            return _body(answer, version.size), version

        data, version = self._called(ask)
        self._counts.add(bytes=len(data))
        return data, version

    def close(self) -> None:
        """Lets go of the stores, and of their connections with them."""
        with self._lock:
            self._stores = {}

    def _bucket(self, url: str) -> Bucket | None:
        name = "/".join(url.split("/", 3)[:3])
        with self._lock:
            if name not in self._buckets:
                self._buckets[name] = bucket_of(url, self._options)
            bucket = self._buckets[name]
        return bucket if bucket is None or bucket.has(url) else None

    def _opened(self, url: str, length: int) -> tuple[Any, Bucket, str]:
        """Gives the store of a URL, and the path in it; large parts have more time, in another store."""
        bucket = self._bucket(url)
        assert bucket is not None  # noqa: S101  # for mypy: the caller has asked whether it serves
        key = (bucket.name, length > _MIB)
        with self._lock:
            store = self._stores.get(key)
            if store is None:
                seconds = self._options.timeout * (2 if length <= _MIB else 9)
                store = self._stores[key] = self._made(bucket, seconds)
        return store, bucket, bucket.path(url)

    def _made(self, bucket: Bucket, seconds: float) -> Any:
        timeout = timedelta(seconds=self._options.timeout)
        client = {
            "allow_http": bucket.allows_http,
            "connect_timeout": timeout,
            "read_timeout": timeout,
            "timeout": timedelta(seconds=seconds),
        }
        # Trying again is our business, so that attempts are counted.
        once = {"max_retries": 0, "retry_timeout": timedelta(0), "backoff": {}}
        return self._called(lambda: bucket.store(client_options=client, retry_config=once))

    def _called(self, call: Any) -> Any:
        # Its errors hold URLs, and what servers answer: neither is passed on.
        return in_other_words(call, Exception, lambda error: _fault(error, self._options.timeout))


def _obstore() -> Any:
    # Late, for whether a process has imported it decides what its children may do.
    return import_module("obstore")


def _named(url: str) -> dict[str, Any]:
    _, mark, version = url.partition("?versionId=")
    return {"version": version} if mark else {}


def _check(version: Version, found: Version) -> None:
    """Compares the version of an answer with the one that is known."""
    if found.size != version.size:
        raise changed()
    if version.tag and found.tag != version.tag:
        if not found.tag:
            raise Transient("an answer without the tag that was given before")
        raise changed()


def _body(answer: Any, length: int) -> bytes:
    """Reads a body, and no more of it than it may have."""
    pieces: list[bytes] = []
    size = 0
    for piece in answer.stream(min_chunk_size=max(1, length)):
        pieces.append(bytes(piece))
        size += len(piece)
        if size > length:
            break
    if size != length:
        raise Transient(f"{'more' if size > length else size} bytes came in place of {length}")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _fault(error: Exception, timeout: float) -> Exception:  # noqa: PLR0911  # one for each kind of fault
    """Says in words of our own what an exception of obstore means."""
    name, text = type(error).__name__, str(error)
    status = _STATUS.search(text)
    hint = "check the URL, the credentials and the other storage_options"
    if isinstance(error, Transient | Refused):
        return error
    if isinstance(error, FileNotFoundError):
        return Absent("does not exist", "check the URL")
    if name in _DENIED:
        return Absent(f"may not be read ({name})", "check the credentials in storage_options")
    if name == "PreconditionError":
        return changed()
    if status is not None and int(status[1]) < 500 and status[1] not in {"408", "429"}:
        return Refused(f"was refused by its store (status {status[1]})", hint)
    if name in _MISTAKES or isinstance(error, ValueError | TypeError):
        return Refused(f"cannot be read through obstore ({name})", hint)
    if status is not None:
        return Transient(f"status {status[1]}")
    reason = next((reason for sign, reason in _REASONS.items() if sign in text), f"its store failed ({name})")
    return Transient(f"{reason}, for {timeout:g} s" if "stalled" in reason else reason)
