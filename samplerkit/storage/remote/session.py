"""One HTTP request through `requests`, and its answer, with all its exceptions made into ours.

The exceptions of `requests` and urllib3 hold whole URLs, and so do urllib3's log records: neither leaves
this file.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any, final

import requests
import requests.adapters
import urllib3
import urllib3.connection
import urllib3.connectionpool
import urllib3.exceptions

from samplerkit.storage.remote.faults import Refused, Transient
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.pace import Pace, PacedResponse, current_pace
from samplerkit.storage.remote.stopping import Stop

_MOST_REDIRECTS = 10


@final
class Session:
    """Connections to HTTP servers, used by one thread at a time.

    Proxies come from the environment, as do certificates (`REQUESTS_CA_BUNDLE`) and `.netrc`.

    Args:
        options: of them the timeout, and `headers`, `auth`, `verify` and `cert` of the storage options.
    """

    def __init__(self, options: RemoteOptions) -> None:
        given = options.storage_options
        headers = given.get("headers") or {}
        self._timeout = options.timeout
        self._session = _Requests(headers)
        self._session.headers.update({**headers, "Accept-Encoding": "identity"})
        self._session.max_redirects = _MOST_REDIRECTS
        auth = given.get("auth")
        self._session.auth = tuple(auth) if isinstance(auth, list) else auth
        # Given to each request, since the environment comes before what a session has.
        self._verify = given.get("verify")
        self._session.cert = given.get("cert")
        for prefix in ("http://", "https://"):
            self._session.mount(prefix, _Adapter())
        for name in ("urllib3.connection", "urllib3.connectionpool", "urllib3.util.retry"):
            logging.getLogger(name).addFilter(_is_of_others)

    def request(self, method: str, url: str, headers: Mapping[str, str], stop: Stop) -> Answer:
        """Makes a request, follows redirects, and waits for the head of the answer.

        Raises:
            Transient: the server cannot be reached, or is too slow.
            Refused: the URL or a redirect makes no sense, or a certificate is not to be trusted.
            Stopped: it is not wanted any more.
        """
        pace = Pace(self._timeout, stop)
        mark = current_pace.set(pace)
        try:
            response = self._session.request(
                method,
                url,
                headers=dict(headers),
                timeout=(self._timeout, self._timeout),
                allow_redirects=True,
                stream=True,
                verify=self._verify,
            )
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            fault = _fault(error, self._timeout)
        else:
            pace.renew()
            return Answer(response, self._timeout)
        finally:
            current_pace.reset(mark)
        raise fault

    def close(self) -> None:
        """Closes the connections that are not in use."""
        self._session.close()


@final
class Answer:
    """The answer to a request, its body still to be read.

    Attributes:
        status: such as 206.
        headers: by name, in any case.
    """

    def __init__(self, response: requests.Response, timeout: float) -> None:
        self._response = response
        self._timeout = timeout
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = response.headers

    def read(self, most: int) -> bytes:
        """Reads on in the body as it was sent, and gives nothing at its end.

        Raises:
            Transient: the connection broke, or the server is too slow.
            Stopped: it is not wanted any more.
        """
        try:
            data: bytes = self._response.raw.read(most, decode_content=False)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            fault = _fault(error, self._timeout)
        else:
            return data
        raise fault

    def close(self) -> None:
        """Ends it; if it was read to its end, the connection is used again."""
        self._response.close()


@final
class _Requests(requests.Session):
    """A session whose secrets stay with their host.

    Args:
        private: headers of the user's, which may hold secrets: like `Authorization`, they do not follow a
            redirect to another host.
    """

    def __init__(self, private: Mapping[str, str]) -> None:
        super().__init__()
        self._private = tuple(private)
        self._settings: dict[str, Any] = {}

    def rebuild_auth(self, prepared_request: Any, response: requests.Response) -> None:
        if self.should_strip_auth(response.request.url, prepared_request.url):  # type: ignore[no-untyped-call]
            for name in self._private:
                prepared_request.headers.pop(name, None)
        super().rebuild_auth(prepared_request, response)  # type: ignore[no-untyped-call]

    def merge_environment_settings(self, url: Any, *given: Any) -> Any:
        # Going through the environment takes a sixth of the time of a request.
        host = "/".join(str(url).split("/", 3)[:3])
        if host not in self._settings:
            self._settings[host] = super().merge_environment_settings(url, *given)
        return dict(self._settings[host])


@final
class _Connection(urllib3.connection.HTTPConnection):
    response_class = PacedResponse


@final
class _SecureConnection(urllib3.connection.HTTPSConnection):
    response_class = PacedResponse


@final
class _Pool(urllib3.connectionpool.HTTPConnectionPool):
    ConnectionCls = _Connection


@final
class _SecurePool(urllib3.connectionpool.HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


@final
class _Adapter(requests.adapters.HTTPAdapter):
    """Makes connections whose answers are read at a pace; trying again is not its business."""

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        manager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}
        return manager


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
    if isinstance(error, requests.TooManyRedirects):
        return Refused(f"was redirected more than {_MOST_REDIRECTS} times", "check the server's redirects")
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
