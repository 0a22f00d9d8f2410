"""The cache of whole files: which stay, which are evicted, and how processes share it."""

import gc
import hashlib
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.access import UNKNOWN_SIZE, Version
from samplerkit.storage.remote.cache_entries import FOLDER_LOCK, entry_of, exclusive_lock
from samplerkit.storage.remote.disk_cache import DiskCache
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.tar.index.find_or_make import Cache
from samplerkit.storage.threads import Stop
from tests.storage.crowd import Child
from tests.storage.remote import faults
from tests.storage.remote.server import DATA, answer_correctly, bytes_held, cached_sizes, content, leftovers
from tests.waiting import wait_until


@pytest.mark.parametrize("max_bytes", [3000, 3999])
def test_the_least_recently_used_file_is_evicted_first(server, storage, tmp_path, max_bytes):
    reader = storage(max_cache_bytes=max_bytes)
    urls = [server.put(f"/{number}", DATA[number:][:1000]) for number in range(4)]
    for url in (*urls[:3], urls[0], urls[3]):
        content(reader.fetch(url))
    server.requests.clear()
    for url in (urls[0], urls[2], urls[3]):
        content(reader.fetch(url))
    assert server.calls("GET") == []
    content(reader.fetch(urls[1]))
    assert len(server.calls("GET")) == 1
    assert cached_sizes(tmp_path / "cache") == [1000] * 3
    assert leftovers(tmp_path / "cache") == []


@pytest.mark.parametrize("method", ["fetch", "cached"])
def test_a_file_is_unpinned_when_it_is_garbage_collected(server, storage, method):
    reader = storage(max_cache_bytes=1000)
    url, other = server.put("/a", DATA[:1000]), server.put("/b", DATA[1:1001])
    assert reader.cached(url) is None
    content(reader.fetch(url))
    pinned = getattr(reader, method)(url)
    with pytest.raises(DatasetError, match="are in use"):
        storage(max_cache_bytes=1000, timeout=0.5).fetch(other)
    del pinned
    gc.collect()
    assert content(reader.fetch(other)) == DATA[1:1001]
    assert len(server.calls("GET")) == 2


def test_a_new_version_is_another_file(server, storage, tmp_path):
    url = server.put("/a", b"old" * 300)
    content(storage().fetch(url))
    server.put("/a", b"new" * 300)
    assert content(storage().fetch(url)) == b"new" * 300
    assert cached_sizes(tmp_path / "cache") == [900, 900]
    server.requests.clear()
    assert content(storage().fetch(url)) == b"new" * 300
    assert server.calls("GET") == []


def test_files_of_one_name_and_size_are_distinguished(server, storage):
    reader = storage()
    urls = [f"{server.url}{path}" for path in ("/a/x.tar", "/b/x.tar", "/get?id=1", "/get?id=2")]
    for number, path in enumerate(("/a/x.tar", "/b/x.tar", "/get")):
        server.put(path, DATA[number:][:100])
        server.resources[path].etag = None

    def by_query(handler, _):
        first = 1000 * int(handler.path.partition("id=")[2][0])
        handler.send(200, DATA[first:][:100])

    server.always["GET", "/get"] = server.always["VERSION", "/get"] = by_query
    expected = [DATA[:100], DATA[1:101], DATA[1000:1100], DATA[2000:2100]]
    assert [content(reader.fetch(url)) for url in urls] == expected
    # One that was signed again is the same file.
    again = [f"{url}{'&' if '?' in url else '?'}X-Amz-Date=2&X-Amz-Signature=2" for url in urls]
    assert [content(reader.fetch(url)) for url in (*urls, *again)] == expected * 2
    assert len(server.calls("GET")) == len(urls)


def test_foreign_files_in_the_cache_folder_are_never_touched(server, storage, tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    foreign = {
        "precious.tar": DATA[:5000],
        f"samplerkit-{'1' * 40}.file": b"no lock file, so it is not ours",
        "samplerkit-short.file": b"x",
        "samplerkit-short.lock": b"x",
    }
    for name, data in foreign.items():
        (folder / name).write_bytes(data)
    (folder / f"samplerkit-{'4' * 40}.file").symlink_to(folder / "precious.tar")
    (folder / "sub").mkdir()
    reader = storage(max_cache_bytes=1100)
    for number in range(4):
        content(reader.fetch(server.put(f"/{number}", DATA[number:][:1000])))
    assert {name: (folder / name).read_bytes() for name in foreign} == foreign
    assert (folder / f"samplerkit-{'4' * 40}.file").is_symlink()


def test_a_file_larger_than_the_cache_is_refused_before_its_download(server, storage, tmp_path):
    url = server.put("/a", DATA[:2000])
    with pytest.raises(DatasetError, match="2000 bytes, and 0 of 1999 are in use"):
        storage(max_cache_bytes=1999).fetch(url)
    assert server.calls("GET") == []
    assert leftovers(tmp_path / "cache") == []


def test_a_right_digest_is_verified_and_a_wrong_one_is_retried(server, storage, tmp_path):
    url, flipped = server.put("/train/a.tar", DATA[:1000]), bytes([DATA[0] ^ 1]) + DATA[1:1000]
    server.faults["GET", "/train/a.tar"] = [lambda handler, file: handler.send(200, flipped, ETag=file.etag)]
    good, bad = (hashlib.sha256(data).hexdigest() for data in (DATA[:1000], b""))
    reader = storage(digests={"train/a.tar": f"SHA256:{good.upper()}"})
    assert content(reader.fetch(url)) == DATA[:1000]
    assert (reader.stats.retries, reader.stats.downloads) == (1, 1)
    server.requests.clear()
    with pytest.raises(DatasetError, match=f"the digest is sha256:{good}, but sha256:{bad} was given"):
        storage(digests={url: f"sha256:{bad}"}, attempts=2).fetch(f"{url}?secret")
    assert len(server.calls("GET")) == 2
    assert leftovers(tmp_path / "cache") == []


def test_a_folder_that_cannot_be_made_is_an_error_with_another_in_its_hint(server, storage, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"cannot be written to.*use cache=FOLDER"):
        storage(cache=tmp_path / "file" / "cache").fetch(server.put("/a", b"a"))


@pytest.mark.usefixtures("no_locks")
def test_a_folder_without_locks_is_an_error_with_another_in_its_hint(server, storage):
    with pytest.raises(DatasetError, match=r"or locked \(Operation not supported\).*use cache=FOLDER"):
        storage().fetch(server.put("/a", b"a"))


def test_the_default_folder_is_the_users_cache(server, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with RemoteStorage(RemoteOptions()) as reader, reader.fetch(server.put("/a", b"a")) as local:
        assert Path(local.path).parent == tmp_path / "samplerkit" / "remote"


def fetched(options: RemoteOptions, url: str) -> tuple[str, int]:
    """Fetches a file; returns the digest of its content, and the number of downloads."""
    with RemoteStorage(options) as storage:
        return hashlib.sha256(content(storage.fetch(url))).hexdigest(), storage.stats.downloads


@pytest.mark.parametrize("kind", ["cache", "index"])
def test_a_process_forked_while_a_lock_was_held_does_not_wait_for_it(tmp_path, kind):
    """A thread that reads ahead may hold one at any fork: the lock of the child is that of its parent."""

    def lock():
        if kind == "cache":
            return exclusive_lock(tmp_path / FOLDER_LOCK, Stop())
        return Cache.of(tmp_path).lock(tmp_path / "a.tar.index")

    is_free, frees = os.pipe()
    with lock():
        child = os.fork()
        if child == 0:
            os.read(is_free, 1)
            signal.alarm(30)  # ends a process that would wait for ever
            with lock():
                os._exit(0)
    os.write(frees, b"x")
    assert os.waitpid(child, 0)[1] == 0


def _fetched_in_turn(options: RemoteOptions, urls: list[str]) -> int:
    wrong = 0
    with RemoteStorage(options) as storage:
        for url in urls * 2:
            first = int(url.rpartition("/")[2])
            wrong += content(storage.fetch(url)) != DATA[first:][:3000]
    return wrong


def test_four_processes_that_race_download_once(server, storage, tmp_path):
    for number in range(2):
        url = server.put(f"/{number}", DATA[:2_000_000])
        server.always["GET", f"/{number}"] = lambda handler, resource: (
            time.sleep(0.1),
            answer_correctly(handler, resource),
        )
        children = [Child(fetched, storage().options, url) for _ in range(4)]
        results = [child.result() for child in children]
        assert {digest for digest, _ in results} == {hashlib.sha256(DATA[:2_000_000]).hexdigest()}
        assert sum(downloads for _, downloads in results) == 1
        assert len(server.calls("GET", f"/{number}")) == 1
    assert leftovers(tmp_path / "cache") == []


def test_the_download_of_a_killed_process_is_continued(server, storage, tmp_path):
    for number in range(2):
        path = f"/{number}"
        url = server.put(path, DATA[:2_000_000])
        server.faults["GET", path] = [faults.stall_in_body]
        # The first one to come hangs in the middle; its lock keeps the others waiting.
        first = Child(fetched, storage(timeout=60.0).options, url)
        wait_until(lambda path=path: server.calls("GET", path))
        others = [Child(fetched, storage(timeout=60.0).options, url) for _ in range(3)]
        wait_until(lambda path=path: len(server.calls("VERSION", path)) >= 4)
        first.kill()
        results = [child.result() for child in others]
        assert {digest for digest, _ in results} == {hashlib.sha256(DATA[:2_000_000]).hexdigest()}
        assert len(server.calls("GET", path)) == 2
    assert leftovers(tmp_path / "cache") == []


def test_the_partial_file_of_a_dead_process_is_removed_by_the_next_fetch(server, storage, tmp_path):
    url = server.put("/dead", DATA[:2_000_000])
    server.always["GET", "/dead"] = faults.stall_in_body
    child = Child(fetched, storage(timeout=60.0).options, url)
    wait_until(lambda: list(tmp_path.glob("cache/*.part")))
    child.kill()
    assert len(leftovers(tmp_path / "cache")) == 2
    content(storage().fetch(server.put("/other", DATA[:1000])))
    assert cached_sizes(tmp_path / "cache") == [1000]
    assert leftovers(tmp_path / "cache") == []


def test_the_partial_file_of_a_living_process_stays_and_counts(server, storage, tmp_path):
    url = server.put("/slow", DATA[:600_000])
    server.faults["GET", "/slow"] = [faults.stall_in_body]
    options = storage(timeout=60.0, max_cache_bytes=1_000_000).options
    child = Child(fetched, options, url)
    wait_until(lambda: [path for path in tmp_path.glob("cache/*.part") if path.stat().st_size])
    with pytest.raises(DatasetError, match="500000 bytes, and 600000 of 1000000 are in use"):
        storage(max_cache_bytes=1_000_000, timeout=0.5).fetch(server.put("/b", DATA[:500_000]))
    child.kill()
    content(storage(max_cache_bytes=1_000_000).fetch(f"{server.url}/b"))
    assert cached_sizes(tmp_path / "cache") == [500_000]


def test_a_file_in_use_is_evicted_by_no_process(server, storage, tmp_path):
    reader = storage(max_cache_bytes=2000)
    urls = [server.put(f"/{number}", DATA[number:][:1000]) for number in range(4)]
    pinned = reader.fetch(urls[0])
    for url in urls[1:]:
        assert Child(fetched, reader.options, url).result()[1] == 1
        assert Path(pinned.path).read_bytes() == DATA[:1000]
    second = reader.fetch(urls[3])
    with pytest.raises(DatasetError, match=r"2000 of 2000 are in use.*; raise max_cache_bytes"):
        storage(max_cache_bytes=2000, timeout=0.5).fetch(urls[1])
    pinned.close()
    with reader.fetch(urls[1]), second:
        assert cached_sizes(tmp_path / "cache") == [1000] * 2


def test_writing_waits_for_room_while_files_are_in_use(server, storage):
    reader = storage(max_cache_bytes=1000, timeout=60.0)
    pinned = reader.fetch(server.put("/a", DATA[:1000]))
    child = Child(fetched, reader.options, server.put("/b", DATA[1:1001]))
    wait_until(lambda: server.calls("VERSION", "/b"))
    time.sleep(0.2)
    assert server.calls("GET", "/b") == []
    pinned.close()
    assert child.result()[1] == 1


def growing(cache, name, size):
    """Fetches a file of unknown size into a cache, in small pieces."""

    def write(part):
        for _ in range(size // 1000):
            part.write(bytes(1000))
            time.sleep(0.0005)

    cache.get(entry_of(cache.folder, name, name, Version(UNKNOWN_SIZE), None), write)[0].close()


def test_a_file_of_unknown_size_may_fill_the_cache(storage, tmp_path):
    growing(DiskCache(storage(max_cache_bytes=100_000).options, Stop()), "a", 100_000)
    assert cached_sizes(tmp_path / "cache") == [100_000]


def test_files_that_grow_never_wait_for_one_another(storage, tmp_path):
    cache = DiskCache(storage(max_cache_bytes=150_000, timeout=5.0).options, Stop())
    with ThreadPoolExecutor(8) as threads:  # each holds a part of its file when the cache is full
        list(threads.map(lambda number: growing(cache, str(number), 100_000), range(24)))
    assert cached_sizes(tmp_path / "cache") == [100_000]
    assert leftovers(tmp_path / "cache") == []


def test_a_child_that_ends_does_not_unpin_what_its_parent_uses(server, storage):
    pinned = storage(max_cache_bytes=1000).fetch(server.put("/a", DATA[:1000]))
    Child(pinned.close).result()
    with pytest.raises(DatasetError, match="are in use"):
        storage(max_cache_bytes=1000, timeout=0.5).fetch(server.put("/b", DATA[1:1001]))
    assert Path(pinned.path).read_bytes() == DATA[:1000]
    pinned.close()


def test_a_child_process_does_not_keep_files_that_its_parent_released(server, storage):
    reader = storage(max_cache_bytes=1000)
    pinned = reader.fetch(server.put("/a", DATA[:1000]))
    child = Child(time.sleep, 60)
    pinned.close()
    assert content(reader.fetch(server.put("/b", DATA[1:1001]))) == DATA[1:1001]
    assert child.process.is_alive()
    child.kill()


def test_processes_that_share_a_cache_keep_its_limit(server, storage, tmp_path):
    options = storage(max_cache_bytes=10_000, timeout=60.0).options
    urls = [server.put(f"/{number}", DATA[number:][:3000]) for number in range(8)]
    children = [Child(_fetched_in_turn, options, urls[first:] + urls[:first]) for first in range(0, 8, 2)]
    most = 0
    while any(child.process.is_alive() for child in children):
        most = max(most, bytes_held(tmp_path / "cache"))
    for child in children:
        assert child.result() == 0
    assert 3000 <= most <= 10_000
    assert sum(cached_sizes(tmp_path / "cache")) <= 10_000


@faults.half_then
def waits_in_the_body(handler, resource):
    handler.state.released.wait(60)
    handler.body(resource.data[len(resource.data) // 2 :])
