"""Secrets stay out of errors, their chains, reprs, logs and the cache's files."""

from __future__ import annotations

import logging
import pickle
import traceback

import pytest

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
    """Adds a user, a password, a query and a fragment to a URL."""
    return url.replace("://", "://secret-user:secret-password@") + "?token=secret-query#secret-query"


def texts(error: BaseException) -> list[str]:
    """All texts of an error and of its causes and contexts, shown by Python or not."""
    shown, waiting = [], [error]
    while waiting:
        each = waiting.pop()
        shown += [str(each), repr(each), repr(vars(each)), "".join(traceback.format_exception(each))]
        waiting += [inner for inner in (each.__cause__, each.__context__) if inner is not None]
    return [*shown, repr(pickle.loads(pickle.dumps(error)))]  # noqa: S301  # our own bytes


def leaks(texts: list[str]) -> list[str]:
    return [text for text in texts if any(secret in text for secret in SECRETS)]


def logged(caplog) -> list[str]:
    return [f"{record.getMessage()} {record.exc_text} {record.args}" for record in caplog.records]


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://127.0.0.1:9/a", r"tried 3 times .* cannot be reached \(Connection refused\)"),
        ("http://no-such-host.invalid/a", r"name of its host is not known|cannot be reached"),
        ("http://127.0.0.1:99999/a", None),
        ("https:///a", None),
    ],
)
def test_an_unreachable_server_leaks_no_secret(storage, caplog, url, problem):
    with caplog.at_level(logging.DEBUG), pytest.raises(DatasetError, match=problem) as caught:
        storage().fetch(private(url))
    assert leaks(texts(caught.value) + logged(caplog)) == []


def test_options_show_no_secret():
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


def test_patterns_leak_no_secret():
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
