"""HTTP URLs for S3 objects, signed by botocore."""

import http.client
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from samplerkit.storage.remote.access import Refused, Transient, library_fault, translate_errors
from samplerkit.storage.remote.http_response import Headers
from samplerkit.storage.remote.options import HTTP_OPTIONS
from samplerkit.storage.threads import importing
from samplerkit.storage.urls import is_s3

_SIGNED_SECONDS = 3600

_NAMES = {
    "key": "aws_access_key_id", "secret": "aws_secret_access_key", "token": "aws_session_token",
    "endpoint_url": "endpoint_url", "region_name": "region_name", "use_ssl": "use_ssl",
}  # fmt: skip
"""The supported arguments of botocore's clients, by their names in s3fs; allowed also in `client_kwargs`."""

_SUPPORTED = {*_NAMES, "anon", "profile", "requester_pays", "client_kwargs", "config_kwargs"}


class SignedUrls:
    """Makes HTTP URLs for S3 objects, signed for an hour by botocore.

    Credentials, endpoints and regions are found as by the AWS tools.

    Args:
        options: options with the names of s3fs.
        headers: returns the headers of the response for a URL, which contain the region of a bucket.
    """

    def __init__(self, options: Mapping[str, Any], headers: Callable[[str], Headers]) -> None:
        self._options = {key: value for key, value in options.items() if key not in HTTP_OPTIONS}
        of_client = self._options.get("client_kwargs") or {}
        self._is_supported = self._options.keys() <= _SUPPORTED and of_client.keys() <= {*_NAMES.values()}
        self._headers = headers
        self._lock = threading.Lock()
        self._client = cache(partial(_make_client, self._options))
        self._regions: dict[str, str | None] = {}

    def serves(self, url: str) -> bool:
        """Returns whether a URL is an S3 URL that can be signed with the given options."""
        is_bucket = not {"@", ":"} & set(_bucket(url))  # neither user and password, nor an access point
        return self._is_supported and is_s3(url) and is_bucket and _has_botocore()

    def address(self, url: str) -> tuple[str, Mapping[str, str]]:
        """Returns the signed HTTP URL of a file, for GET, and the headers that are sent with it.

        Args:
            url: a URL for which `serves` is true.

        Raises:
            Refused: there are no credentials, or botocore cannot use the options.
            Transient: the credentials could not be obtained this time.
        """
        with self._lock:  # otherwise sixteen threads would make sixteen clients
            return translate_errors(lambda: self._sign(url), Exception, _fault)

    def _sign(self, url: str) -> tuple[str, Mapping[str, str]]:
        bucket = _bucket(url)
        key, _, version = url.partition(f"://{bucket}/")[2].partition("?versionId=")
        params, headers = {"Bucket": bucket, "Key": key}, {}
        if version:
            params["VersionId"] = version
        if self._options.get("requester_pays"):
            params["RequestPayer"] = headers["x-amz-request-payer"] = "requester"
        if bucket not in self._regions:
            self._regions[bucket] = self._region_of(bucket)
        client = self._client(self._regions[bucket])
        return client.generate_presigned_url("get_object", params, _SIGNED_SECONDS), headers

    def _region_of(self, bucket: str) -> str | None:
        """Requests the region of a bucket from AWS; None for the region of the options or another store."""
        endpoint = self._client(None).meta.endpoint_url
        if not _is_of_aws(endpoint):
            return None
        with suppress(Refused):  # reading the file will report the problem
            return self._headers(f"{endpoint}/{bucket}").get("x-amz-bucket-region")
        return None


def _make_client(options: Mapping[str, Any], region: str | None) -> Any:
    """Makes a botocore client."""
    config = {"signature_version": "s3v4", **(options.get("config_kwargs") or {})}
    given = {_NAMES[key]: value for key, value in options.items() if key in _NAMES and value is not None}
    given = {**(options.get("client_kwargs") or {}), **given}
    if region is not None:  # otherwise some URLs have the global endpoint, which redirects
        config = {"s3": {"addressing_style": "virtual"}, **config}
        given["region_name"] = region
    with importing:
        session = import_module("botocore.session").Session(profile=options.get("profile"))
        session.register_component("data_loader", _models())
        if options.get("anon"):
            config["signature_version"] = import_module("botocore").UNSIGNED
        elif "aws_access_key_id" not in given and session.get_credentials() is None:
            hint = "set key and secret, profile or anon in storage_options, or set them up as for the AWS CLI"
            raise Refused("has no credentials: none were found", hint)
        return session.create_client("s3", config=import_module("botocore.config").Config(**config), **given)


@cache
def _models() -> Any:
    """Returns botocore's loader of models, shared by all clients, since it takes 13 MB and 0.1 seconds."""
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
    of_botocore = (errors.ClientError, errors.HTTPClientError, errors.CredentialRetrievalError)
    transient = (OSError, http.client.HTTPException, errors.MetadataRetrievalError, *of_botocore)
    return library_fault(error, "botocore", is_mistake=not isinstance(error, transient))
