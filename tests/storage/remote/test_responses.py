"""Framing of responses, and which of them leave a reusable connection."""

import socket

import pytest

from samplerkit.storage.remote.http_response import Response
from samplerkit.storage.threads import Stop

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
RESPONSES = {
    "a length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde", b"abcde", True),
    "lines that end with newlines alone": (b"HTTP/1.1 200 OK\nContent-Length: 5\n\nabcde", b"abcde", True),
    "a response before": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
        b"a",
        True,
    ),
    "early hints": (
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 2
        + b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
        b"a",
        True,
    ),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    "chunks": (CHUNKED + b"2;note\r\nab\r\n3\r\ncde\r\n0\r\n\r\n", b"abcde", True),
    "no length": (b"HTTP/1.1 200 OK\r\n\r\nabcde", b"abcde", False),
    "a length that is not kept to": (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabcde", b"abcde", False),
    "an end": (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na", b"a", False),
    "an old version": (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", b"a", False),
}


@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("case", RESPONSES)
def test_a_body_ends_as_framed_and_a_short_remainder_is_read(case, is_read):
    data, body, stays_open = RESPONSES[case]
    near, far = socket.socketpair()
    with near, far:
        far.sendall(data)
        far.shutdown(socket.SHUT_WR)
        response = Response(near, 5.0, Stop().check)
        if is_read:
            assert b"".join(map(bytes, iter(response.read, b""))) == body
        assert response.finish() == (stays_open and (is_read or case != "chunks"))
