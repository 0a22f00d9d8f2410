"""What servers do wrong, and what is documented to become of it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.storage.remote.server import MODIFIED, Fault, Handler, Resource, right


@dataclass(frozen=True)
class Case:
    """A fault.

    Attributes:
        name: what it is, in words.
        fault: answers so.
        outcome: "harmless": the bytes are right, without another attempt; "retried": they are once it has
            passed, and an error if it does not pass; "refused": an error at once.
        ways: "read" for a part, "fetch" for the whole file, "version" for asking its size.
        method: that is answered so.
        says: what the error says.
    """

    name: str
    fault: Fault
    outcome: str
    says: str = ""
    ways: tuple[str, ...] = ("read", "fetch")
    method: str = "GET"


def redirects(status: int, hops: int = 1) -> Fault:
    """Redirects to the right file by way of so many others."""

    def fault(handler: Handler, resource: Resource) -> None:
        hop = int(handler.path.rpartition("hop=")[2]) if "hop=" in handler.path else 0
        path = handler.path.partition("?")[0]
        if hop < hops:
            handler.say(status, b"elsewhere", Location=f"{path}?hop={hop + 1}")
        else:
            right(handler, resource)

    return fault


def loops(handler: Handler, _: Resource) -> None:
    handler.say(302, Location=handler.path)


def floods(handler: Handler, head: bytes, again: bytes) -> int:
    """Sends the same again and again, as fast as it is taken, for 20 s or 1 GiB; tells how many bytes."""
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
    return lambda handler, _: handler.say(number, b"not now", **headers)


def sends_nothing(handler: Handler, _: Resource) -> None:
    handler.finish_connection()


def sends_garbage(handler: Handler, _: Resource) -> None:
    handler.wfile.write(b"\x00\x01 this is not HTTP\r\n\r\n")
    handler.finish_connection()


def stalls_before_the_head(handler: Handler, _: Resource) -> None:
    handler.state.released.wait(20)
    handler.close_connection = True


def half_then(fault: Fault) -> Fault:
    """Sends half of the body before a fault."""

    def half(handler: Handler, resource: Resource) -> None:
        number, data, headers = handler.served(resource)
        handler.head(number, **headers)
        handler.body(data[: len(data) // 2])
        handler.wfile.flush()
        fault(handler, resource)

    return half


truncates = half_then(sends_nothing)
resets = half_then(lambda handler, _: handler.reset())
stalls_in_the_body = half_then(stalls_before_the_head)


def trickles(handler: Handler, data: bytes) -> None:
    """Sends a byte now and then, faster than any time-out between bytes, and for ever."""
    end = time.monotonic() + 8
    for number in range(10**6):
        if handler.state.released.wait(0.02) or time.monotonic() > end:
            break
        try:
            handler.connection.sendall(data[number % len(data) :][:1])
        except OSError:
            break
    handler.close_connection = True


def trickles_the_body(handler: Handler, resource: Resource) -> None:
    number, data, headers = handler.served(resource)
    handler.head(number, **headers)
    trickles(handler, data)


def trickles_the_head(handler: Handler, _: Resource) -> None:
    handler.connection.sendall(b"HTTP/1.1 200 OK\r\n")
    trickles(handler, b"X-Filler: of no use\r\n")


def ignores_the_range(handler: Handler, resource: Resource) -> None:
    handler.say(200, resource.data, ETag=resource.etag)


def ignores_the_range_of_a_changed_file(handler: Handler, resource: Resource) -> None:
    handler.say(200, resource.data + b"more", ETag=resource.etag)


def changes(alter: Callable[[bytes, dict[str, object]], tuple[bytes, dict[str, object]]]) -> Fault:
    """Answers almost right."""

    def fault(handler: Handler, resource: Resource) -> None:
        number, data, headers = handler.served(resource)
        data, headers = alter(data, headers)
        handler.head(number, **headers)
        handler.body(data)

    return fault


def tells(*, first: int = 0, last: int = 0, size: int = 0, cut: int = 0) -> Fault:
    """Says a part of a file that differs by so many bytes from what is sent, of which the end may be cut."""

    def alter(data: bytes, headers: dict[str, object]) -> tuple[bytes, dict[str, object]]:
        right = map(int, re.findall(r"[0-9]+", str(headers["Content_Range"])))
        told = "bytes {}-{}/{}".format(*map(sum, zip(right, (first, last, size), strict=True)))
        data = data[: len(data) - cut]
        return data, {**headers, "Content_Range": told, "Content_Length": len(data)}

    return changes(alter)


def longer(data: bytes, headers: dict[str, object]) -> tuple[bytes, dict[str, object]]:
    return data + b"extra", {**headers, "Content_Length": len(data) + 5}


def without(name: str) -> Fault:
    return changes(lambda data, headers: (data, {**headers, name: None}))


def having(name: str, value: object) -> Fault:
    return changes(lambda data, headers: (data, {**headers, name: value}))


def longer_without_a_length(handler: Handler, resource: Resource) -> None:
    number, data, headers = handler.served(resource)
    handler.head(number, **{**headers, "Content_Length": None, "Connection": "close"})
    handler.body(data + b"extra")
    handler.finish_connection()


def chunked(*, is_whole: bool, extra: bytes = b"", trailer: bytes = b"") -> Fault:
    """Sends chunks, without a length; the last one may be missing."""

    def fault(handler: Handler, resource: Resource) -> None:
        number, data, headers = handler.served(resource)
        handler.head(number, **{**headers, "Content_Length": None, "Transfer_Encoding": "chunked"})
        data += extra
        half = len(data) // 2
        for piece in (data[:half], data[half:]) if is_whole else (data[:half],):
            handler.body(b"%x\r\n%s\r\n" % (len(piece), piece))
        if is_whole:
            handler.body(b"0\r\n%s\r\n" % trailer)
        else:
            handler.finish_connection()

    return fault


def hides_the_size(data: bytes, headers: dict[str, object]) -> tuple[bytes, dict[str, object]]:
    part = str(headers["Content_Range"]).partition("/")[0]
    return data, {**headers, "Content_Range": f"{part}/*"}


def answers_as_of_old(handler: Handler, resource: Resource) -> None:
    """Answers by HTTP/1.0: the connection ends with the body."""
    handler.protocol_version = "HTTP/1.0"
    right(handler, resource)
    handler.finish_connection()


def sends_a_part(handler: Handler, resource: Resource) -> None:
    told = f"bytes 0-{len(resource.data) - 1}/{len(resource.data)}"
    handler.say(206, resource.data, ETag=resource.etag, Content_Range=told)


ONLY_READ = ("read",)
ONLY_FETCH = ("fetch",)

PART_OF_NINES = f"bytes 0-{'9' * 5000}/*"

REFUSALS = {
    "may not be read": (401, 403),
    "does not exist": (404, 410),
    "was refused by its server": (204, 304, 400, 412),
}
CASES = [
    *(Case(f"redirect {number}", redirects(number), "harmless") for number in (301, 302, 303, 307, 308)),
    Case("ten redirects", redirects(302, 10), "harmless"),
    Case("eleven redirects", redirects(302, 11), "refused", "redirected more than 10 times"),
    Case("a loop of redirects", loops, "refused", "redirected"),
    Case("a redirect without a place", status(302), "refused", "status 302"),
    Case("body cut off", truncates, "retried", "broke off"),
    Case("connection reset in the body", resets, "retried", "broke"),
    Case("connection closed before the head", sends_nothing, "retried", "broke"),
    Case("an answer that is not HTTP", sends_garbage, "retried", "broke"),
    Case("stall before the head", stalls_before_the_head, "retried", "stalled"),
    Case("stall in the body", stalls_in_the_body, "retried", "stalled"),
    Case("a byte now and then in the body", trickles_the_body, "retried", "stalled"),
    Case("a byte now and then in the head", trickles_the_head, "retried", "stalled"),
    Case("200 to a range", ignores_the_range, "harmless", ways=ONLY_READ),
    Case("200 of another size", ignores_the_range_of_a_changed_file, "refused", "was changed"),
    Case("206 that is too short", tells(last=-5, cut=5), "retried", "were asked for", ONLY_READ),
    Case("206 of other bytes", tells(first=1, last=1), "retried", "were asked for", ONLY_READ),
    Case("206 with a longer body", changes(longer), "retried", "announced", ONLY_READ),
    Case("206 longer, without a length", longer_without_a_length, "retried", "more than", ONLY_READ),
    Case("206 without Content-Range", without("Content_Range"), "retried", "Content-Range", ONLY_READ),
    Case("206 that hides the size", changes(hides_the_size), "harmless", ways=ONLY_READ),
    Case("206 of a larger file", tells(size=4), "refused", "was changed", ONLY_READ),
    Case("206 to the whole", sends_a_part, "retried", "though all were asked for", ONLY_FETCH),
    Case("whole longer, without a length", longer_without_a_length, "retried", "more than", ONLY_FETCH),
    Case("416", status(416, Content_Range="bytes */1"), "refused", "was changed", ONLY_READ),
    Case("416, same size", status(416, Content_Range="bytes */5000"), "refused", "status 416", ONLY_READ),
    Case("429", status(429), "retried", "status 429"),
    Case("429 with Retry-After", status(429, Retry_After=0), "retried", "status 429"),
    Case("503 with a time", status(503, Retry_After=MODIFIED), "retried", "status 503"),
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
    Case("another ETag", having("ETag", '"another"'), "refused", "was changed"),
    Case("an answer without its ETag", without("ETag"), "retried", "without the ETag"),
    Case("gzip", having("Content_Encoding", "gzip"), "refused", "content encoding 'gzip'"),
    Case("chunks without a length", chunked(is_whole=True), "harmless"),
    Case("chunks and a trailer", chunked(is_whole=True, trailer=b'ETag: "another"\r\n'), "harmless"),
    Case("an answer of HTTP/1.0", answers_as_of_old, "harmless"),
    Case("chunks that break off", chunked(is_whole=False), "retried", "broke"),
    Case("chunks with too much", chunked(is_whole=True, extra=b"more"), "retried", "more than"),
    Case("a length of 5000 digits", having("Content_Length", "9" * 5000), "retried", "5000 digits"),
    Case("5000 digits", having("Content_Range", PART_OF_NINES), "retried", "digits", method="VERSION"),
    Case("a part of 5000 digits", having("Content_Range", PART_OF_NINES), "retried", "digits", ONLY_READ),
    Case("version, no length", longer_without_a_length, "harmless", method="VERSION"),
    Case("200 to the first byte", ignores_the_range, "harmless", method="VERSION"),
    Case("version without an ETag", without("ETag"), "harmless", method="VERSION"),
    Case("version of a larger file", tells(size=4), "refused", "was changed", method="VERSION"),
    Case("404 to version", status(404), "refused", "status 404", ("version",), "VERSION"),
    Case("500 to version", status(500), "retried", "status 500", method="VERSION"),
    Case("stall at version", stalls_before_the_head, "retried", "stalled", method="VERSION"),
    Case("version and gzip", having("Content_Encoding", "gzip"), "refused", "encoding", method="VERSION"),
]  # fmt: skip
