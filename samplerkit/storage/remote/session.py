"""One HTTP request through `requests`, and its answer, with all its exceptions made into ours.

The exceptions of `requests` and urllib3 hold whole URLs, and so do urllib3's log records: neither leaves
this file.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, final

import requests
import requests.adapters
import urllib3
import urllib3.exceptions
import urllib3.poolmanager

from samplerkit.storage.remote.attempt import Refused, Transient, in_other_words
from samplerkit.storage.remote.http_rules import MOST_HOPS, is_same_place, target_of
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.pace import Pace, PacedResponse, current_pace
from samplerkit.storage.threads import Stop

_SHORT_BODY = 4096


@final
class Session:
    """Connections to HTTP servers, used by one thread at a time.

    Proxies come from the environment, as do certificates (`REQUESTS_CA_BUNDLE`) and `.netrc`.

    Args:
        options: of them the timeout, and `headers`, `auth`, `verify` and `cert` of the storage options.
    """

    def __init__(self, options: RemoteOptions) -> None:
        given = options.storage_options
        self._timeout = options.timeout
        # Given to each request, since the environment comes before what a session has.
        self._verify = given.get("verify")
        auth = given.get("auth")
        self._session = _UnredirectedSession(given.get("headers") or {}, given.get("cert"))
        self._session.auth = tuple(auth) if isinstance(auth, list) else auth
        # For other hosts: what the user gives may be secret, and is for the host that the user names.
        self._elsewhere = _UnredirectedSession({}, given.get("cert"))
        for name in ("urllib3.connection", "urllib3.connectionpool", "urllib3.util.retry"):
            logging.getLogger(name).addFilter(_is_of_others)

    def request(self, method: str, url: str, headers: Mapping[str, str], stop: Stop) -> StreamedResponse:
        """Makes a request, follows redirects, and waits for the head of the answer.

        Raises:
            Transient: the server cannot be reached, or is too slow.
            Refused: the URL or a redirect makes no sense, or a certificate is not to be trusted.
            Stopped: it is not wanted any more.
        """
        pace = Pace(self._timeout, stop)
        mark = current_pace.set(pace)
        try:
            response = in_other_words(
                lambda: self._followed(method, url, headers),
                (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError),
                lambda error: _fault(error, self._timeout),
            )
        finally:
            current_pace.reset(mark)
        return StreamedResponse(response, self._timeout, pace)

    def _followed(self, method: str, url: str, headers: Mapping[str, str]) -> requests.Response:
        session = self._session
        for _ in range(MOST_HOPS + 1):
            response = session.request(
                method,
                url,
                headers=dict(headers),
                timeout=(self._timeout, self._timeout),
                stream=True,
                verify=self._verify,
            )
            try:
                target = target_of(response.url, response.status_code, response.headers)
                if target is None:
                    return response
                if not is_same_place(response.url, target):
                    session = self._elsewhere
                _take_short_body(response)
            except BaseException:
                response.close()
                raise
            response.close()
            url = target
        raise Refused(f"was redirected more than {MOST_HOPS} times", "check the server's redirects")

    def close(self) -> None:
        """Closes the connections that are not in use."""
        self._session.close()
        self._elsewhere.close()


@final
class StreamedResponse:
    """The response to a request, its body still to be read.

    Attributes:
        status: such as 206.
        headers: by name, in any case.
    """

    def __init__(self, response: requests.Response, timeout: float, pace: Pace) -> None:
        self._response = response
        self._timeout = timeout
        self._pace = pace
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = response.headers

    def read(self, most: int) -> bytes:
        """Reads on in the body as it was sent, and gives nothing at its end.

        Raises:
            Transient: the connection broke, or the server is too slow.
            Stopped: it is not wanted any more.
        """
        self._pace.renew()
        data: bytes = in_other_words(
            lambda: self._response.raw.read(most, decode_content=False),
            (urllib3.exceptions.HTTPError, OSError),
            lambda error: _fault(error, self._timeout),
        )
        return data

    def close(self) -> None:
        """Ends it; if it was read to its end, the connection is used again."""
        self._response.close()


@final
class _UnredirectedSession(requests.Session):
    """A session that follows no redirect: `requests` would read the body of one to its end.

    Args:
        headers: for each request.
        cert: the user's certificate, as in `requests`.
    """

    def __init__(self, headers: Mapping[str, str], cert: Any) -> None:
        super().__init__()
        self._settings: dict[str, Any] = {}
        self.headers.update({**headers, "Accept-Encoding": "identity"})
        self.cert = cert
        for prefix in ("http://", "https://"):
            self.mount(prefix, _Adapter())

    def get_redirect_target(self, resp: requests.Response) -> None:
        return None

    def merge_environment_settings(self, url: Any, *given: Any) -> Any:
        # Going through the environment takes a sixth of the time of a request.
        host = "/".join(str(url).split("/", 3)[:3])
        if host not in self._settings:
            self._settings[host] = super().merge_environment_settings(url, *given)
        return dict(self._settings[host])


def _paced(pool: Any) -> Any:
    """Gives a pool of urllib3's connections whose answers are read at a pace."""
    connection = type("_Connection", (pool.ConnectionCls,), {"response_class": PacedResponse})
    return type("_Pool", (pool,), {"ConnectionCls": connection})


_POOLS = {scheme: _paced(pool) for scheme, pool in urllib3.poolmanager.pool_classes_by_scheme.items()}


@final
class _Adapter(requests.adapters.HTTPAdapter):
    """Makes connections whose answers are read at a pace; trying again is not its business."""

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        manager.pool_classes_by_scheme = _POOLS
        return manager


def _take_short_body(response: requests.Response) -> None:
    """Reads what stands in a redirect if it is short, for then the connection can be used again."""
    length = response.raw.length_remaining
    if length is not None and length <= _SHORT_BODY:
        with suppress(urllib3.exceptions.HTTPError, OSError):
            response.raw.read(_SHORT_BODY, decode_content=False)


def _is_of_others(_: logging.LogRecord) -> bool:
    """Lets urllib3's records pass unless they are of requests made here: those hold queries."""
    return current_pace.get() is None


def _fault(error: BaseException, timeout: float) -> Transient | Refused:
    """Says in words of our own what an exception of a request means."""
    causes = _causes(error)
    if any(isinstance(cause, requests.exceptions.SSLError | urllib3.exceptions.SSLError) for cause in causes):
        # ssl.SSLCertVerificationError has the reason, which names the certificate and no URL.
        reason = next((str(r) for cause in causes if (r := getattr(cause, "verify_message", ""))), "")
        if reason:
            mend = "mend the certificate, or name its authority by REQUESTS_CA_BUNDLE or `verify`"
            return Refused(f"its server has a certificate that is not to be trusted ({reason})", mend)
        return Transient("TLS failed")
    if isinstance(error, ValueError):
        return Refused("cannot be asked, or was redirected to what cannot", "check the URL and the headers")
    number = next((cause for cause in causes if isinstance(cause, OSError) and cause.errno), None)
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
        if any(isinstance(cause, kind) for cause in causes):
            return Transient(reason)
    return Transient(f"the connection broke{what}")


def _causes(error: BaseException) -> list[BaseException]:
    """Gives an exception and all that it was made of: requests and urllib3 put them in different places."""
    found: list[BaseException] = []
    waiting = [error]
    while waiting:
        cause = waiting.pop(0)
        if any(cause is known for known in found):
            continue
        found.append(cause)
        inner = [cause.__cause__, cause.__context__, getattr(cause, "reason", None), *cause.args]
        waiting += [each for each in inner if isinstance(each, BaseException)]
    return found
