"""One HTTP request by a connection of urllib3, and its answer, with all exceptions made into ours.

The exceptions of urllib3 hold whole URLs: none leaves this file.
"""

from __future__ import annotations

import base64
import netrc
import os
import ssl
import urllib.request
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final
from urllib.parse import unquote, urljoin, urlsplit

import urllib3
import urllib3.connection
import urllib3.exceptions
from urllib3.util import Url, connection, parse_url

from samplerkit.storage.remote.attempt import Refused, Transient, causes, in_other_words
from samplerkit.storage.remote.minimum_rate import Deadline, TimedResponse
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.threads import Stop
from samplerkit.storage.urls import is_web

_SHORT_BODY = 4096


@final
@dataclass(frozen=True)
class _Route:
    """How the server of a URL is reached.

    Args:
        server: scheme, host and port.
        proxy: the one that the environment names for it, or None.
        path: the path of the request; the whole URL if a proxy forwards the request.
        headers: for each request.
    """

    server: Url
    proxy: Url | None
    path: str
    headers: Mapping[str, str]

    @property
    def key(self) -> tuple[Url, Url | None]:
        """What connections are kept by: those to one server are for all its URLs."""
        return self.server, self.proxy


@final
class Connections:
    """Connections to HTTP servers, for the threads of one process.

    Proxies, certificates (`REQUESTS_CA_BUNDLE`, `SSL_CERT_FILE`) and `.netrc` come from the environment.
    Connections are kept here: with the pool of urllib3 a request of 16 KiB takes 168 us of processor time,
    and not 120.

    Args:
        options: of them the timeout, and `headers`, `auth`, `verify` and `cert` of the storage options.
    """

    def __init__(self, options: RemoteOptions) -> None:
        self._options = options
        self._timeout = options.timeout
        self._idle: defaultdict[Any, list[urllib3.connection.HTTPConnection]] = defaultdict(list)
        self._routes: dict[str, _Route] = {}
        self._tls: ssl.SSLContext | None = None
        self._is_closed = False

    def request(self, method: str, url: str, headers: Mapping[str, str], stop: Stop) -> StreamedResponse:
        """Makes a request, follows redirects, and waits for the head of the answer.

        Raises:
            Transient: the server cannot be reached, or is too slow.
            Refused: the URL or a redirect makes no sense, or a certificate is not to be trusted.
            Stopped: it is not wanted any more.
        """
        return in_other_words(
            lambda: self._followed(method, url, headers, stop),
            (urllib3.exceptions.HTTPError, OSError, ValueError, urllib3.connection.HTTPException),
            lambda error: _fault(error, self._timeout),
        )

    def close(self) -> None:
        """Closes the connections: those in use when they are not any more."""
        self._is_closed = True
        for idle in list(self._idle.values()):
            while idle:
                idle.pop().close()

    def _followed(self, method: str, url: str, headers: Mapping[str, str], stop: Stop) -> StreamedResponse:
        route = self._routes.get(url)
        if route is None:
            route = self._routes[url] = self._route(url, is_named=True)
        is_named = True
        for _ in range(MOST_HOPS + 1):
            response = self._asked(method, route, headers, stop)
            try:
                target = target_of(url, response.status, response.headers)
                if target is None:
                    return response
                # What the user gives may be secret, and is for the host that the user names.
                is_named = is_named and is_same_place(url, target)
                url, route = target, self._route(target, is_named=is_named)
                response.finish_short(_SHORT_BODY)
            except BaseException:
                response.close()
                raise
            response.close()
        raise Refused(f"was redirected more than {MOST_HOPS} times", "check the server's redirects")

    def _asked(self, method: str, route: _Route, headers: Mapping[str, str], stop: Stop) -> StreamedResponse:
        """Sends one request; a kept connection that the server has closed meanwhile is not used."""
        stop.check()
        idle = self._idle[route.key]
        made: urllib3.connection.HTTPConnection | None = None
        with suppress(IndexError):
            made = idle.pop()
        if made is not None and connection.is_connection_dropped(made):
            made.close()
        deadline = Deadline(self._timeout, stop)
        made = made or self._connection(route)
        made.response_class = partial(TimedResponse, deadline)  # type: ignore[assignment]
        try:
            made.timeout = self._timeout
            made.request(
                method,
                route.path,
                headers={**route.headers, **headers},
                preload_content=False,
                decode_content=False,
            )
            return StreamedResponse(made.getresponse(), made, deadline, self._kept(idle))
        except BaseException:
            made.close()
            raise

    def _kept(self, idle: list[urllib3.connection.HTTPConnection]) -> Any:
        def keep(connection: urllib3.connection.HTTPConnection) -> None:
            if self._is_closed:
                connection.close()
            else:
                idle.append(connection)

        return keep

    def _route(self, url: str, *, is_named: bool) -> _Route:
        parts = parse_url(url)
        host = parts.host or ""
        server = Url(parts.scheme, None, host, parts.port)
        proxies = {} if urllib.request.proxy_bypass(host) else urllib.request.getproxies()
        proxy = proxies.get(str(parts.scheme))
        headers = {"User-Agent": "samplerkit", "Accept": "*/*", "Accept-Encoding": "identity"}
        auth = self._options.storage_options.get("auth") if is_named else None
        if is_named:
            headers |= dict(self._options.storage_options.get("headers") or {})
        if auth is None and parts.auth is not None and is_named:
            user, _, password = parts.auth.partition(":")
            auth = unquote(user), unquote(password)
        if (auth := auth or _of_netrc(host)) is not None:
            headers["Authorization"] = _basic(*auth)
        path = parts.request_uri
        if proxy and parts.scheme == "http":
            path = str(Url(parts.scheme, None, host, parts.port, parts.path or "/", parts.query))
            if parse_url(proxy).auth:
                headers["Proxy-Authorization"] = _basic(*unquote(str(parse_url(proxy).auth)).split(":", 1))
        return _Route(server, parse_url(proxy) if proxy else None, path, headers)

    def _connection(self, route: _Route) -> urllib3.connection.HTTPConnection:
        near = route.proxy or route.server
        host = str(near.host).strip("[]")
        if route.server.scheme == "http":
            return urllib3.connection.HTTPConnection(host, near.port or 80, timeout=self._timeout)
        made = urllib3.connection.HTTPSConnection(
            host, near.port or 443, timeout=self._timeout, ssl_context=self._trusted(), proxy=route.proxy
        )
        if route.proxy is not None:
            headers = {}
            if route.proxy.auth:
                headers["Proxy-Authorization"] = _basic(*unquote(route.proxy.auth).split(":", 1))
            made.set_tunnel(str(route.server.host), route.server.port or 443, headers, scheme="http")
        return made

    def _trusted(self) -> ssl.SSLContext:
        """Gives the certificates that are trusted, read once, and the user's own."""
        if self._tls is not None:
            return self._tls
        given = self._options.storage_options
        verify, cert = given.get("verify"), given.get("cert")
        if verify is None or verify is True:
            verify = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
        folder = verify if isinstance(verify, str) and Path(verify).is_dir() else None
        tls = ssl.create_default_context(cafile=None if folder else verify or None, capath=folder)
        if verify is False:
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        if cert:
            tls.load_cert_chain(*((cert,) if isinstance(cert, str) else cert))
        self._tls = tls
        return tls


@final
class StreamedResponse:
    """The response to a request, its body still to be read.

    Attributes:
        status: such as 206.
        headers: by name, in any case.
    """

    def __init__(
        self,
        response: urllib3.HTTPResponse,
        connection: urllib3.connection.HTTPConnection,
        deadline: Deadline,
        keep: Any,
    ) -> None:
        self._response = response
        self._connection: urllib3.connection.HTTPConnection | None = connection
        self._deadline = deadline
        self._keep = keep
        self._is_sound = True
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers

    def read(self, most: int) -> bytes:
        """Reads on in the body as it was sent, and gives nothing at its end.

        Raises:
            Transient: the connection broke, or the server is too slow.
            Stopped: it is not wanted any more.
        """
        self._deadline.renew()
        self._is_sound = False
        data: bytes = in_other_words(
            lambda: self._response.read(most, decode_content=False),
            (urllib3.exceptions.HTTPError, OSError, urllib3.connection.HTTPException),
            lambda error: _fault(error, self._deadline.seconds),
        )
        self._is_sound = True
        return data

    def finish_short(self, most: int) -> None:
        """Reads a body that is short, for then the connection can be used again."""
        length = self._response.length_remaining
        if length is not None and length <= most:
            with suppress(Transient):
                self.read(most)

    def close(self) -> None:
        """Ends it; if it was read to its end, the connection is used again."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        original: Any = self._response._original_response
        # urllib3 closes an answer that has failed too.
        if self._is_sound and original.isclosed() and not original.will_close:
            self._keep(connection)
        else:
            self._response.close()
            connection.close()


def _of_netrc(host: str) -> tuple[str, str] | None:
    """Gives what the user's `.netrc` has for a host; as curl does, nothing if it cannot be read."""
    path = os.environ.get("NETRC") or str(Path("~/.netrc").expanduser())
    try:
        found = netrc.netrc(path).authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return None
    return (found[0] or found[1] or "", found[2] or "") if found else None


def _basic(user: str, password: str = "") -> str:
    # As `requests` does: most servers read Latin-1.
    return "Basic " + base64.b64encode(f"{user}:{password}".encode("latin-1", "replace")).decode()


def _fault(error: BaseException, timeout: float) -> Transient | Refused:
    """Says in words of our own what an exception of a request means."""
    if isinstance(error, Transient | Refused):
        return error
    found = causes(error)
    if any(isinstance(cause, ssl.SSLError | urllib3.exceptions.SSLError) for cause in found):
        # ssl.SSLCertVerificationError has the reason, which names the certificate and no URL.
        reason = next((str(r) for cause in found if (r := getattr(cause, "verify_message", ""))), "")
        if reason:
            hint = "correct the certificate, or name its authority by REQUESTS_CA_BUNDLE or `verify`"
            return Refused(f"its server has a certificate that is not to be trusted ({reason})", hint)
        return Transient("TLS failed")
    if isinstance(error, ValueError | urllib3.exceptions.LocationValueError):
        return Refused("cannot be asked, or was redirected to what cannot", "check the URL and the headers")
    number = next((cause for cause in found if isinstance(cause, OSError) and cause.errno), None)
    what = f" ({os.strerror(number.errno)})" if number is not None and number.errno else ""
    # The first that fits: urllib3 counts a connection that was refused among the time-outs.
    reasons: dict[Any, str] = {
        urllib3.exceptions.ProxyError: f"the proxy cannot be reached{what}",
        urllib3.exceptions.NameResolutionError: "the name of its host is not known",
        urllib3.exceptions.NewConnectionError: f"its server cannot be reached{what}",
        urllib3.exceptions.ConnectTimeoutError: f"no connection within {timeout:g} s",
        urllib3.exceptions.TimeoutError: f"the answer stalled, for {timeout:g} s",
        TimeoutError: f"the answer stalled, for {timeout:g} s",
        urllib3.exceptions.IncompleteRead: "the answer broke off",
    }
    for kind, reason in reasons.items():
        if any(isinstance(cause, kind) for cause in found):
            return Transient(reason)
    return Transient(f"the connection broke{what}")


MOST_HOPS = 10

_STATUSES = {301, 302, 303, 307, 308}

_PORTS = {"http": 80, "https": 443}


def target_of(url: str, status: int, headers: Mapping[str, str]) -> str | None:
    """Gives the URL that an answer redirects to; None if it does not.

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
