"""Each fault of a server, many times, over HTTP and from a store: no byte is wrong, no secret is shown."""

import contextlib
import logging
import pickle
import random
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.filesystem import expand
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage, Span
from tests.storage.remote.conftest import CLIENTS
from tests.storage.remote.faults import CASES
from tests.storage.remote.server import MODIFIED, private
from tests.waiting import within

SECRETS = (
    "secret-user",
    "secret-password",
    "secret-query",
    "secret-header",
    "secret-option",
    "secret-cookie",
)


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


SIZE = 5000

RUNS = [("http", case, case.calls) for case in CASES]
# By the same client: each fifth one shows that it is.
RUNS += [("signed", case, case.calls) for case in CASES[::5]]
RUNS = [
    *(pytest.param(*run, id=f"{run[1].name}, {' and '.join(run[2])}, {run[0]}") for run in RUNS),
    *(
        # The client of s3fs is not ours: half of its faults are tested in the campaign.
        pytest.param("fsspec", case, ("fetch", "read"), id=f"{case.name}, fsspec", marks=pytest.mark.campaign)
        for case in CASES[1::2]
        if case.method == "GET"
    ),
]


def version_of(reader, url):
    """Requests a version, which may take longer on a busy machine than a stalled answer is waited for."""
    for _ in range(20):
        with contextlib.suppress(DatasetError):
            return reader.version(url)
    return reader.version(url)


def outcome(reader, kind, url, data):
    """Reads something; returns whether it is right, or the error."""
    try:
        if kind == "version":
            return reader.version(url).size == len(data)
        if kind == "fetch":
            with reader.fetch(url) as local:
                return Path(local.path).read_bytes() == data
        if kind == "small":
            return reader.read_small(url) == data
        first = random.Random(url).randrange(SIZE - 200)
        return reader.read([Span(url, first, 100 + first % 100)])[0] == data[first:][: 100 + first % 100]
    except DatasetError as error:
        return error


@pytest.mark.parametrize("lasts", [False, True], ids=["passes", "stays"])
@pytest.mark.parametrize(("client", "case", "calls"), RUNS)
def test_no_fault_of_a_server_returns_a_wrong_byte_or_leaks_a_secret(
    client, case, calls, lasts, server, storage, caplog, tmp_path
):
    is_web, is_ours = client == "http", client != "fsspec"
    options = {"headers": {"X-Key": "secret-header"}, "key": "secret-option"}
    if not is_web:
        pytest.importorskip("s3fs", reason="s3fs is not installed")
        options = {"key": "secret-option", "secret": "secret-header", **CLIENTS[client]}
        options["endpoint_url"] = server.url
    times = (4 if lasts else 8) if is_ours else 4
    # A short time limit only where one is to be met: the machine may be busy.
    reader = storage(
        timeout=0.4 if case.message == "stalled" else 30.0,
        threads=times,
        attempts=(2 if lasts else 5) if is_ours else 3,
        storage_options=options,
    )
    draw, files = random.Random(case.name), {}
    for number in range(times):
        path, data = f"/shards/{number}.bin", draw.randbytes(SIZE)
        web = server.put(path, data, None if is_web else MODIFIED)
        url = private(web) if is_web else f"s3:/{path}"
        files[url] = data
        if not is_ours:
            version_of(reader, url)
        if lasts or "redirect" in case.name:
            server.always[case.method, path] = case.fault
        else:
            server.faults[case.method, path] = [case.fault]
    caplog.set_level(logging.INFO, "botocore")  # which writes whole requests for who debugs it
    reads = [(reader, calls[number % len(calls)], *each) for number, each in enumerate(files.items())]
    with caplog.at_level(logging.DEBUG), within(20), ThreadPoolExecutor(times) as threads:
        outcomes = list(threads.map(outcome, *zip(*reads, strict=True)))
        retries = reader.stats.retries
        small = [outcome(reader, "small", *each) for each in [*files.items()][:1] if lasts and is_ours]
    assert False not in outcomes
    errors = [each for each in outcomes if each is not True]
    texts_shown = [text for each in errors + small if isinstance(each, DatasetError) for text in texts(each)]
    texts_shown += [repr(reader), repr(reader.stats), *logged(caplog)]
    texts_shown += [path.read_text(errors="replace") for path in (tmp_path / "cache").glob("*.lock")]
    assert leaks(texts_shown) == []
    assert all(str(each).startswith(server.url if is_web else "s3://shards/") for each in errors)
    if not is_ours:
        assert errors == [] or lasts or case.outcome != "retried"
        return
    # A store repeats the encoding that an object was written with, and encodes nothing.
    is_plain = not is_web and "gzip" in case.name
    # A plain request leaves a body without a length to another request, which meets no fault.
    is_unread = "read" in calls and ("chunks" in case.name or "without a length" in case.name)
    if is_plain or (is_unread and not lasts and case.method == "GET"):
        assert errors == []
        return
    is_retried = case.outcome == "retried"
    fails = case.outcome == "refused" or (is_retried and lasts)
    assert len(errors) == times * fails
    assert all(case.message in str(each) for each in errors)
    assert all(("tried 2 times" in str(each)) is is_retried for each in errors)
    assert retries >= times if is_retried else retries == 0
    if is_retried and not lasts:
        assert retries == times or case.message == "stalled"
        assert len(server.calls("GET")) == times + retries or case.method != "GET"
