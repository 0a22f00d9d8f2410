"""The headers for each host, certificates, proxies, and waits between attempts."""

import select
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.http_connections import Connections
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import Span
from tests.storage.remote import faults
from tests.storage.remote.server import DATA, Handler, Request, Resource, content, served
from tests.waiting import wait_until, within


def test_options_of_the_user_are_sent_and_no_compression_is_requested(
    server, storage, url, monkeypatch, tmp_path
):
    storage(storage_options={"headers": {"X-Key": "k"}, "auth": ["me", "pw"], "key": "for S3"}).version(url)
    headers = server.requests[0].headers
    assert headers["X-Key"] == "k"
    assert headers["Authorization"] == "Basic bWU6cHc="
    assert headers["Accept-Encoding"] == "identity"
    storage().version(url.replace("http://", "http://you:pw@"))
    netrc = "machine 127.0.0.1 login you password pw\ndefault login me password no\n"
    (tmp_path / "netrc").write_text(netrc)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    storage().version(url)
    assert {each.headers["Authorization"] for each in server.requests[1:]} == {"Basic eW91OnB3"}
    (tmp_path / "netrc").write_bytes(b"machine 127.0.0.1 login you password \xe4\n")  # as curl, without it
    storage().version(url)
    assert "Authorization" not in server.requests[-1].headers


def test_dropped_credentials_do_not_return_with_the_next_redirect(server, storage):
    with served() as other:
        server.put("/a", DATA[:100])
        server.put("/b", DATA[:100])
        other.put("/a", b"")
        for method in ("GET", "VERSION"):
            server.always[method, "/a"] = faults.redirect_to(f"{other.url}/a")
            other.always[method, "/a"] = faults.redirect_to(f"{server.url}/b")
        options = {"headers": {"X-Key": "k"}, "auth": ("me", "pw")}
        assert content(storage(storage_options=options).fetch(f"{server.url}/a")) == DATA[:100]
        sent = [(each.path, bool({"X-Key", "Authorization"} & set(each.headers))) for each in server.requests]
        assert sent == [("/a", True), ("/b", False)] * 2
        assert len(other.requests) == 2
        assert not any({"X-Key", "Authorization"} & set(each.headers) for each in other.requests)


@pytest.mark.parametrize("length", [None, "1000000000000", "9" * 5000])
def test_the_body_of_a_redirect_is_not_read(server, storage, length):
    sent = []

    def answer(handler, _):
        header = "" if length is None else f"Content-Length: {length}\r\n"
        head = f"HTTP/1.1 302 Found\r\nLocation: /b\r\n{header}\r\n"
        sent.append(faults.flood(handler, head.encode(), bytes(1 << 20)))

    url = server.put("/a", b"")
    server.put("/b", DATA[:100])
    server.always["GET", "/a"] = answer
    with within(10):
        assert storage().read_small(url) == DATA[:100]
    wait_until(lambda: sent)
    # What the buffers of a connection hold; a body that is read has 1 GiB.
    assert sent[0] <= 64 << 20


@pytest.mark.parametrize(
    ("head", "again"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 50_000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n", b"a: b\r\n" * 200_000),
    ],
    ids=["a head", "what follows the body"],
)
def test_a_response_of_headers_or_empty_chunks_without_end_counts_as_stalled(server, storage, head, again):
    url = server.put("/a", b"")
    server.always["GET", "/a"] = lambda handler, _: faults.flood(handler, head, again)
    with within(10), pytest.raises(DatasetError, match="stalled"):
        storage(timeout=0.5, attempts=1).read_small(url)


def test_a_redirect_from_https_to_http_is_refused(certificate, server, storage):
    with served(certificate=certificate) as safe:
        url = safe.put("/a", b"")
        server.put("/a", DATA[:100])
        safe.always["VERSION", "/a"] = safe.always["GET", "/a"] = faults.redirect_to(f"{server.url}/a?secret")
        reader = storage(storage_options={"verify": str(certificate)})
        with pytest.raises(DatasetError, match=r"from https to http, .*; let the server redirect") as caught:
            reader.fetch(url)
        assert "secret" not in str(caught.value)
        assert server.requests == []


def test_a_certificate_that_nobody_vouches_for_is_refused_unless_verify_is_false(certificate, storage):
    with served(certificate=certificate) as safe:
        url = safe.put("/a", DATA[:100])
        with pytest.raises(DatasetError, match="is not trusted"):
            storage().read_small(url)
        assert storage(storage_options={"verify": False}).read_small(url) == DATA[:100]


def test_a_client_certificate_is_sent(certificate, storage):
    with served(certificate=certificate, wants_certificate=True) as safe:
        url, options = safe.put("/a", DATA[:100]), {"verify": str(certificate)}
        with pytest.raises(DatasetError):
            storage(storage_options=options, attempts=1).read_small(url)
        assert storage(storage_options={**options, "cert": str(certificate)}).read_small(url) == DATA[:100]


def test_a_proxy_of_the_environment_is_used(server, storage, monkeypatch):
    for name in ("no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", server.url)
    server.resources["http://store.invalid/a"] = Resource.of(DATA[:100])
    assert storage().read([Span("http://store.invalid/a", 3, 5)]) == [DATA[3:8]]
    assert [request.path for request in server.requests] == ["http://store.invalid/a"] * 2


def test_no_proxy_may_name_a_host_with_its_port(server, storage, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", server.url.removeprefix("http://"))
    assert storage(attempts=1).read_small(server.put("/a", DATA[:10])) == DATA[:10]


def test_no_proxy_names_an_ipv6_address_without_brackets(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "::1")
    connections = Connections(RemoteOptions())
    assert [connections.route(f"http://[::{n}]:80/a").proxy is None for n in (1, 2)] == [True, False]


def test_connections_to_many_servers_are_not_all_kept(storage, monkeypatch):
    monkeypatch.setattr("samplerkit.storage.remote.http_connections._MAX_IDLE", 3)
    with ExitStack() as stack:
        urls = [stack.enter_context(served()).put("/a", DATA[:100]) for _ in range(9)]
        descriptors = Path("/dev/fd")
        before = len([*descriptors.iterdir()])
        assert storage(threads=1).read([Span(url, 5, 7) for url in urls]) == [DATA[5:12]] * 9
        wait_until(lambda: len([*descriptors.iterdir()]) <= before + 2 * 3)  # both ends are of this process


class Tunnels(Handler):
    """A proxy that connects clients with the servers that they name."""

    def do_CONNECT(self) -> None:  # noqa: N802  # as http.server calls it
        self.state.requests.append(Request("CONNECT", self.path, dict(self.headers.items())))
        host, _, port = self.path.partition(":")
        with socket.create_connection((host, int(port))) as target:
            self.head(200)
            ends = {self.connection: target, target: self.connection}
            while all(self._passed(end, ends[end]) for end in select.select([*ends], [], [], 20)[0]):
                pass
        self.close_connection = True

    def _passed(self, end: socket.socket, other: socket.socket) -> bytes:
        data = end.recv(1 << 16)
        other.sendall(data)
        return data


def test_https_goes_through_a_tunnel_of_the_proxy(certificate, storage, monkeypatch):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with served(certificate=certificate) as safe, served(handler=Tunnels) as proxy:
        url = safe.put("/a", DATA[:1000])
        monkeypatch.setenv("https_proxy", proxy.url.replace("://", "://me:p%40ss@"))
        with storage(storage_options={"verify": str(certificate), "headers": {"X-Key": "k"}}) as reader:
            assert reader.read([Span(url, 5, 700)]) == [DATA[5:705]]
            assert content(reader.fetch(url)) == DATA[:1000]
        assert {each.path for each in proxy.calls("CONNECT")} == {url.removeprefix("https://")[:-2]}
        headers = proxy.calls("CONNECT")[0].headers
        assert headers["Proxy-Authorization"] == "Basic bWU6cEBzcw=="
        assert "X-Key" not in headers
        assert all("Proxy-Authorization" not in each.headers for each in safe.requests)
        for proxy in ("127.0.0.1:9", "no-such-host.invalid"):
            monkeypatch.setenv("https_proxy", proxy)
            with pytest.raises(DatasetError, match=r"the proxy (cannot be reached|is not known)"):
                storage(storage_options={"verify": str(certificate)}).version(url)


def test_a_header_value_with_a_line_break_is_refused(server, storage):
    with pytest.raises(DatasetError, match="cannot be requested"):
        storage(storage_options={"headers": {"X-Key": "k\r\nX-Other: o"}}).version(server.put("/a", b"a"))
    assert server.requests == []


def test_a_host_with_a_space_is_refused(storage):
    reader = storage()
    with pytest.raises(DatasetError, match="cannot be requested: its URL"):
        reader.version("http://ho st/a")
    assert reader.stats.retries == 0


def test_illegal_characters_of_a_url_are_escaped_once(server, storage):
    for name, escaped in {"/ä b": "/%C3%A4%20b", "/a%20b": "/a%20b"}.items():
        server.put(escaped, DATA[:10])
        assert storage().read_small(f"{server.url}{name}") == DATA[:10]


def test_retry_after_is_respected(server, storage, url):
    server.faults["VERSION", "/a"] = [faults.status(429, Retry_After=1)]
    start = time.monotonic()
    assert storage(retry_seconds=5).version(url).size == len(DATA)
    assert time.monotonic() - start >= 1


@pytest.mark.parametrize(("attempts", "budget", "least", "most"), [(1000, 0.5, 10, 49), (30, 0, 30, 30)])
def test_waits_end_with_their_budget(server, storage, url, attempts, budget, least, most):
    server.always["VERSION", "/a"] = faults.status(503)
    with within(20), pytest.raises(DatasetError, match=r"tried \d+ times"):
        storage(attempts=attempts, retry_seconds=budget).version(url)
    assert least <= len(server.requests) <= most


def test_a_certificate_is_verified(certificate, storage):
    with served(certificate=certificate) as server:
        url = server.put("/a", DATA)
        reader = storage(storage_options={"verify": str(certificate)})
        assert reader.read([Span(url, 5, 7)]) == [DATA[5:12]]
        assert content(reader.fetch(url)) == DATA
        with pytest.raises(
            DatasetError, match=r"certificate of its server is not trusted .self-signed certificate"
        ) as caught:
            storage().version(f"{url}?secret")
        assert "secret" not in str(caught.value)
        assert "tried" not in str(caught.value)
        for wrong in ({"verify": 5}, {"verify": "/no/such"}, {"cert": 5}, {"cert": "/no/such"}):
            with pytest.raises(DatasetError, match="given certificates cannot be read"):
                storage(storage_options=wrong).version(url)


def test_a_stalled_response_over_tls_ends_in_time(certificate, storage):
    with served(certificate=certificate) as server:
        url = server.put("/a", DATA[:1000])
        server.faults["GET", "/a"] = [faults.stall_in_body, faults.trickle_body]
        reader = storage(timeout=0.5, storage_options={"verify": str(certificate)})
        assert reader.read([Span(url, 5, 700)]) == [DATA[5:705]]
        assert reader.stats.retries == 2


@pytest.mark.parametrize("place", ["ftp://host/a", "file:///etc/passwd", "https:///a", "data:,a", "mailto:a"])
def test_a_redirect_to_a_url_other_than_http_is_refused(server, storage, place):
    server.put("/a", DATA)
    server.always["GET", "/a"] = server.always["VERSION", "/a"] = faults.redirect_to(place)
    with pytest.raises(DatasetError, match="was redirected to a URL that is not HTTP"):
        storage().version(f"{server.url}/a")
