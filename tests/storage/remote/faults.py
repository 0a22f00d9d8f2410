"""Faults of servers, and the documented outcome of each."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.storage.remote.server import Fault, Handler, Resource, answer_correctly


@dataclass(frozen=True)
class Case:
    """A fault.

    Attributes:
        name: a description.
        fault: answers a request.
        outcome: "harmless": the bytes are right at the first attempt; "retried": they are right once the
            fault has passed, and an error if it does not pass; "refused": an error at once.
        calls: "read" for a part, "fetch" for the whole file, "version" for its size.
        method: of the requests that get this answer.
        message: a part of the error.
    """

    name: str
    fault: Fault
    outcome: str
    message: str = ""
    calls: tuple[str, ...] = ("read", "fetch")
    method: str = "GET"


def redirect(status: int, hops: int = 1) -> Fault:
    """Redirects `hops` times, and then to the right file."""

    def fault(handler: Handler, resource: Resource) -> None:
        hop = int(handler.path.rpartition("hop=")[2]) if "hop=" in handler.path else 0
        path = handler.path.partition("?")[0]
        if hop < hops:
            handler.send(status, b"elsewhere", Location=f"{path}?hop={hop + 1}")
        else:
            answer_correctly(handler, resource)

    return fault


def redirect_to(place: str) -> Fault:
    return lambda handler, _: handler.send(302, Location=place)


def redirect_loop(handler: Handler, _: Resource) -> None:
    handler.send(302, Location=handler.path)


def flood(handler: Handler, head: bytes, again: bytes) -> int:
    """Sends the same again and again, as fast as possible, for 20 s or 1 GiB; returns the number of bytes."""
    sent, end = 0, time.monotonic() + 20
    handler.close_connection = True
    try:
        handler.connection.sendall(head)
        while not handler.state.released.is_set() and time.monotonic() < end and sent < 1 << 30:
            handler.connection.sendall(again)
            sent += len(again)
    except OSError:
        pass
    return sent


def status(number: int, **headers: object) -> Fault:
    """Answers with a status."""
    return lambda handler, _: handler.send(number, b"not now", **headers)


def send_nothing(handler: Handler, _: Resource) -> None:
    handler.finish_connection()


def send_garbage(handler: Handler, _: Resource) -> None:
    handler.wfile.write(b"\x00\x01 this is not HTTP\r\n\r\n")
    handler.finish_connection()


def stall_before_headers(handler: Handler, _: Resource) -> None:
    handler.state.released.wait(20)
    handler.close_connection = True


def half_then(fault: Fault) -> Fault:
    """Sends half of the body before a fault."""

    def half(handler: Handler, resource: Resource) -> None:
        number, data, headers = handler.response_to(resource)
        handler.head(number, **headers)
        handler.body(data[: len(data) // 2])
        handler.wfile.flush()
        fault(handler, resource)

    return half


truncate_body = half_then(send_nothing)
reset_connection = half_then(lambda handler, _: handler.reset())
stall_in_body = half_then(stall_before_headers)


def trickle(handler: Handler, data: bytes) -> None:
    """Sends a byte now and then, within any time-out between bytes, and without end."""
    end = time.monotonic() + 8
    for number in range(10**6):
        if handler.state.released.wait(0.02) or time.monotonic() > end:
            break
        try:
            handler.connection.sendall(data[number % len(data) :][:1])
        except OSError:
            break
    handler.close_connection = True


def trickle_body(handler: Handler, resource: Resource) -> None:
    number, data, headers = handler.response_to(resource)
    handler.head(number, **headers)
    trickle(handler, data)


def trickle_headers(handler: Handler, _: Resource) -> None:
    handler.connection.sendall(b"HTTP/1.1 200 OK\r\n")
    trickle(handler, b"X-Filler: of no use\r\n")


def ignore_range(handler: Handler, resource: Resource) -> None:
    handler.send(200, resource.data, ETag=resource.etag)


def ignore_range_of_changed_file(handler: Handler, resource: Resource) -> None:
    handler.send(200, resource.data + b"more", ETag=resource.etag)


def altered(alter: Callable[[bytes, dict[str, object]], tuple[bytes, dict[str, object]]]) -> Fault:
    """Answers with the body and the headers that `alter` makes of the right ones."""

    def fault(handler: Handler, resource: Resource) -> None:
        number, data, headers = handler.response_to(resource)
        data, headers = alter(data, headers)
        handler.head(number, **headers)
        handler.body(data)

    return fault


def wrong_range(*, first: int = 0, last: int = 0, size: int = 0, cut: int = 0) -> Fault:
    """States a `Content-Range` that differs by these numbers of bytes from the body, and may cut its end."""

    def alter(data: bytes, headers: dict[str, object]) -> tuple[bytes, dict[str, object]]:
        positions = map(int, re.findall(r"[0-9]+", str(headers["Content_Range"])))
        content_range = "bytes {}-{}/{}".format(*map(sum, zip(positions, (first, last, size), strict=True)))
        data = data[: len(data) - cut]
        return data, {**headers, "Content_Range": content_range, "Content_Length": len(data)}

    return altered(alter)


def longer_body(data: bytes, headers: dict[str, object]) -> tuple[bytes, dict[str, object]]:
    return data + b"extra", {**headers, "Content_Length": len(data) + 5}


def without_header(name: str) -> Fault:
    return altered(lambda data, headers: (data, {**headers, name: None}))


def with_header(name: str, value: object) -> Fault:
    return altered(lambda data, headers: (data, {**headers, name: value}))


def longer_without_length(handler: Handler, resource: Resource) -> None:
    number, data, headers = handler.response_to(resource)
    handler.head(number, **{**headers, "Content_Length": None, "Connection": "close"})
    handler.body(data + b"extra")
    handler.finish_connection()


def chunked(*, is_complete: bool, extra: bytes = b"", trailer: bytes = b"") -> Fault:
    """Sends chunks, without a length; the last one may be missing."""

    def fault(handler: Handler, resource: Resource) -> None:
        number, data, headers = handler.response_to(resource)
        handler.head(number, **{**headers, "Content_Length": None, "Transfer_Encoding": "chunked"})
        data += extra
        half = len(data) // 2
        for piece in (data[:half], data[half:]) if is_complete else (data[:half],):
            handler.body(b"%x\r\n%s\r\n" % (len(piece), piece))
        if is_complete:
            handler.body(b"0\r\n%s\r\n" % trailer)
        else:
            handler.finish_connection()

    return fault


def hide_size(data: bytes, headers: dict[str, object]) -> tuple[bytes, dict[str, object]]:
    part = str(headers["Content_Range"]).partition("/")[0]
    return data, {**headers, "Content_Range": f"{part}/*"}


def answer_by_http_1_0(handler: Handler, resource: Resource) -> None:
    """Answers by HTTP/1.0: the connection ends with the body."""
    handler.protocol_version = "HTTP/1.0"
    answer_correctly(handler, resource)
    handler.finish_connection()


def send_partial_content(handler: Handler, resource: Resource) -> None:
    content_range = f"bytes 0-{len(resource.data) - 1}/{len(resource.data)}"
    handler.send(206, resource.data, ETag=resource.etag, Content_Range=content_range)


ONLY_READ = ("read",)
ONLY_FETCH = ("fetch",)

ENDLESS_RANGE = with_header("Content_Range", f"bytes 0-{'9' * 5000}/*")

REFUSALS = {
    "does not exist or may not be read": (401, 403, 404, 410),
    "was refused by its server": (204, 304, 400, 412),
}
CASES = [
    *(Case(f"redirect {number}", redirect(number), "harmless") for number in (301, 302, 303, 307, 308)),
    Case("ten redirects", redirect(302, 10), "harmless"),
    Case("eleven redirects", redirect(302, 11), "refused", "redirected more than 10 times"),
    Case("a loop of redirects", redirect_loop, "refused", "redirected"),
    Case("a redirect without a place", status(302), "refused", "status 302"),
    Case("body cut off", truncate_body, "retried", "broke off"),
    Case("connection reset in the body", reset_connection, "retried", "broke"),
    Case("connection closed before the head", send_nothing, "retried", "broke"),
    Case("an answer that is not HTTP", send_garbage, "retried", "broke"),
    Case("stall before the head", stall_before_headers, "retried", "stalled"),
    Case("stall in the body", stall_in_body, "retried", "stalled"),
    Case("a byte now and then in the body", trickle_body, "retried", "stalled"),
    Case("a byte now and then in the head", trickle_headers, "retried", "stalled"),
    Case("200 to a range", ignore_range, "harmless", calls=ONLY_READ),
    Case("200 of another size", ignore_range_of_changed_file, "refused", "was changed"),
    Case("206 that is too short", wrong_range(last=-5, cut=5), "retried", "were requested", ONLY_READ),
    Case("206 of other bytes", wrong_range(first=1, last=1), "retried", "were requested", ONLY_READ),
    Case("206 with a longer body", altered(longer_body), "retried", "announced", ONLY_READ),
    Case("206 longer, without a length", longer_without_length, "retried", "more than", ONLY_READ),
    Case("206 without Content-Range", without_header("Content_Range"), "retried", "Content-Range", ONLY_READ),
    Case("206 that hides the size", altered(hide_size), "harmless", calls=ONLY_READ),
    Case("206 of a larger file", wrong_range(size=4), "refused", "was changed", ONLY_READ),
    Case("206 to the whole", send_partial_content, "retried", "though all were requested", ONLY_FETCH),
    Case("whole longer, without a length", longer_without_length, "retried", "more than", ONLY_FETCH),
    Case("416", status(416, Content_Range="bytes */1"), "refused", "status 416", ONLY_READ),
    Case("429", status(429), "retried", "status 429"),
    Case("429 with Retry-After", status(429, Retry_After=0), "retried", "status 429"),
    Case("429 with a long Retry-After", status(429, Retry_After=86400), "refused", "asks to wait 86400 s"),
    *(
        Case(f"status {number}", status(number), "retried", f"status {number}")
        for number in (408, 500, 502, 503, 504)
    ),
    *(
        Case(f"status {number}", status(number), "refused", f"{problem} (status {number})")
        for problem, numbers in REFUSALS.items()
        for number in numbers
    ),
    Case("another ETag", with_header("ETag", '"another"'), "refused", "was changed"),
    Case("an answer without its ETag", without_header("ETag"), "retried", "without the tag"),
    Case("gzip", with_header("Content_Encoding", "gzip"), "refused", "content encoding 'gzip'"),
    Case("chunks without a length", chunked(is_complete=True), "harmless"),
    Case("chunks and a trailer", chunked(is_complete=True, trailer=b'ETag: "another"\r\n'), "harmless"),
    Case("an answer of HTTP/1.0", answer_by_http_1_0, "harmless"),
    Case("chunks that break off", chunked(is_complete=False), "retried", "broke"),
    Case("chunks with too much", chunked(is_complete=True, extra=b"more"), "retried", "more than"),
    Case("a length of 5000 digits", with_header("Content_Length", "9" * 5000), "retried", "a length that"),
    Case("5000 digits", ENDLESS_RANGE, "retried", "Content-Range", method="VERSION"),
    Case("part of 5000 digits", ENDLESS_RANGE, "retried", "Content-Range", ONLY_READ),
    Case("version, no length", longer_without_length, "harmless", method="VERSION"),
    Case("200 to the first byte", ignore_range, "harmless", method="VERSION"),
    Case("version without an ETag", without_header("ETag"), "harmless", method="VERSION"),
    Case("version of a larger file", wrong_range(size=4), "refused", "was changed", method="VERSION"),
    Case("404 to version", status(404), "refused", "status 404", ("version",), "VERSION"),
    Case("500 to version", status(500), "retried", "status 500", method="VERSION"),
    Case("stall at version", stall_before_headers, "retried", "stalled", method="VERSION"),
    Case("gzip version", with_header("Content_Encoding", "gzip"), "refused", "encoding", method="VERSION"),
]  # fmt: skip
