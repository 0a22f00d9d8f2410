"""Where an HTTP answer sends the one who asks, and what goes along.

Source: RFC 9110, HTTP Semantics, section 15.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urljoin, urlsplit

from samplerkit.storage.remote.faults import Refused
from samplerkit.storage.urls import is_web

MOST_HOPS = 10

_STATUSES = {301, 302, 303, 307, 308}
_PORTS = {"http": 80, "https": 443}


def target_of(url: str, status: int, headers: Mapping[str, str]) -> str | None:
    """Gives the URL that an answer redirects to; None if it does not.

    Args:
        url: that was asked.
        status: of the answer.
        headers: of the answer.

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
