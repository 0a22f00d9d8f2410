"""Checks of the head of an HTTP response for a part of a file: its range, its version, and faults."""

import re

from samplerkit.storage.remote.access import (
    MODIFIED,
    UNKNOWN_SIZE,
    Absent,
    Refused,
    Transient,
    Version,
    no_size,
)
from samplerkit.storage.remote.http_response import Head, Headers, Response
from samplerkit.storage.urls import is_web

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.ASCII)

_LENGTH = re.compile(r"\d{1,18}", re.ASCII)


def check_part(url: str, answer: Head | Response, version: Version, first: int, last: int | None) -> int:
    """Compares the head of a response with the request.

    Args:
        url: the URL of the file.
        answer: the response or its head.
        version: the expected version.
        first: the first requested byte.
        last: the last requested byte; None if the whole file was requested.

    Returns:
        The number of bytes of the body, which is the part or the whole file; -1 if unknown.

    Raises:
        Transient: the response has another part, or none.
        Refused: the response is of another version.
    """
    headers = answer.headers
    check_answer(url, answer)
    announced = content_length(headers)
    if answer.status == 200:
        version.check(announced, tag_of(headers, version.tag))
        return version.size if announced == UNKNOWN_SIZE else announced
    *received, size = content_range(headers)
    version.check(size, tag_of(headers, version.tag))
    if last is None or received != [first, last]:
        expected = "all" if last is None else f"{first} to {last}"
        raise Transient(f"bytes {received[0]} to {received[1]}, though {expected} were requested")
    count = last - first + 1
    if announced not in {UNKNOWN_SIZE, count}:
        raise Transient(f"{announced} bytes announced for a part of {count}")
    return count


def check_answer(url: str, answer: Head | Response) -> None:
    """Checks that a response has the unchanged content of the file.

    Raises:
        Transient: status 408, 429 or 5xx, with the time of `Retry-After`.
        Absent: status 401, 403, 404 or 410.
        Refused: any other status; or the content is compressed for transfer, so that its ranges and lengths
            are not those of the file.
    """
    status, headers = answer.status, answer.headers
    if status >= 500 or status in {408, 429}:
        raise Transient(f"status {status}", _retry_after(headers))
    if status in {401, 403, 404, 410}:
        hint = "check the URL and the credentials; a signed URL may have expired"
        raise Absent(f"does not exist or may not be read (status {status})", hint)
    if status not in {200, 206}:
        raise Refused(f"was refused by its server (status {status})", "it may have been changed")
    encoding = headers.get("content-encoding", "identity").lower()
    # For S3, this is the encoding with which the object was stored, and not one of the transfer.
    if encoding not in {"", "identity"} and is_web(url):
        problem = f"is sent with the content encoding {encoding[:20]!r}, though none was requested"
        raise Refused(problem, "store it without Content-Encoding")


def version_of(url: str, answer: Response) -> Version:
    """Returns the version in a response, with the ETag as its tag, else the modification time.

    Raises:
        Transient: as `check_answer`, and if the response has no valid range.
        Refused: as `check_answer`, and if the response has no size.
    """
    check_answer(url, answer)
    headers = answer.headers
    size = content_range(headers)[2] if answer.status == 206 else content_length(headers)
    if size == UNKNOWN_SIZE:
        raise no_size()
    return Version(size, tag_of(headers))


def tag_of(headers: Headers, known: str = "") -> str:
    """Returns the ETag, else the modification time; of the kind of the known tag, if there is one."""
    tag, modified = headers.get("etag", ""), headers.get("last-modified", "")
    if known.startswith(MODIFIED) or not (known or tag):
        return f"{MODIFIED}{modified}" if modified else ""
    return tag


def content_length(headers: Headers) -> int:
    """Returns the length of the body in the headers, -1 if they have none.

    Raises:
        Transient: it is not a number, or larger than any file.
    """
    text = headers.get("content-length")
    if text is None or is_chunked(headers):
        return UNKNOWN_SIZE
    if not _LENGTH.fullmatch(text):
        raise Transient("a length that no file has")
    return int(text)


def is_chunked(headers: Headers) -> bool:
    """Returns whether a body is sent in chunks, whose end is marked."""
    return "chunked" in headers.get("transfer-encoding", "").lower()


def content_range(headers: Headers) -> list[int]:
    """Parses `Content-Range`: the first byte, the last one, and the size, -1 if it is unknown.

    Raises:
        Transient: the header is missing or invalid, or a number has more than 18 digits.

    Example:
        >>> content_range({"content-range": "bytes 0-9/100"}), content_range({"content-range": "bytes 0-9/*"})
        ([0, 9, 100], [0, 9, -1])
    """
    match = _CONTENT_RANGE.fullmatch(headers.get("content-range", ""))
    if match is None:
        raise Transient("a part without a valid Content-Range")
    return [UNKNOWN_SIZE if each == "*" else int(each) for each in match.groups()]


def _retry_after(headers: Headers) -> float | None:
    """Returns the seconds of `Retry-After`; None if there is none, or a date."""
    text = headers.get("retry-after", "")
    return float(text) if _LENGTH.fullmatch(text) else None
