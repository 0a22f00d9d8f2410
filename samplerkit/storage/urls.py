"""URLs as strings: which paths are remote, how a URL is shown, and what identifies a file."""

import os
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote, urlencode

_REMOTE = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]+::)*([A-Za-z][A-Za-z0-9+.-]+)://")
_LOCAL_SCHEMES = {"file", "local"}

_ACCOUNT_SCHEMES = {"abfs", "abfss", "wasb", "wasbs"}
"""Azure's schemes have the form CONTAINER@ACCOUNT, so the part before the @ belongs to the name."""

_SIGNATURE = re.compile(r"(x-[a-z]+-)?sig(nature)?", re.IGNORECASE)
_SIGNED = re.compile(
    r"(x-(amz|goog|oss|cos|ms)-.*)|(x-[a-z]+-)?sig(nature)?|awsaccesskeyid|googleaccessid|ossaccesskeyid"
    r"|expires|policy|key-pair-id|s[etpvr]|spr|sip|sk[a-z]{1,3}",
    re.IGNORECASE,
)
"""The query parameters of signed URLs, which differ each time a URL is signed for the same file."""


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
    """Returns the path of a `file:` or `local:` URL; anything else is returned unchanged.

    A host other than `localhost` counts as the first folder of a relative path, as in fsspec.

    Example:
        >>> local_path("file:///data/a%20b.npz"), local_path("/data/a%20b.npz")
        ('/data/a b.npz', '/data/a%20b.npz')
    """
    scheme, mark, rest = path.partition("://")
    is_local = mark and scheme.lower() in _LOCAL_SCHEMES
    return unquote(re.split(r"[?#]", rest)[0].removeprefix("localhost")) if is_local else path


def is_web(url: str) -> bool:
    """Returns whether a URL is an HTTP or HTTPS URL."""
    return url.partition("://")[0].lower() in {"http", "https"}


def is_s3(url: str) -> bool:
    """Returns whether a URL is an S3 URL."""
    return url.partition("://")[0].lower() in {"s3", "s3a"}


def has_version(url: str) -> bool:
    """Returns whether a URL is an S3 URL with a version of the object."""
    return is_s3(url) and "?versionId=" in url


def shown(url: str) -> str:
    """Returns a URL in the form that is safe for errors, logs, names and files.

    User, password, query and fragment are removed, since they may hold signatures and tokens. A local path
    is returned unchanged.

    Example:
        >>> shown("https://me:secret@host:8080/a/b.tar?X-Amz-Signature=5f3a#part")
        'https://host:8080/a/b.tar'
    """
    if not is_remote(url):
        return url
    return "::".join(_link_shown(link) for link in url.split("::"))


def add_suffix(url: str, suffix: str) -> str:
    """Returns a path or URL with a suffix added to the file name; a URL's query stays at the end.

    Example:
        >>> add_suffix("https://host/a.tar?v=2", ".skidx"), add_suffix("/data/a?.tar", ".skidx")
        ('https://host/a.tar.skidx?v=2', '/data/a?.tar.skidx')
    """
    end = re.search(r"[?#]", url) if is_remote(url) else None
    at = len(url) if end is None else end.start()
    return f"{url[:at]}{suffix}{url[at:]}"


def has_pattern(url: str) -> bool:
    """Returns whether a URL's path has a glob pattern; in HTTP URLs a `?` begins the query.

    Example:
        >>> has_pattern("s3://bucket/a-?.tar"), has_pattern("https://[::1]:80/a.tar?v=*")
        (True, False)
    """
    _, _, rest = url.partition("://")
    if is_web(url):
        return re.search(r"[*\[]", re.split(r"[?#]", rest)[0].partition("/")[2]) is not None
    return re.search(r"[*?\[]", rest) is not None


def identity(url: str) -> str:
    """Returns a string that identifies a file, for keys: the URL without credentials and signatures.

    The rest of the query is kept, since `?id=1` and `?id=2` may be two files. It must not be shown.

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
    """Returns one URL of a chain such as `zip://inner.npz::https://host/a.zip` without private parts."""
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
        # Not a port, so it is a password with an unquoted slash or question mark.
        rest = rest.rpartition("@")[2] if "@" in rest else "..."
    return f"{scheme}://{re.split(r'[?#]', rest, maxsplit=1)[0]}"


def digest_of(digests: Mapping[str, str] | None, url: str) -> str | None:
    """Returns the digest of a URL: by the URL itself, or by the longest matching end of its path.

    Args:
        digests: digests by URL, or by the end of a path, such as "a.tar" or "train/a.tar".
        url: the URL of the file.

    Returns:
        The digest as given, such as "sha256:9f86d0..."; None if the URL has none.

    Example:
        >>> digest_of({"a.tar": "md5:1", "train/a.tar": "md5:2"}, "https://host/train/a.tar?token=5")
        'md5:2'
    """
    if not digests:
        return None
    address = shown(url)
    parts = address.split("/")
    ends = ("/".join(parts[first:]) for first in range(3, len(parts)))
    return next((digests[name] for name in (url, address, *ends) if name in digests), None)
