"""What obstore has to know of a bucket, from the options that fsspec's filesystems have for it."""

from __future__ import annotations

import http.client
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, final
from urllib.parse import quote

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.urls import shown

OF_HTTP = {"headers", "auth", "verify", "cert"}
"""The storage options that are for HTTP alone."""

_KINDS = {
    "s3": "S3Store", "s3a": "S3Store", "gs": "GCSStore", "gcs": "GCSStore",
    "az": "AzureStore", "abfs": "AzureStore", "abfss": "AzureStore",
}  # fmt: skip

SIGNED_SECONDS = 3600

_AWS = "https://s3.amazonaws.com"

_KEY = re.compile(r"(?!.*(^|/)\.{0,2}(/|$))[\w\-.=+@:,!()' /]+", re.ASCII)
"""Keys that obstore takes as they are; it would escape or shorten others."""

_NAMES: dict[str, dict[str, str]] = {
    "S3Store": {
        "key": "access_key_id", "secret": "secret_access_key", "token": "session_token",
        "anon": "skip_signature", "endpoint_url": "endpoint", "requester_pays": "request_payer",
        "region_name": "region",
        "aws_access_key_id": "access_key_id", "aws_secret_access_key": "secret_access_key",
        "aws_session_token": "session_token",
    },
    "GCSStore": {"endpoint_url": "base_url"},
    "AzureStore": {
        "anon": "skip_signature", "account_name": "account_name", "account_key": "account_key",
        "tenant_id": "tenant_id",
        "client_id": "client_id", "client_secret": "client_secret",
    },
}  # fmt: skip
"""The options that obstore has too, by the names that s3fs, gcsfs and adlfs have for them.

Not `sas_token` of Azure: it is in the query, and so would go along in the `Referer` of a redirect.
"""

_OF_NO_USE = {
    *OF_HTTP, "asynchronous", "cache_regions", "default_block_size", "default_cache_type",
    "default_fill_cache", "listings_expiry_time", "max_paths", "project",
    "skip_instance_cache", "use_listings_cache", "use_ssl", "version_aware",
}  # fmt: skip
"""Options about listings, caches and open files, which are not used here."""


_is_forked_from_user = False


def _after_fork() -> None:
    # Its threads are gone in a child, and waiting for them hangs, also with a store of its own. Who has
    # imported it may have used it, in whichever thread: children of such a process never call it.
    global _is_forked_from_user  # noqa: PLW0603  # of the process, as the modules that are imported are
    _is_forked_from_user = _is_forked_from_user or "obstore" in sys.modules


os.register_at_fork(after_in_child=_after_fork)


def is_forked_from_user() -> bool:
    """Whether this process was forked from one that may have used obstore, so that it must not."""
    return _is_forked_from_user


def may_use_obstore() -> bool:
    """Whether this process may use obstore: it is installed, and was not used before a fork."""
    return not _is_forked_from_user and _is_installed("obstore")


@cache
def _is_installed(package: str) -> bool:
    return find_spec(package) is not None


@final
@dataclass(frozen=True)
class Bucket:
    """A bucket, or a container, and how obstore reaches it.

    Args:
        name: with the scheme, such as `s3://bucket`.
        kind: the name of obstore's class.
        container: its name at the store.
        config: for obstore.
        credentials: gives those of a profile or a role, again when they expire; None where obstore has them.
    """

    name: str
    kind: str
    container: str
    config: Mapping[str, Any] = field(repr=False)
    credentials: Callable[[], Any] | None = field(default=None, repr=False)

    @property
    def allows_http(self) -> bool:
        """Whether its endpoint is named without TLS."""
        named = [self.config.get(name) for name in ("endpoint", "base_url")]
        return any(str(each).lower().startswith("http://") for each in named)

    def has(self, url: str) -> bool:
        """Whether a key can be given to obstore."""
        return _KEY.fullmatch(self.path(url)) is not None

    def path(self, url: str) -> str:
        """Gives the key of a URL."""
        return url.removeprefix(self.name + "/").partition("?versionId=")[0]

    def may_be_signed(self, url: str) -> bool:
        """Whether a URL of HTTP can stand for that of a file."""
        is_plain = "request_payer" not in self.config and not names_version(url)
        return self.kind == "S3Store" and is_plain and self.has(url)

    def signed(self, url: str) -> str:
        """Gives the URL of HTTP of a file of S3, signed for an hour, unless it is open to all, by botocore.

        Returns:
            The URL; "" where botocore is not installed.
        """
        region = self.config["region"]
        aws = f"https://s3.{region}.amazonaws.com{'.cn' * region.startswith('cn-')}"
        endpoint = self.config.get("endpoint") or aws
        address = f"{endpoint.rstrip('/')}/{self.container}/{quote(self.path(url))}"
        if self.config.get("skip_signature"):
            return address
        if not _is_installed("botocore"):
            return ""
        found = self.credentials() if self.credentials else self.config
        names = ("access_key_id", "secret_access_key", "token" if self.credentials else "session_token")
        credentials = import_module("botocore.credentials").Credentials(*map(found.get, names))
        request: Any = import_module("botocore.awsrequest").AWSRequest("GET", address)
        auth = import_module("botocore.auth")
        auth.S3SigV4QueryAuth(credentials, "s3", region, expires=SIGNED_SECONDS).add_auth(request)
        return str(request.url)

    def store(self, **options: Any) -> Any:
        """Makes obstore's store."""
        made: Any = getattr(import_module("obstore.store"), self.kind)
        if self.credentials is not None:
            options["credential_provider"] = self.credentials
        return made(self.container, **self.config, **options)

    def response_tag(self, headers: Mapping[str, str]) -> str:
        """Gives the tag of a version, as in `Version`, from the headers of a response."""
        return self.tag({"e_tag": headers.get("etag")})

    def tag(self, meta: Any) -> str:
        """Gives the tag of a version as it is in `Version`, of the same form as through fsspec."""
        if self.kind == "GCSStore":
            return f"generation {meta['version']}" if meta["version"] else ""
        tag = meta["e_tag"] or ""
        if not tag:
            return ""
        return f"ETag {tag}" if self.kind == "S3Store" else f"etag {tag.strip(chr(34))}"


def bucket_of(url: str, options: RemoteOptions) -> Bucket | None:
    """Gives the bucket of a URL; None if obstore does not know its scheme, or not all of the options.

    Raises:
        DatasetError: nothing has credentials for it, and `anon` was not given.
    """
    scheme, _, rest = url.partition("://")
    name = f"{scheme}://{rest.partition('/')[0]}"
    container, account_mark, account = rest.partition("/")[0].partition("@")
    kind = _KINDS.get(scheme.lower(), "")
    if "::" in url or not kind or not container or (account_mark and kind != "AzureStore"):
        return None
    given = {key: value for key, value in options.storage_options.items() if key not in _OF_NO_USE}
    if account_mark:
        given.setdefault("account_name", account.partition(".")[0])
    if kind == "S3Store":
        given = {**(given.pop("client_kwargs", None) or {}), **given}
    completed, own = {
        "S3Store": (_of_s3, "profile"), "GCSStore": (_of_google, "token"), "AzureStore": (_of_azure, ""),
    }[kind]  # fmt: skip
    wanted, names = given.pop(own, None), _NAMES[kind]
    if not set(given) <= set(names):
        return None
    config = {names[key]: value for key, value in given.items() if value is not None}
    if not completed(config, wanted, url):
        return None
    return Bucket(name, kind, container, config, config.pop("credentials", None))


def _of_s3(config: dict[str, Any], profile: str | None, url: str) -> bool:
    """Adds what the tools of AWS find; returns whether that is all that obstore needs."""
    session = _session(profile)
    if session is None and (profile or os.environ.get("AWS_PROFILE")):
        return False
    if session is not None and {"endpoint_url", "services"} & set(session.get_scoped_config()):
        return False  # endpoints of a profile are found by botocore alone
    if session is not None and not config.get("skip_signature") and "access_key_id" not in config:
        if session.get_credentials() is None:
            hint = (
                "say key and secret, profile, or anon in storage_options, or set them up as for the AWS CLI"
            )
            raise DatasetError(shown(url), "has no credentials: none were found", hint=hint)
        config["credentials"] = partial(_credentials, session)
    endpoints = [os.environ.get(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")]
    if endpoint := next(filter(None, [config.get("endpoint"), *endpoints]), None):
        config["endpoint"] = endpoint
    if session is not None and "region" not in config and (region := session.get_config_variable("region")):
        config["region"] = region
    if not endpoint and (region := _region_of(url.split("/")[2])):
        config["region"] = region
    config.setdefault("region", "us-east-1")
    return True


def _session(profile: str | None) -> Any:
    """Gives botocore's session, which finds what the tools of AWS find; None where it is not installed."""
    try:
        return import_module("botocore.session").Session(profile=profile)
    except ImportError:
        return None


def _region_of(bucket: str) -> str | None:
    """Asks in which region a bucket is, as botocore does when it is another one than was said."""
    kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    scheme, _, host = _AWS.partition("://")
    with suppress(OSError, http.client.HTTPException), closing(kinds[scheme](host, timeout=5.0)) as asked:
        asked.request("HEAD", f"/{bucket}")
        found: str | None = asked.getresponse().getheader("x-amz-bucket-region")
        return found
    return None


def _credentials(session: Any) -> dict[str, Any]:
    """Gives the credentials of a session of botocore, which renews them when that is due."""
    found = session.get_credentials().get_frozen_credentials()
    return {
        "access_key_id": found.access_key,
        "secret_access_key": found.secret_key,
        "token": found.token,
        "expires_at": datetime.now(UTC) + timedelta(minutes=10),
    }


def _of_google(config: dict[str, Any], token: Any, _: str) -> bool:
    if token == "anon":  # noqa: S105  # what gcsfs calls it
        config["skip_signature"] = True
    elif isinstance(token, str) and token != "google_default":  # noqa: S105  # as before
        config["application_credentials"] = token
        return os.path.isfile(token)  # noqa: PTH113  # a word may be no path
    return token is None or isinstance(token, str)


def _of_azure(config: dict[str, Any], *_: Any) -> bool:
    return bool(config.get("account_name") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME"))


def names_version(url: str) -> bool:
    """Returns whether a URL of S3 says which version of an object is meant."""
    return _is_of_s3(url) and "?versionId=" in url


def _is_of_s3(url: str) -> bool:
    return _KINDS.get(url.partition("://")[0].lower()) == "S3Store"


def s3_defaults(url: str, given: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """Adds our time limits to the options of an S3 store, and leaves trying again to us.

    Args:
        url: of a file; if it names a version, that is read. The options of other stores stay as they are.
        given: the user's options.
        timeout: seconds to connect, and without a byte.
    """
    options = dict(given)
    if _is_of_s3(url):
        ours = {"connect_timeout": timeout, "read_timeout": timeout, "retries": {"total_max_attempts": 1}}
        options["config_kwargs"] = {**ours, **options.get("config_kwargs", {})}
        if names_version(url):  # which s3fs leaves aside unless it is told
            options.setdefault("version_aware", True)
    return options
