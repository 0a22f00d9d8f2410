"""`RemoteOptions`: options for access to remote files, retries and the cache."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, final

from samplerkit.errors import ArgumentTypeError, ArgumentValueError
from samplerkit.order import arguments

HTTP_OPTIONS = {"headers", "auth", "verify", "cert"}
"""The storage options that apply to HTTP only."""

_DIGEST = re.compile("md5:[0-9a-f]{32}|sha1:[0-9a-f]{40}|sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")


@final
@dataclass(frozen=True)
class RemoteOptions:
    """Options for remote files: access, retries and cache. Its `repr` has no secrets.

    Args:
        cache: the folder for whole files, on a disk of this machine; its ranks and workers share it. None
            for `remote` in the user's cache folder. Other files in it are never touched.
        max_cache_bytes: the most bytes of the files in it, including decompressed ones. None for half of the
            free space on that disk, where cached files count as free.
        timeout: seconds to connect, to receive the head of a response, and for each MiB of its body; a slower
            server counts as stalled.
        attempts: the most attempts of a request.
        retry_seconds: the most seconds that a request waits between its attempts, in total; 0 to retry
            without waiting. Each wait is drawn from [0, d), and d doubles with each attempt, up to 30 s; a
            `Retry-After` in seconds is respected.
        threads: the number of parallel requests for parts of files, for each thread that reads.
        digests: digests of whole files, such as "sha256:9f86d0...", by URL or by the end of its path:
            md5, sha1, sha256 or sha512.
        storage_options: options of fsspec's filesystem, such as `key`, `secret` and `endpoint_url` for S3.
            For HTTP: `headers` (a mapping), `auth` (user and password), `verify` and `cert` (as in
            `requests`).
        max_unpacked_bytes: the most decompressed bytes of a gzip archive. None for 200 times its size, or 1
            GiB if that is more.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: a number is not positive; `retry_seconds` may be 0.
        ArgumentValueError: a digest is invalid, or `cache` is a URL.

    Example:
        >>> RemoteOptions(cache="/scratch/cache", attempts=3, storage_options={"secret": "s3cr3t"})
        RemoteOptions(cache='/scratch/cache', max_cache_bytes=None, timeout=30.0, attempts=3, \
retry_seconds=120.0, threads=16, max_unpacked_bytes=None)
    """

    cache: str | os.PathLike[str] | None = None
    max_cache_bytes: int | None = None
    timeout: float = 30.0
    attempts: int = 5
    retry_seconds: float = 120.0
    threads: int = 16
    # Keys may be URLs, and values credentials, which must not get into a log through repr.
    digests: Mapping[str, str] | None = field(default=None, repr=False, hash=False)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    max_unpacked_bytes: int | None = None

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "cache": cache_folder(self.cache),
            "max_cache_bytes": arguments.limit("max_cache_bytes", self.max_cache_bytes),
            "timeout": arguments.seconds("timeout", self.timeout, may_be_zero=False),
            "attempts": arguments.at_least("attempts", self.attempts, 1),
            "retry_seconds": arguments.seconds("retry_seconds", self.retry_seconds, may_be_zero=True),
            "threads": arguments.at_least("threads", self.threads, 1),
            "digests": None if self.digests is None else _digests(self.digests),
            "storage_options": _storage_options(self.storage_options),
            "max_unpacked_bytes": arguments.limit("max_unpacked_bytes", self.max_unpacked_bytes),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, value: Any) -> RemoteOptions:
        """Makes options from options, a mapping such as in a config, or None for the defaults.

        Raises:
            ArgumentTypeError: `value` is none of these.
            ArgumentValueError: the mapping has an unknown key.

        Example:
            >>> RemoteOptions.of({"attempts": 3}).attempts, RemoteOptions.of(None) == RemoteOptions()
            (3, True)
            >>> RemoteOptions.of({"cach": "/scratch"})
            Traceback (most recent call last):
            samplerkit.errors.ArgumentValueError: remote: has no such key, got 'cach'; known are cache, \
max_cache_bytes, timeout, attempts, retry_seconds, threads, digests, storage_options, max_unpacked_bytes
        """
        if isinstance(value, RemoteOptions):
            return value
        if value is None:
            return cls()
        given = _mapping("remote", value)
        names = [each.name for each in fields(cls)]
        for name in given:
            if name not in names:
                hint = f"known are {', '.join(names)}"
                raise ArgumentValueError("remote", "has no such key", name, hint=hint)
        return cls(**given)


def cache_folder(value: Any) -> str | None:
    """Checks the argument `cache`: a folder of this machine, or None.

    Raises:
        ArgumentTypeError: it is neither a path nor None.
        ArgumentValueError: it is empty or a URL.
    """
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise ArgumentTypeError("cache", "must be a folder or None", value)
    folder = os.fspath(value)
    if not folder or "://" in folder or "\0" in folder:
        raise ArgumentValueError("cache", "must be a folder of this machine", folder)
    return folder


def _mapping(place: str, value: Any) -> dict[str, Any]:
    # The value is not shown: it may be a password.
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ArgumentTypeError(place, f"must be a mapping by name, got a {type(value).__name__}")
    return dict(value)


def _storage_options(value: Any) -> dict[str, Any]:
    given = _mapping("storage_options", value)
    if given.get("headers") is not None:
        _mapping("headers", given["headers"])
    auth = given.get("auth")
    if auth is not None and (not isinstance(auth, tuple | list) or [*map(type, auth)] != [str, str]):
        raise ArgumentTypeError("auth", "must be a user and a password, two texts")
    return given


def _digests(value: Any) -> dict[str, str]:
    digests = _mapping("digests", value)
    for text in digests.values():
        if not isinstance(text, str):
            raise ArgumentTypeError("digests", "must be texts such as 'sha256:9f86d0...'", text)
        if not _DIGEST.fullmatch(text.lower()):
            hint = "write ALGORITHM:HEX, as in 'sha256:9f86d0...', with all digits; or md5, sha1, sha512"
            raise ArgumentValueError("digests", "is not a digest of a known algorithm", text, hint=hint)
    return {key: text.lower() for key, text in digests.items()}
