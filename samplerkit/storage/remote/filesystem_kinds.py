"""What differs between fsspec's filesystems: what their errors mean, and what S3 can do beyond the others."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any

from samplerkit.storage.remote.attempt import Absent, Refused, Transient, causes

_PERMANENT_NUMBERS = {
    errno.EINVAL,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ENOSYS,
    errno.ENOTDIR,
    errno.ENOTSUP,
    errno.EPERM,
    getattr(errno, "EREMCHG", errno.ENOENT),  # s3fs: the bucket lies in another region
}
_MISTAKES = (ValueError, TypeError, LookupError, AttributeError, ImportError, NotImplementedError)


def plain_fault(error: Exception) -> Transient | Refused:
    """Reports what may pass from what will not.

    Returns:
        `Absent` for "not found" and "forbidden"; `Refused` for a mistake; `Transient` for all else.
    """
    if isinstance(error, Transient | Refused):
        return error
    if isinstance(error, FileNotFoundError):
        return Absent("does not exist", "check the URL")
    name = f"{type(error).__name__}{_detail(error)}"
    if isinstance(error, PermissionError):
        return Absent(f"may not be read ({name})", "check the credentials in storage_options")
    if _is_permanent(error, name):
        hint = "check the URL, the credentials and the other storage_options"
        return Refused(f"cannot be read through its filesystem ({name})", hint)
    return Transient(f"its filesystem failed ({name})")


def _is_permanent(error: Exception, name: str) -> bool:
    status = _status(error)
    if status is not None:
        return status < 500 and status not in {408, 429}
    numbers = {each.errno for each in causes(error) if isinstance(each, OSError)}
    # Some errors of connections are ValueErrors too; an OSError counts first.
    is_mistake = isinstance(error, _MISTAKES) and not isinstance(error, OSError)
    return is_mistake or "Credentials" in name or bool(numbers & _PERMANENT_NUMBERS)


def _code(error: BaseException) -> str:
    """Gives the code in the answer of an S3 store, as botocore hands it on."""
    response: Any = getattr(error, "response", None)
    found = response.get("Error", {}).get("Code", "") if isinstance(response, dict) else ""
    return found if isinstance(found, str) and found.isalnum() else ""


def _status(error: BaseException) -> int | None:
    """Gives the HTTP status that stores of other kinds put into their exceptions."""
    chain = causes(error)
    # aiohttp gives the status 400 to an answer that broke off, or is not HTTP.
    if any(type(each).__module__ == "aiohttp.http_exceptions" for each in chain):
        return None
    for each in chain:
        told = (getattr(each, name, None) for name in ("status", "status_code", "code"))
        number = next((number for number in told if isinstance(number, int)), 0)
        if 400 <= number < 600:
            return number
    return None


def _detail(error: BaseException) -> str:
    """Gives what is known besides the class: a code of a store, or a number of the system."""
    for each in causes(error):
        if code := _code(each):
            return f": {code}"
    number = error.errno if isinstance(error, OSError) else None
    return f": {os.strerror(number)}" if number else ""


_SCHEMES = {"s3", "s3a"}


def names_version(url: str) -> bool:
    """Returns whether a URL of S3 says which version of an object is meant."""
    return _is_of_s3(url) and "?versionId=" in url


def _is_of_s3(url: str) -> bool:
    return url.partition("://")[0].lower() in _SCHEMES


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
