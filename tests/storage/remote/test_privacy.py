"""What is private stays private: in errors, their chains, reprs, logs and the cache's files."""

from __future__ import annotations

import logging
import pickle
import traceback

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.filesystem import expand
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage

SECRETS = (
    "secret-user",
    "secret-password",
    "secret-query",
    "secret-header",
    "secret-option",
    "secret-cookie",
)


def private(url: str) -> str:
    """Puts all that a URL can hide into one."""
    return url.replace("://", "://secret-user:secret-password@") + "?token=secret-query#secret-query"


def texts(error: BaseException) -> list[str]:
    """All that can be written of an error and of whatever it was made from, shown by Python or not."""
    found, waiting = [], [error]
    while waiting:
        each = waiting.pop()
        found += [str(each), repr(each), repr(vars(each)), "".join(traceback.format_exception(each))]
        waiting += [inner for inner in (each.__cause__, each.__context__) if inner is not None]
    return [*found, repr(pickle.loads(pickle.dumps(error)))]  # noqa: S301  # our own bytes


def leaks(found: list[str]) -> list[str]:
    return [text for text in found if any(secret in text for secret in SECRETS)]


@pytest.fixture
def everything_logged(caplog):
    with caplog.at_level(logging.DEBUG):
        yield caplog


def logged(caplog) -> list[str]:
    return [f"{record.getMessage()} {record.exc_text} {record.args}" for record in caplog.records]


def test_a_server_that_cannot_be_reached_tells_no_secret(storage, everything_logged):
    for url in (
        "http://127.0.0.1:9/a",
        "http://no-such-host.invalid/a",
        "http://127.0.0.1:99999/a",
        "https:///a",
    ):
        with pytest.raises(DatasetError) as caught:
            storage().fetch(private(url))
        assert leaks(texts(caught.value) + logged(everything_logged)) == []


class LeakyFileSystem(MemoryFileSystem):
    """A filesystem whose errors tell all that they know."""

    protocol = "leaky"
    error: Exception = OSError("unset")

    def info(self, path, **options):
        raise self.error


@pytest.fixture
def leaky():
    fsspec.register_implementation("leaky", LeakyFileSystem, clobber=True)
    return LeakyFileSystem


@pytest.mark.parametrize(
    "error",
    [
        OSError("secret-query"),
        ValueError("secret-query"),
        FileNotFoundError(2, "secret-query", "secret-query"),
        PermissionError("secret-query"),
        TimeoutError("secret-query"),
        RuntimeError("secret-query"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_failure_of_a_filesystem_tells_a_secret(error, leaky, storage, everything_logged):
    leaky.error = error
    error.__cause__ = OSError("secret-password")
    reader = storage(attempts=2, retry_seconds=0.01, storage_options={"secret": "secret-option"})
    for call in (reader.version, reader.fetch):
        with pytest.raises(DatasetError) as caught:
            call(private("leaky://host/a"))
        assert leaks(texts(caught.value) + logged(everything_logged)) == []
        assert str(caught.value).startswith("leaky://host/a")


def test_options_tell_no_secret():
    options = RemoteOptions(
        digests={"https://host/a?secret-query": f"md5:{'0' * 32}"},
        storage_options={"headers": {"X-Key": "secret-header"}, "secret": "secret-option"},
    )
    assert leaks([repr(options), str(options), repr(RemoteStorage(options))]) == []
    for wrong in (["secret-option"], {3: "secret-option"}, "secret-option"):
        with pytest.raises(TypeError) as caught:
            RemoteOptions(storage_options=wrong)
        assert leaks(texts(caught.value)) == []


PATTERNS = [
    url.replace("://", "://secret-user:secret-password@")
    for url in ("https://host/*.tar", "no-such-scheme://host/*.tar", "memory://nothing/*.tar")
]


def test_patterns_tell_no_secret():
    for pattern in PATTERNS:
        with pytest.raises(DatasetError) as caught:
            expand(pattern, RemoteOptions())
        assert leaks(texts(caught.value)) == []


def leaking():
    raise OSError("secret-query")


def test_a_planted_leak_is_found():
    with pytest.raises(DatasetError) as caught:
        try:
            leaking()
        except OSError as error:
            raise DatasetError("https://host/a", "failed") from error
    assert leaks(texts(caught.value)) != []
