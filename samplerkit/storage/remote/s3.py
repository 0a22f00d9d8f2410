"""Objects of S3 as URLs of HTTP that botocore signs, so that every process can read them, forked or not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, final

from samplerkit.storage.remote.access import (
    OF_HTTP,
    Address,
    Refused,
    Transient,
    in_other_words,
    library_fault,
)
from samplerkit.storage.urls import is_of_s3

_SIGNED_SECONDS = 3600

_NAMES = {
    "key": "aws_access_key_id", "secret": "aws_secret_access_key", "token": "aws_session_token",
    "endpoint_url": "endpoint_url", "region_name": "region_name", "use_ssl": "use_ssl",
}  # fmt: skip
"""The arguments of botocore's clients that may be given, also as `client_kwargs`, by what s3fs calls them."""

_KNOWN = {*_NAMES, "anon", "profile", "requester_pays", "client_kwargs", "config_kwargs"}

_OF_NO_USE = {
    *OF_HTTP, "asynchronous", "cache_regions", "default_block_size", "default_cache_type",
    "default_fill_cache", "listings_expiry_time", "max_paths",
    "skip_instance_cache", "use_listings_cache", "version_aware",
}  # fmt: skip
"""Options about HTTP, listings, caches and open files, which are not used here."""


@final
class SignedUrls:
    """Gives URLs of HTTP for the objects of S3, signed for an hour by botocore.

    Credentials, endpoints and regions are found as the tools of AWS find them.

    Args:
        options: as s3fs has them.
        headers: gives those of the answer to a request, which name the region of a bucket.
    """

    def __init__(self, options: Mapping[str, Any], headers: Callable[[Address], Mapping[str, str]]) -> None:
        self._options = {key: value for key, value in options.items() if key not in _OF_NO_USE}
        of_client = self._options.get("client_kwargs") or {}
        self._is_known = self._options.keys() <= _KNOWN and of_client.keys() <= {*_NAMES.values()}
        self._headers = headers
        self._lock = threading.Lock()
        self._clients: dict[str | None, Any] = {}
        self._regions: dict[str, str | None] = {}

    def serves(self, url: str) -> bool:
        """Whether a URL is one of S3 that can be signed, with the options that were given."""
        is_bucket = not {"@", ":"} & set(_bucket(url))  # and not user and password, or an access point
        return self._is_known and is_of_s3(url) and is_bucket and _has_botocore()

    def address(self, url: str) -> Address:
        """Gives where a file is asked for, by GET.

        Args:
            url: one that is served.

        Raises:
            Refused: there are no credentials, or botocore cannot use the options.
            Transient: the credentials could not be had this time.
        """
        with self._lock:  # sixteen threads would make sixteen clients
            return in_other_words(lambda: self._sign(url), Exception, _fault)

    def _sign(self, url: str) -> Address:
        bucket = _bucket(url)
        key, _, version = url.partition(f"://{bucket}/")[2].partition("?versionId=")
        wanted, headers = {"Bucket": bucket, "Key": key}, {}
        if version:
            wanted["VersionId"] = version
        if self._options.get("requester_pays"):
            wanted["RequestPayer"] = headers["x-amz-request-payer"] = "requester"
        if bucket not in self._regions:
            self._regions[bucket] = self._region_of(bucket)
        client = self._client(self._regions[bucket])
        return Address(client.generate_presigned_url("get_object", wanted, _SIGNED_SECONDS), headers)

    def _region_of(self, bucket: str) -> str | None:
        """Asks AWS in which region a bucket is; None for the one of the options, or of another store."""
        endpoint = self._client(None).meta.endpoint_url
        if not _is_of_aws(endpoint):
            return None
        with suppress(Exception):  # reading the file will say what is wrong
            return self._headers(Address(f"{endpoint}/{bucket}", {})).get("x-amz-bucket-region")
        return None

    def _client(self, region: str | None) -> Any:
        if region not in self._clients:
            self._clients[region] = _made(self._options, region)
        return self._clients[region]


def _made(options: Mapping[str, Any], region: str | None) -> Any:
    """Makes a client of botocore."""
    config = {"signature_version": "s3v4", **(options.get("config_kwargs") or {})}
    if region is not None:  # else some URLs are of the endpoint for all regions, which redirects
        config = {"s3": {"addressing_style": "virtual"}, **config}
    given = {_NAMES[key]: value for key, value in options.items() if key in _NAMES and value is not None}
    given = {**(options.get("client_kwargs") or {}), **given}
    if region is not None:
        given["region_name"] = region
    session = import_module("botocore.session").Session(profile=options.get("profile"))
    session.register_component("data_loader", _models())
    if options.get("anon"):
        config["signature_version"] = import_module("botocore").UNSIGNED
    elif "aws_access_key_id" not in given and session.get_credentials() is None:
        hint = "say key and secret, profile, or anon in storage_options, or set them up as for the AWS CLI"
        raise Refused("has no credentials: none were found", hint)
    return session.create_client("s3", config=import_module("botocore.config").Config(**config), **given)


@cache
def _models() -> Any:
    """Gives what botocore makes clients from: 13 MB and a tenth of a second, once for all of them."""
    return import_module("botocore.loaders").create_loader()


def _bucket(url: str) -> str:
    return url.partition("://")[2].partition("/")[0]


def _is_of_aws(endpoint: str) -> bool:
    return ".amazonaws.com" in endpoint


@cache
def _has_botocore() -> bool:
    return find_spec("botocore") is not None


def _fault(error: Exception) -> Exception:
    if isinstance(error, Refused | Transient):
        return error
    errors = import_module("botocore.exceptions")
    may_pass = (errors.ClientError, errors.HTTPClientError, errors.CredentialRetrievalError)
    is_mistake = not isinstance(error, (OSError, errors.MetadataRetrievalError, *may_pass))
    return library_fault(error, "botocore", is_mistake=is_mistake)
