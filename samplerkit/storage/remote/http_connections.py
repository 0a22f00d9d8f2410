"""HTTP requests through a pool of connections, with limits on stalled responses and on redirects."""

import base64
import encodings.idna  # noqa: F401  # else the first request imports it, in whatever thread: see `importing`
import http.client
import netrc
import os
import re
import select
import ssl
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from samplerkit.storage.remote.access import Refused, Transient, translate_errors
from samplerkit.storage.remote.http_response import Headers, Response
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.threads import TICK, Stop
from samplerkit.storage.urls import is_web

MAX_HOPS = 10

REDIRECTS = {301, 302, 303, 307, 308}
_MAX_IDLE = 256
"""The most idle connections, since redirects may lead to hundreds of servers, and descriptors are limited."""

_CA_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")
_PORTS = {"http": 80, "https": 443}
_IN_PATHS = "!$%&'()*+,/:;=?@[]~"
_LINE_BREAKS = re.compile(r"[\r\n\0]")


@dataclass(frozen=True)
class Route:
    """The route to the server of a URL.

    Args:
        url: an HTTP URL.
        headers: for a signed URL, the headers that are sent instead of the `headers`, `auth` and `.netrc` of
            the user; None for a URL given by the user.
        server: scheme, host and port.
        proxy: the proxy from the environment, or None.
        head: the head of each request, without the empty line at its end.
    """

    url: str
    headers: Mapping[str, str] | None
    server: tuple[str, str, int]
    proxy: SplitResult | None
    head: bytes

    def request(self, part: str) -> bytes:
        """Returns the request for a part of the file, such as "0-99", or "" for the whole file."""
        return self.head + (f"Range: bytes={part}\r\n\r\n" if part else "\r\n").encode()


class Connections:
    """Connections to HTTP servers, for the threads of one process.

    Proxies, certificates (`REQUESTS_CA_BUNDLE`, `SSL_CERT_FILE`) and `.netrc` come from the environment.

    Args:
        options: options with the timeout, and `headers`, `auth`, `verify` and `cert` in storage options.
    """

    def __init__(self, options: RemoteOptions) -> None:
        self._options = options.storage_options
        self._timeout = options.timeout
        self._idle: defaultdict[Any, list[http.client.HTTPConnection]] = defaultdict(list)
        self._tls: ssl.SSLContext | None = None
        self._is_closed = False

    @contextmanager
    def response(self, route: Route, part: str, stop: Stop) -> Iterator[Response]:
        """Makes a request, follows redirects, and yields the response, whose body is not read yet.

        Args:
            route: the route to the file.
            part: the part of the file, such as "0-99"; "" for the whole file.
            stop: stops the request.

        Raises:
            Transient: the server cannot be reached.
            Refused: a redirect is invalid, or there are too many.
            Stopped: `stop` was set.
            Exception: any exception that `Http.fault` classifies.
        """
        url, is_named = route.url, True
        for _ in range(MAX_HOPS + 1):
            with self._send(route, part, stop) as response:
                target = target_of(url, response.status, response.headers)
                if target is None:
                    yield response
                    return
            # The user's headers and credentials may be secret, and are only for the server given by the user.
            is_named = is_named and _server(urlsplit(url)) == _server(urlsplit(target))
            url, route = target, self.route(target, route.headers, is_named=is_named)
        raise Refused(f"was redirected more than {MAX_HOPS} times", "check the server's redirects")

    def route(self, url: str, signed: Mapping[str, str] | None = None, *, is_named: bool = True) -> Route:
        """Returns the route to the server of a file.

        Args:
            url: the HTTP URL of the file.
            signed: the headers for a signed URL; None for a URL given by the user.
            is_named: whether the server is the one given by the user, so that `headers` and `auth` are sent.

        Raises:
            ValueError: the URL or a header is invalid.
        """
        parts = urlsplit(url)
        server = _server(parts)
        if not parts.hostname:
            raise ValueError
        address = parts.netloc.rpartition("@")[2]
        names = server[1], address  # `no_proxy` may name a port, and IPv6 addresses without brackets
        proxies = {} if any(map(urllib.request.proxy_bypass, names)) else urllib.request.getproxies()
        proxy = _proxy(proxies.get(parts.scheme))
        headers = {"Host": _host(server), "User-Agent": "samplerkit", "Accept": "*/*"}
        headers["Accept-Encoding"] = "identity"
        if is_named:
            given = (self._options.get("headers") if signed is None else signed) or {}
            overridden = {str(name).lower() for name in given}
            defaults = {name: value for name, value in headers.items() if name.lower() not in overridden}
            headers = {**defaults, **given}
        if signed is None and (auth := self._auth(parts, is_named=is_named)) is not None:
            headers["Authorization"] = _basic(*auth)
        path = _quoted(parts.path or "/") + (f"?{_quoted(parts.query)}" if parts.query else "")
        if proxy and parts.scheme == "http":
            path = f"http://{address}{path}"
            headers |= _proxy_headers(proxy)
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        if any(map(_LINE_BREAKS.search, lines)):
            raise ValueError
        return Route(url, signed, server, proxy, "".join(f"{line}\r\n" for line in lines).encode("latin-1"))

    def pop_idle(self, route: Route) -> http.client.HTTPConnection | None:
        """Returns an idle connection that the server has not closed, or None."""
        with suppress(IndexError):
            connection = self._idle[route.server, route.proxy].pop()
            poll = select.poll()
            poll.register(connection.sock, select.POLLIN)
            if not poll.poll(0):
                return connection
            connection.close()
        return None

    def connect(self, route: Route) -> http.client.HTTPConnection:
        """Returns a new connection.

        Raises:
            Transient: the server cannot be reached.
            Refused: the user's certificates cannot be read.
            OSError: TLS failed.
        """
        connection = translate_errors(partial(self._make, route), (OSError, TypeError), _no_certificates)

        def translated(error: OSError) -> Exception:
            connection.close()
            if isinstance(error, ssl.SSLError):
                return error
            server = "the proxy" if route.proxy else "its server"
            return Transient(f"{server} cannot be reached ({error.strerror or type(error).__name__})")

        translate_errors(connection.connect, OSError, translated)
        return connection

    def release(self, route: Route, connection: http.client.HTTPConnection, *, is_reusable: bool) -> None:
        """Keeps a connection for the next request, or closes it."""
        if is_reusable and not self._is_closed:
            if sum(map(len, [*self._idle.values()])) >= _MAX_IDLE:
                self._close_idle()
            self._idle[route.server, route.proxy].append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Closes the connections; those in use are closed after their use."""
        self._is_closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        for idle in [*self._idle.values()]:
            with suppress(IndexError):  # also if another thread has just taken the last one
                while True:
                    idle.pop().close()

    @contextmanager
    def _send(self, route: Route, part: str, stop: Stop) -> Iterator[Response]:
        """Sends one request; the connection is reused if the body was read to its end."""
        stop.check()
        connection = self.pop_idle(route) or self.connect(route)
        is_reusable = False
        try:
            connection.sock.settimeout(self._timeout)
            connection.sock.sendall(route.request(part))
            connection.sock.settimeout(TICK)
            response = Response(connection.sock, self._timeout, stop.check)
            yield response
            is_reusable = response.finish()
        finally:
            self.release(route, connection, is_reusable=is_reusable)

    def _auth(self, parts: SplitResult, *, is_named: bool) -> tuple[str, str] | None:
        """Returns user and password, from the options, the URL, or the user's `.netrc`."""
        auth: tuple[str, str] | None = self._options.get("auth") if is_named else None
        if is_named and auth is None and parts.username is not None:
            auth = unquote(parts.username), unquote(parts.password or "")
        return auth or _netrc_auth(parts.hostname or "")

    def _make(self, route: Route) -> http.client.HTTPConnection:
        scheme, host, port = route.server
        peer, at = (str(route.proxy.hostname), route.proxy.port or 80) if route.proxy else (host, port)
        if scheme == "http":
            return http.client.HTTPConnection(peer, at, timeout=self._timeout)
        connection = http.client.HTTPSConnection(peer, at, timeout=self._timeout, context=self._tls_context())
        if route.proxy is not None:
            connection.set_tunnel(host, port, _proxy_headers(route.proxy))
        return connection

    def _tls_context(self) -> ssl.SSLContext:
        """Returns the TLS context with trusted certificates and the user's own, which are read once."""
        if self._tls is not None:
            return self._tls
        verify, cert = self._options.get("verify"), self._options.get("cert")
        if verify is None or verify is True:
            verify = next(filter(None, map(os.environ.get, _CA_BUNDLES)), None)
        folder = verify if isinstance(verify, str) and Path(verify).is_dir() else None
        tls = ssl.create_default_context(cafile=None if folder else verify or None, capath=folder)
        if verify is False:
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        if cert:
            tls.load_cert_chain(*((cert,) if isinstance(cert, str) else cert))
        self._tls = tls
        return tls


def _no_certificates(error: Exception) -> Refused:
    problem = f"cannot be requested, since the given certificates cannot be read ({type(error).__name__})"
    return Refused(problem, "check `verify` and `cert`, or REQUESTS_CA_BUNDLE")


def _quoted(text: str) -> str:
    """Escapes characters that are not allowed in a request; what is escaped already is kept."""
    return quote(text, _IN_PATHS)


def _proxy(url: str | None) -> SplitResult | None:
    return urlsplit(url if "://" in url else f"http://{url}") if url else None


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    return {"Proxy-Authorization": _basic(unquote(proxy.username), unquote(proxy.password or ""))}


def _netrc_auth(host: str) -> tuple[str, str] | None:
    """Returns user and password of a host in the user's `.netrc`; as in curl, None if it cannot be read."""
    path = os.environ.get("NETRC") or str(Path("~/.netrc").expanduser())
    try:
        entry = netrc.netrc(path).authenticators(host)
    except (OSError, UnicodeDecodeError, netrc.NetrcParseError):
        return None
    return (entry[0] or "", entry[2] or "") if entry else None


def _basic(user: str, password: str = "") -> str:
    # As in `requests`, since most servers expect Latin-1.
    return "Basic " + base64.b64encode(f"{user}:{password}".encode("latin-1", "replace")).decode()


def target_of(url: str, status: int, headers: Headers) -> str | None:
    """Returns the URL to which a response redirects; None if it does not.

    Raises:
        Refused: the redirect is not to an HTTP URL, or is from HTTPS to HTTP.
        ValueError: the location is invalid.

    Example:
        >>> target_of("https://host/a?v=2", 302, {"location": "../b"})
        'https://host/b'
    """
    if status not in REDIRECTS or "location" not in headers:
        return None
    # Headers are decoded as Latin-1, but most servers send UTF-8.
    place = str(headers["location"]).encode("latin-1").decode("utf-8")
    target: str = urljoin(url, place.strip())
    if not is_web(target) or not urlsplit(target).hostname:
        raise Refused("was redirected to a URL that is not HTTP", "check the server's redirects")
    if url.lower().startswith("https:") and not target.lower().startswith("https:"):
        problem = "was redirected from https to http, where anyone on the network can read and change it"
        hint = "let the server redirect to https, or use the http URL if you trust the network"
        raise Refused(problem, hint)
    return target


def _host(server: tuple[str, str, int]) -> str:
    """Returns the value of the `Host` header."""
    scheme, host, port = server
    name = f"[{host}]" if ":" in host else host.encode("idna").decode()
    return name if port == _PORTS[scheme] else f"{name}:{port}"


def _server(parts: SplitResult) -> tuple[str, str, int]:
    """Returns the scheme, the host and the port."""
    return parts.scheme, parts.hostname or "", parts.port or _PORTS[parts.scheme]
