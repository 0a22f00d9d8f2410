"""A response is read as `http.client` reads it, in whatever pieces it comes."""

import http.client
import random
import socket
import threading

import pytest

from samplerkit.storage.remote.http_response import Response
from samplerkit.storage.threads import Stop

HEADERS = ['ETag: "a:b"', "X-Empty:", "x-spaces:   two  words \t", "ETag: second"]


def a_response(draw: random.Random) -> bytes:
    """Gives what a server sends."""
    end = draw.choice(["\r\n", "\r\n", "\n"])
    body = draw.randbytes(draw.choice([0, 1, 100, 5000, 200_000]))
    status = draw.choice(["200 OK", "206 Partial Content", "404", "204 No Content", "503 "])
    lines = [f"HTTP/1.{draw.choice('1110')} {status}", *draw.sample(HEADERS, draw.randrange(5))]
    lines += draw.choice([[], [], ["Connection: close"], ["Connection: keep-alive"]])
    has_body = status[:3] != "204"
    framing = draw.choice(["length", "length", "chunks", "close"][: 4 if has_body else 2])
    if framing == "length":
        lines.append(f"Content-Length: {len(body)}")
    if framing == "chunks":
        lines.append("Transfer-Encoding: chunked")
        cut = draw.randrange(len(body) + 1)
        chunks = [part for part in (body[:cut], body[cut:]) if part]
        body = b"".join(b"%x;note\r\n%s\r\n" % (len(part), part) for part in chunks) + b"0\r\n\r\n"
    before = draw.choice(["", "", f"HTTP/1.1 100 Continue{end}{end}"])
    head = before + "".join(line + end for line in [*lines, ""])
    return head.encode() + (body if has_body else b"")


def sent(data: bytes, draw: random.Random) -> tuple[socket.socket, threading.Thread]:
    """Gives a socket to which data come, in pieces, before it is closed."""
    near, far = socket.socketpair()
    cuts = sorted(draw.randrange(len(data) + 1) for _ in range(draw.randrange(4)))

    def send() -> None:
        with far:
            for first, last in zip([0, *cuts], [*cuts, len(data)], strict=True):
                far.sendall(data[first:last])

    thread = threading.Thread(target=send)
    thread.start()
    return near, thread


@pytest.mark.parametrize("seed", range(20))
def test_a_response_is_read_as_by_pythons_own_client(seed):
    draw = random.Random(seed)
    for _ in range(20):
        data = a_response(draw)
        near, thread = sent(data, draw)
        with near:
            expected = http.client.HTTPResponse(near)
            expected.begin()
            content = expected.read()
            thread.join()
        near, thread = sent(data, draw)
        with near:
            near.settimeout(0.1)
            response = Response(near, 5.0, Stop().check)
            pieces = map(bytes, iter(response.read, b""))
            assert b"".join(pieces) == content
            assert response.status == expected.status
            assert {name: response.headers[name] for name in response.headers} == {
                name.lower(): expected.headers[name].strip() for name in expected.headers
            }
            assert response.finish() == (not expected.will_close)
            thread.join()
