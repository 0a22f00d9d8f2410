"""URLs of all kinds, through fsspec: a filesystem that a user registers, and its faults."""

import errno
import io
import itertools
import logging
import threading
import zipfile
from unittest.mock import Mock

import fsspec
import pytest
from botocore.exceptions import NoCredentialsError
from fsspec.registry import known_implementations

from samplerkit.errors import DatasetError
from samplerkit.storage.remote import retries
from samplerkit.storage.remote.filesystem import expand, write_small
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import Span
from samplerkit.storage.threads import Stop
from tests.storage.cluster import Cluster, cluster
from tests.storage.remote.server import content
from tests.storage.remote.test_faulty_servers import leaks, logged, texts
from tests.waiting import wait_until, within

DATA = bytes(range(256)) * 100
PRIVATE = {"secret": "secret-option"}


@pytest.fixture(autouse=True)
def _cluster(tmp_path):
    (tmp_path / "hdfs").mkdir()
    with cluster(tmp_path / "hdfs"):
        yield


def put(name: str, data: bytes = DATA) -> str:
    """Puts a file there; gives its URL, with secrets."""
    path = Cluster.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return f"hdfs://secret-user:secret-password@namenode:8020/{name}"


TRANSIENT = [
    OSError("secret-query"),
    OSError(errno.EIO, "secret-query"),
    TimeoutError("secret-query"),
    ConnectionResetError(errno.ECONNRESET, "secret-query"),
    RuntimeError("secret-query"),
    EOFError(),
    lambda path: DATA[:3],  # too short
]
PERMANENT = [
    (FileNotFoundError(errno.ENOENT, "secret-query", "secret-query"), "does not exist"),
    (PermissionError(errno.EACCES, "secret-query"), "access is denied"),
    (ValueError("secret-query"), "ValueError"),
    (NotImplementedError(), "NotImplementedError"),
    (NoCredentialsError(), r"\(NoCredentialsError\); check the URL, the credentials"),
]


@pytest.mark.parametrize("number", range(len(TRANSIENT)))
@pytest.mark.parametrize("method", ["read", "fetch"])
def test_transient_errors_are_retried_and_leak_no_secret(number, method, storage, caplog):
    caplog.set_level(logging.DEBUG)
    url, reader = put("a.tar"), storage(attempts=2)
    Cluster.failures = [TRANSIENT[number]]
    if method == "read":
        assert reader.read([Span(url, 300, 5)]) == [DATA[300:305]]
    else:
        assert content(reader.fetch(url)) == DATA
    assert Cluster.failures == []
    assert reader.stats.retries == 1
    Cluster.failures = [TRANSIENT[number]] * 2
    with pytest.raises(DatasetError, match=r"^hdfs://namenode.* tried 2 times") as caught:
        storage(attempts=2, storage_options=PRIVATE).read([Span(url, 300, 5)])
    assert leaks(texts(caught.value) + logged(caplog)) == []


@pytest.mark.parametrize(("failure", "message"), PERMANENT, ids=[message for _, message in PERMANENT])
def test_permanent_errors_are_not_retried_and_leak_no_secret(failure, message, storage, caplog):
    caplog.set_level(logging.DEBUG)
    url = put("a.tar")
    failure.__cause__ = OSError("secret-password")
    for call in (lambda reader: reader.read([Span(url, 0, 5)]), lambda reader: reader.fetch(url)):
        Cluster.failures = [failure]
        reader = storage()
        with pytest.raises(DatasetError, match=f"^hdfs://namenode.*{message}") as caught:
            call(reader)
        assert leaks(texts(caught.value) + logged(caplog)) == []
        assert reader.stats.retries == 0


def test_waits_are_drawn_from_a_time_that_doubles_up_to_half_a_minute(storage, monkeypatch):
    slept = []
    monkeypatch.setattr(retries._DRAWS, "uniform", lambda low, high: high - low)
    monkeypatch.setattr(Stop, "sleep", lambda _, seconds: slept.append(seconds))
    Cluster.failures = [EOFError()] * 8
    reader = storage(attempts=9, retry_seconds=1000)
    assert reader.read([Span(put("a.tar"), 300, 5)]) == [DATA[300:305]]
    assert [seconds for seconds in slept if seconds] == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_folders_of_a_written_file_are_made(tmp_path):
    write_small(str(tmp_path / "a" / "b" / "c"), b"data", RemoteOptions())
    assert (tmp_path / "a" / "b" / "c").read_bytes() == b"data"


def test_an_error_of_writing_does_not_speak_of_reading(monkeypatch):
    for failure in (PermissionError(errno.EACCES, "secret-query"), ValueError("secret-query")):
        monkeypatch.setattr(Cluster, "pipe_file", Mock(side_effect=failure))
        with pytest.raises(DatasetError, match=r"hdfs://namenode:8020/a: (access is denied|is refused)"):
            write_small("hdfs://namenode:8020/a", b"", RemoteOptions())


def test_a_filesystem_that_hangs_is_an_error(storage):
    url, released = put("a.tar"), threading.Event()
    Cluster.failures = [lambda path: released.wait(60)] * 2
    with within(20), pytest.raises(DatasetError, match=r"tried 2 times .*TimeoutError"):
        storage(attempts=2, timeout=0.3).read([Span(url, 0, 5)])
    released.set()
    wait_until(lambda: all(thread.name != "samplerkit-remote-call" for thread in threading.enumerate()))


def test_a_pattern_gives_files_sorted_by_bytes():
    for name in ("b.tar", "B.tar", "ä.tar", "a.tar", "c.txt", "sub/d.tar"):
        put(f"train/{name}")
    base = "hdfs://namenode:8020/train"
    options = RemoteOptions(attempts=1)
    assert expand(f"{base}/*.tar", options) == tuple(
        f"{base}/{name}" for name in ("B.tar", "a.tar", "b.tar", "ä.tar")
    )
    assert expand(f"{base}/[a-b].tar", options) == (f"{base}/a.tar", f"{base}/b.tar")
    assert expand(f"{base}/**/d.tar", options) == (f"{base}/sub/d.tar",)
    assert expand(f"{base}/a.tar", options) == (f"{base}/a.tar",)
    with pytest.raises(DatasetError, match=r"hdfs://namenode:8020/train/\*.npz: no file matches"):
        expand(f"{base}/*.npz", options)
    fsspec.filesystem("memory").pipe({"/listed/1.tar": b"", "/listed/0.tar": b""})
    assert expand("memory://listed/?.tar", options) == ("memory://listed/0.tar", "memory://listed/1.tar")


def test_a_folder_that_matches_a_pattern_of_files_is_an_error():
    for name in ("a.tar", "b.tar/part.tar"):
        put(f"train/{name}")
    base, options = "hdfs://namenode:8020/train", RemoteOptions(attempts=1)
    with pytest.raises(DatasetError, match=r"matches a folder, .*train/b\.tar'; name the files in it too"):
        expand(f"{base}/*.tar", options)
    assert expand(f"{base}/*", options) == (f"{base}/a.tar",)


NO_FILES = {
    "hdfs://namenode:8020/folder": "is a folder",
    "no-such-scheme://host/a": "its filesystem cannot be made",
    "needs-it://bucket/a": r"cannot be made \(Please install it\); check its scheme, fsspec's",
}


@pytest.mark.parametrize("url", NO_FILES)
def test_a_folder_an_unknown_scheme_and_one_whose_package_is_not_installed_are_errors(
    url, storage, monkeypatch
):
    put("folder/a.tar")
    needed = {"class": "no_such_package.FileSystem", "err": "Please install it"}
    monkeypatch.setitem(known_implementations, "needs-it", needed)
    with pytest.raises(DatasetError, match=NO_FILES[url]):
        storage().version(url)


def test_an_extra_that_is_not_installed_is_named(storage, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr("samplerkit.storage.remote.filesystem.import_module", missing)
    with pytest.raises(DatasetError, match=r'needs fsspec.*pip install "samplerkit\[remote\]"'):
        storage().version("hdfs://host/a")


def test_a_chain_of_filesystems_is_read(storage):
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("inner.bin", DATA)
    fsspec.filesystem("memory").pipe("/chained.zip", written.getvalue())
    url = "zip://inner.bin::memory://chained.zip"
    reader = storage()
    assert reader.read([Span(url, 300, 5)]) == [DATA[300:305]]
    assert content(reader.fetch(url)) == DATA


def test_a_file_that_changes_during_a_download_is_an_error_even_if_the_store_fails_to_report_it(
    storage, monkeypatch
):
    url, reader, info_of_store, calls = put("a.tar"), storage(), Cluster.info, itertools.count()

    def info(self, path, **options):
        if next(calls) == 1:  # after all of it has come
            put("a.tar", DATA[::-1])
            raise OSError("not now")
        return info_of_store(self, path, **options)

    monkeypatch.setattr(Cluster, "info", info)
    with pytest.raises(DatasetError, match="was changed while it was in use"):
        reader.fetch(url)


def test_a_file_without_a_size_is_an_error_with_the_cause(storage, monkeypatch):
    url, info = put("a.json"), Cluster.info
    monkeypatch.setattr(Cluster, "info", lambda *arguments: {**info(*arguments), "size": None})
    reader = storage()
    for read in (reader.read_small, reader.fetch, lambda url: reader.read([Span(url, 0, 5)])):
        with pytest.raises(DatasetError, match="has no size, so truncation"):
            read(url)
