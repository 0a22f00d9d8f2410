"""What S3 can do beyond fsspec's interface: a part of a file by its version, in one request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SCHEMES = {"s3", "s3a"}


def is_s3(filesystem: Any) -> bool:
    """Tells whether a filesystem is that of s3fs, or one made from it."""
    return hasattr(filesystem, "call_s3")


def s3_defaults(scheme: str, given: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """Adds our time limits to the options of an S3 store, and leaves trying again to us.

    Args:
        scheme: of the URL; the options of other stores stay as they are.
        given: the user's options.
        timeout: seconds to connect, and without a byte.
    """
    options = dict(given)
    if scheme in _SCHEMES:
        ours = {"connect_timeout": timeout, "read_timeout": timeout, "retries": {"total_max_attempts": 1}}
        options["config_kwargs"] = {**ours, **options.get("config_kwargs", {})}
    return options


async def s3_part(filesystem: Any, path: str, tag: str, offset: int, length: int) -> bytes:
    """Reads a part of an object on condition that it is of a version.

    Args:
        filesystem: that of s3fs.
        path: bucket and key.
        tag: of the version, as `Version` has it.
        offset: of the first byte.
        length: in bytes.
    """
    bucket, key, version = filesystem.split_path(path)
    wanted: dict[str, Any] = {"Bucket": bucket, "Key": key, "Range": f"bytes={offset}-{offset + length - 1}"}
    if tag.startswith("ETag "):
        wanted["IfMatch"] = tag.removeprefix("ETag ")
    if version:
        wanted["VersionId"] = version
    answer = await filesystem._call_s3("get_object", **wanted)
    try:
        data: bytes = await answer["Body"].read()
    finally:
        answer["Body"].close()
    return data
