"""URLs as text: which paths are remote, how one is shown, and what distinguishes two."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

_REMOTE = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]+::)*([A-Za-z][A-Za-z0-9+.-]+)://")
_LOCAL_SCHEMES = {"file", "local"}
_WEB_SCHEMES = {"http", "https"}
_S3_SCHEMES = {"s3", "s3a"}

_ACCOUNT_SCHEMES = {"abfs", "abfss", "wasb", "wasbs"}
"""Azure's schemes write CONTAINER@ACCOUNT: what stands before the @ is part of the name."""

_SIGNATURE = re.compile(r"(x-[a-z]+-)?sig(nature)?", re.IGNORECASE)
_SIGNED = re.compile(
    r"(x-(amz|goog|oss|cos|ms)-.*)|(x-[a-z]+-)?sig(nature)?|awsaccesskeyid|googleaccessid|ossaccesskeyid"
    r"|expires|policy|key-pair-id|s[etpvr]|spr|sip|sk[a-z]{1,3}",
    re.IGNORECASE,
)
"""The parameters of a signed URL, which differ each time that one is made for the same file."""


def is_remote(path: str | os.PathLike[str]) -> bool:
    r"""Returns whether a path is a URL: it has a scheme and `://`, and the scheme is not `file` or `local`.

    Example:
        >>> [is_remote(path) for path in ("s3://bucket/a.tar", "/data/a.tar", "file:///data/a.tar")]
        [True, False, False]
        >>> [is_remote(path) for path in ("C:\\data\\a.tar", "pipe:cat a.tar", "./a::b")]
        [False, False, False]
    """
    match = _REMOTE.match(path) if isinstance(path, str) else None
    return match is not None and match[1].lower() not in _LOCAL_SCHEMES


def local_path(path: str) -> str:
    """Returns the path that a URL of this machine means; what is none stays as it is.

    Example:
        >>> local_path("file:///data/a%20b.npz"), local_path("/data/a%20b.npz")
        ('/data/a b.npz', '/data/a%20b.npz')
    """
    scheme, mark, _ = path.partition("://")
    return unquote(urlsplit(path).path) if mark and scheme.lower() in _LOCAL_SCHEMES else path


def is_web(url: str) -> bool:
    """Returns whether a URL is one of HTTP or HTTPS."""
    return url.partition("://")[0].lower() in _WEB_SCHEMES


def is_of_s3(url: str) -> bool:
    """Returns whether a URL is one of S3."""
    return url.partition("://")[0].lower() in _S3_SCHEMES


def names_version(url: str) -> bool:
    """Returns whether a URL of S3 says which version of an object is meant."""
    return is_of_s3(url) and "?versionId=" in url


def shown(url: str) -> str:
    """Returns the form of a URL that errors, logs, names and files may hold.

    Without user, password, query and fragment: signatures and tokens stand there. A local path
    stays as it is.

    Example:
        >>> shown("https://me:secret@host:8080/a/b.tar?X-Amz-Signature=5f3a#part")
        'https://host:8080/a/b.tar'
    """
    if not is_remote(url):
        return url
    return "::".join(_link_shown(link) for link in url.split("::"))


def beside(url: str, suffix: str) -> str:
    """Returns the path or URL of the file that lies beside another; a URL's query stays at the end.

    Example:
        >>> beside("https://host/a.tar?v=2", ".skidx"), beside("/data/a?.tar", ".skidx")
        ('https://host/a.tar.skidx?v=2', '/data/a?.tar.skidx')
    """
    end = re.search(r"[?#]", url) if is_remote(url) else None
    at = len(url) if end is None else end.start()
    return f"{url[:at]}{suffix}{url[at:]}"


def has_pattern(url: str) -> bool:
    """Returns whether a URL's path has a glob pattern; in HTTP a `?` begins the query.

    Example:
        >>> has_pattern("s3://bucket/a-?.tar"), has_pattern("https://[::1]:80/a.tar?v=*")
        (True, False)
    """
    _, _, rest = url.partition("://")
    if is_web(url):
        return re.search(r"[*\[]", re.split(r"[?#]", rest)[0].partition("/")[2]) is not None
    return re.search(r"[*?\[]", rest) is not None


def identity(url: str) -> str:
    """Returns what distinguishes files, for keys: the URL without credentials and signatures.

    The rest of the query stays, for `?id=1` and `?id=2` may be two files. It is not to be shown.

    Example:
        >>> identity("https://host/get?id=5&X-Amz-Signature=5f3a&X-Amz-Date=2026")
        'https://host/get?id=5'
    """
    query = url.partition("#")[0].partition("?")[2]
    pairs = parse_qsl(query, keep_blank_values=True)
    if any(_SIGNATURE.fullmatch(name) for name, _ in pairs):
        pairs = [pair for pair in pairs if not _SIGNED.fullmatch(pair[0])]
    return f"{shown(url)}?{urlencode(pairs)}" if pairs else shown(url)


def _link_shown(link: str) -> str:
    """Gives one URL of a chain such as `zip://inner.npz::https://host/a.zip` without what is private."""
    scheme, mark, rest = link.partition("://")
    if not mark:
        return scheme
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]
    port = host.rpartition("@")[2].rpartition("]")[2].rpartition(":")
    if "@" in host:
        user, _, _ = host.rpartition("@")
        if scheme.lower() not in _ACCOUNT_SCHEMES or ":" in user:
            rest = rest[len(user) + 1 :]
    elif port[1] and not port[2].isdigit():
        # No port, so it is a password with a slash or a question mark in it that was not quoted.
        rest = rest.rpartition("@")[2] if "@" in rest else "..."
    return f"{scheme}://{re.split(r'[?#]', rest, maxsplit=1)[0]}"


def digest_of(digests: Mapping[str, str] | None, url: str) -> str | None:
    """Finds the digest of a URL: by the URL, else by the longest end of its path that is named.

    Args:
        digests: by URL, or by the last parts of a path, such as "a.tar" and "train/a.tar".
        url: of the file.

    Returns:
        As it was given, such as "sha256:9f86d0..."; None if none was.

    Example:
        >>> digest_of({"a.tar": "md5:1", "train/a.tar": "md5:2"}, "https://host/train/a.tar?token=5")
        'md5:2'
    """
    if not digests:
        return None
    address = shown(url)
    for name in (url, address):
        if name in digests:
            return digests[name]
    parts = address.split("/")
    ends = ("/".join(parts[first:]) for first in range(3, len(parts)))
    return next((digests[end] for end in ends if end in digests), None)
