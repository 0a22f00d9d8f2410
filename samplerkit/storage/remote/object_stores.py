"""The stores of S3, Google and Azure through obstore, where it may be used: it does not survive a fork."""

from __future__ import annotations

import re
import threading
import time
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from typing import Any, final

from samplerkit.storage.remote.access import Transient, Version, changed, library_fault
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.retries import Address, Client, Counts, FileBytes
from samplerkit.storage.remote.store_options import (
    SIGNED_SECONDS,
    Bucket,
    bucket_of,
    may_use_obstore,
    names_version,
)
from samplerkit.storage.threads import Stop

_MIB = 1 << 20
_USED_SECONDS = 300.0
_MOST_ADDRESSES = 1024
_STATUS = re.compile(r"status code: (\d{3})")
_STATUSES = {"PermissionDeniedError": 403, "UnauthenticatedError": 401}
_MISTAKES = {"InvalidPathError", "NotSupportedError", "UnknownConfigurationKeyError"}

_REASONS = {
    "kind: Connect": "its server cannot be reached",
    "kind: Timeout": "the answer stalled",
    "kind: Interrupted": "the answer broke off",
    "UnexpectedRange": "other bytes came than were asked for",
    "NotPartial": "the whole file came in place of a part",
}
"""What obstore's errors have in their texts, which are not passed on: they have URLs in them."""


@final
class ObjectStores(Client):
    """The buckets of one process; each answer is checked against the version."""

    def __init__(self, options: RemoteOptions, counts: Counts) -> None:
        super().__init__(options, counts)
        self._lock = threading.Lock()
        self._buckets: dict[str, Bucket | None] = {}
        self._stores: dict[tuple[str, bool], Any] = {}
        self._addresses: dict[str, Address | None] = {}
        self._signed_until = 0.0

    def serves(self, url: str) -> bool:
        """Whether obstore can read a URL with the options that were given."""
        bucket = self._bucket(url)
        return bucket is not None and bucket.has(url)

    def version(self, url: str, stop: Stop) -> Version:
        """Asks for the size and the tag."""
        return self._got(url, 0, head=True)[1]

    def pieces(self, url: str, version: Version, offset: int, length: int, stop: Stop) -> list[FileBytes]:
        """Reads a part of a file, of at least one byte, and of the version that is given."""
        options: dict[str, Any] = {"range": (offset, offset + length)}
        if version.tag.startswith("ETag "):
            options["if_match"] = version.tag.removeprefix("ETag ")
        # obstore has compared the part that it was sent with the one that was asked for.
        answer, found = self._got(url, length, **options)
        version.check(found.size, found.tag)
        pieces: list[FileBytes] = []
        size = 0
        for piece in answer.stream(min_chunk_size=min(length, _MIB)):
            pieces.append(memoryview(piece))
            size += len(piece)
            if size >= length:  # to ask for the end of the answer takes as long as to ask for its beginning
                break
        if size != length:
            raise Transient(f"{'more' if size > length else size} bytes came in place of {length}")
        self.counts.add(bytes=size)
        return pieces

    def address(self, url: str) -> Address | None:
        """Gives a URL of HTTP for a file of S3, signed for an hour, and signed again after minutes.

        It is signed without obstore where that can be, so in every process, whatever it was forked from.
        """
        now = time.monotonic()
        with self._lock:
            if now > self._signed_until or len(self._addresses) >= _MOST_ADDRESSES:
                self._addresses, self._signed_until = {}, now + _USED_SECONDS
        if url not in self._addresses:
            self._addresses[url] = self._signed(url)
        return self._addresses[url]

    def fault(self, error: Exception) -> Exception:
        """Gives what an exception of obstore means."""
        name, text = type(error).__name__, str(error)
        if name == "PreconditionError":
            return changed()
        found = _STATUS.search(text)
        status = int(found[1]) if found else _STATUSES.get(name)
        reason = next((reason for sign, reason in _REASONS.items() if sign in text), None)
        if status is None and reason is not None:
            stalls = f", for {self.options.timeout:g} s" if "stalled" in reason else ""
            return Transient(f"{reason}{stalls}")
        return library_fault(error, "obstore", status, is_mistake=name in _MISTAKES)

    def close(self) -> None:
        """Lets go of the stores, and of their connections with them."""
        with self._lock:
            self._stores = {}

    def _bucket(self, url: str) -> Bucket | None:
        name = "/".join(url.split("/", 3)[:3])
        with self._lock:
            if name not in self._buckets:
                self._buckets[name] = bucket_of(url, self.options)
            return self._buckets[name]

    def _signed(self, url: str) -> Address | None:
        with suppress(Exception):  # the client of the file says why it cannot be read
            bucket = self._bucket(url)
            if bucket is None or not bucket.may_be_signed(url):
                return None
            signed = bucket.signed(url)
            if not signed and may_use_obstore():
                seconds = timedelta(seconds=SIGNED_SECONDS)
                store = self._store(bucket, is_large=False)
                signed = import_module("obstore").sign(store, "GET", bucket.path(url), seconds)
            return Address(signed, bucket.response_tag) if signed else None
        return None

    def _got(self, url: str, length: int, **options: Any) -> tuple[Any, Version]:
        """Asks for a file, or a part of it; gives the answer with the version that it is of."""
        bucket = self._bucket(url)
        assert bucket is not None  # noqa: S101  # for mypy: the caller has asked whether it serves
        if names_version(url):
            options["version"] = url.partition("?versionId=")[2]
        self.counts.add(requests=1)
        store = self._store(bucket, is_large=length > _MIB)
        # Late, for whether a process has imported it decides what its children may do.
        answer = import_module("obstore").get(store, bucket.path(url), options=options)
        meta = answer.meta
        return answer, Version(meta["size"], bucket.tag(meta))

    def _store(self, bucket: Bucket, *, is_large: bool) -> Any:
        """Gives the store of a bucket; large parts have more time, in another one."""
        with self._lock:
            store = self._stores.get((bucket.name, is_large))
            if store is None:
                timeout = timedelta(seconds=self.options.timeout)
                client = {
                    "allow_http": bucket.allows_http,
                    "connect_timeout": timeout,
                    "read_timeout": timeout,
                    "timeout": timeout * (9 if is_large else 2),
                }
                # Trying again is our business, so that attempts are counted.
                once = {"max_retries": 0, "retry_timeout": timedelta(0), "backoff": {}}
                store = bucket.store(client_options=client, retry_config=once)
                self._stores[bucket.name, is_large] = store
        return store
