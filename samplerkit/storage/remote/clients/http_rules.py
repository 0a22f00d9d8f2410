"""What the head of an HTTP answer says: is it what was asked for, of which version, or where else to ask.

Source: RFC 9110, HTTP Semantics.
"""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final
from urllib.parse import urljoin, urlsplit

from samplerkit.storage.remote.attempt import UNKNOWN_SIZE, Absent, Refused, Transient, Version, changed
from samplerkit.storage.urls import is_web

Headers = Mapping[str, str]

_MODIFIED = "modified "
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", re.ASCII)
_MOST_DIGITS = 18
"""A longer number is no size of a file; Python refuses to read one of some thousand digits."""


@final
@dataclass(frozen=True)
class ContentRange:
    """What a `Content-Range` says.

    Args:
        first: the first byte, -1 if there is none.
        last: the last byte, -1 if there is none.
        size: of the whole file, -1 if it is not told.
    """

    first: int
    last: int
    size: int


def check_status(status: int, headers: Headers) -> None:
    """Lets an answer pass that has content, and raises the fault that another one means.

    Raises:
        Transient: 408, 429 and 5xx, with the time that `Retry-After` asks for.
        Absent: 401, 403, 404, 410.
        Refused: any other.
    """
    if status in {200, 206}:
        return
    if status in {408, 429} or status >= 500:
        raise Transient(f"status {status}", _retry_after(headers))
    if status in {404, 410}:
        raise Absent(f"does not exist (status {status})", "check the URL")
    if status in {401, 403}:
        hint = "check the credentials; a signed URL may have expired"
        raise Absent(f"may not be read (status {status})", hint)
    raise Refused(f"was refused by its server (status {status})")


def check_encoding(headers: Headers) -> None:
    """Refuses content that is compressed on its way: its ranges and lengths are not those of the file.

    Raises:
        Refused: it is.
    """
    encoding = headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in {"", "identity"}:
        problem = f"is sent with the content encoding {encoding[:20]!r}, though none was asked for"
        raise Refused(problem, "store it without Content-Encoding")


def version_of(size: int, headers: Headers) -> Version:
    """Gives a version, tagged by the ETag, else by the time of the last change."""
    tag = headers.get("ETag", "").strip()
    if not tag and "Last-Modified" in headers:
        tag = _MODIFIED + headers["Last-Modified"].strip()
    return Version(size, tag)


def check_version(version: Version, size: int, headers: Headers) -> None:
    """Holds an answer against the version that is known.

    Args:
        version: as it was first told.
        size: of the whole file as this answer says, -1 if it does not.
        headers: of this answer.

    Raises:
        Refused: it is of another version.
        Transient: it does not tell its version, though that was sent before.
    """
    if UNKNOWN_SIZE not in {size, version.size} and size != version.size:
        raise changed()
    if not version.tag:
        return
    name = "Last-Modified" if version.tag.startswith(_MODIFIED) else "ETag"
    told = headers.get(name, "").strip()
    if not told:
        raise Transient(f"an answer without the {name} that was sent before")
    # Weakness tells about equality of meaning; a weak tag that differs is another version all the same.
    if told.removeprefix("W/") != version.tag.removeprefix(_MODIFIED).removeprefix("W/"):
        raise changed()


def content_length(headers: Headers) -> int:
    """Gives the length that is given for a body, -1 if none is.

    Raises:
        Transient: it is longer than any file.
    """
    text = headers.get("Content-Length", "").strip()
    is_chunked = "chunked" in headers.get("Transfer-Encoding", "").lower()
    return _number(text) if text.isascii() and text.isdigit() and not is_chunked else UNKNOWN_SIZE


def has_end(headers: Headers) -> bool:
    """Returns whether the end of a body can be told from a connection that broke."""
    return content_length(headers) >= 0 or "chunked" in headers.get("Transfer-Encoding", "").lower()


def content_range(headers: Headers) -> ContentRange:
    """Gives what `Content-Range` says.

    Raises:
        Transient: it is not there, cannot be understood, or says more bytes than any file has.

    Example:
        >>> content_range({"Content-Range": "bytes 0-9/100"})
        ContentRange(first=0, last=9, size=100)
    """
    match = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", "").strip())
    if match is None:
        raise Transient("a part without a right Content-Range")
    first, last, size = match.groups()
    return ContentRange(
        -1 if first is None else _number(first),
        -1 if last is None else _number(last),
        -1 if size == "*" else _number(size),
    )


def _number(digits: str) -> int:
    if len(digits.lstrip("0")) > _MOST_DIGITS:
        raise Transient(f"a length of {len(digits)} digits, which no file has")
    return int(digits)


def _retry_after(headers: Headers) -> float | None:
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0.0, moment - time.time())


MOST_HOPS = 10

_STATUSES = {301, 302, 303, 307, 308}
_PORTS = {"http": 80, "https": 443}


def target_of(url: str, status: int, headers: Mapping[str, str]) -> str | None:
    """Gives the URL that an answer redirects to; None if it does not.

    Raises:
        Refused: to what is not HTTP, or from HTTPS to HTTP.
        ValueError: the place makes no sense.

    Example:
        >>> target_of("https://host/a?v=2", 302, {"Location": "../b"})
        'https://host/b'
    """
    if status not in _STATUSES or "Location" not in headers:
        return None
    # The bytes of a header come as if they were Latin-1; most servers mean UTF-8.
    place = headers["Location"].encode("latin-1").decode("utf-8")
    target = urljoin(url, place.strip())
    if not is_web(target) or not urlsplit(target).hostname:
        raise Refused("was redirected to what is no URL of HTTP", "check the server's redirects")
    if url.lower().startswith("https:") and not target.lower().startswith("https:"):
        problem = "was redirected from https to http, where anyone on the way can read and change it"
        raise Refused(problem, "let the server redirect to https, or name the http URL if you trust the way")
    return target


def is_same_place(url: str, target: str) -> bool:
    """Whether credentials for one URL are for the other: scheme, host and port are the same, or now safer.

    Example:
        >>> is_same_place("https://host/a", "https://host:443/b"), is_same_place("http://host/a", "https://host/a")
        (True, True)
        >>> is_same_place("http://host/a", "http://host:8080/a")
        False
    """
    before, after = _place(url), _place(target)
    is_safer = (before[1], before[2], after[1], after[2]) == ("http", 80, "https", 443)
    return before == after or (before[0] == after[0] and is_safer)


def _place(url: str) -> tuple[str | None, str, int | None]:
    parts = urlsplit(url)
    return parts.hostname, parts.scheme, parts.port or _PORTS.get(parts.scheme)
