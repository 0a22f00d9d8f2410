"""Copies in the cache that differ from the written data, a cache that is emptied, and a full disk."""

import errno
import os
import random
import shutil
import threading
import time
from pathlib import Path

import pytest

from samplerkit.errors import DatasetError
from samplerkit.storage.remote import cache_entries
from samplerkit.storage.remote.cache_entries import FOLDER_LOCK, Entry, checksum_of, exclusive_lock, state_of
from samplerkit.storage.threads import Stop
from tests.storage.crowd import Child
from tests.storage.remote.server import DATA, answer_correctly, cached_sizes, content, leftovers
from tests.storage.remote.test_cache import fetched, waits_in_the_body
from tests.waiting import wait_until

MACHINE_START = Path("/proc/sys/kernel/random/boot_id")
CLOCK = 0.02
"""Seconds after which a file that is written to has another time: the clock of a filesystem is coarse."""


@pytest.fixture
def copy(url, storage):
    """The path of a copy of it in the cache."""
    with storage().fetch(url) as local:
        time.sleep(CLOCK)
        return Path(local.path)


def zeros_everywhere(path):
    path.write_bytes(bytes(path.stat().st_size))


def another_bit_of_its_end(path):
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(bytes([DATA[-1] ^ 1]))


def two_pages_in_turn(path):
    data = path.read_bytes()
    path.write_bytes(data[4096:8192] + data[:4096] + data[8192:])


def zeros_and_the_times_as_before(path):
    status = path.stat()
    zeros_everywhere(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def another_file_in_its_place(path):
    other = path.with_name("other")
    other.write_bytes(bytes(path.stat().st_size))
    other.rename(path)


def zeros_and_no_lock_file(path):
    path.with_suffix(".lock").unlink()
    zeros_everywhere(path)


def a_byte_less(path):
    os.truncate(path, path.stat().st_size - 1)


DAMAGES = [
    a_byte_less,
    zeros_everywhere,
    another_bit_of_its_end,
    two_pages_in_turn,
    zeros_and_the_times_as_before,
    another_file_in_its_place,
    zeros_and_no_lock_file,
]


def test_a_checksum_is_of_all_bytes_and_of_their_number(tmp_path):
    sums = set()
    for data in (DATA, DATA[:-1], DATA[:-1] + b"\0", b"", b"\0", bytes(5000), bytes(8192)):
        (tmp_path / "a").write_bytes(data)
        with (tmp_path / "a").open("rb", buffering=0) as file:
            sums.add(checksum_of(file))
    assert len(sums) == 7


@pytest.mark.parametrize("opened_before", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_copy_that_was_damaged_is_noticed_and_downloaded_again(
    server, storage, url, copy, tmp_path, damage, opened_before
):
    if opened_before:
        assert content(storage().fetch(url)) == DATA
    damage(copy)
    assert storage().cached(url) is None
    assert content(storage().fetch(url)) == DATA
    time.sleep(CLOCK)
    damage(copy)
    assert Child(fetched, storage().options, url).result()[1] == 1
    assert len(server.calls("GET")) == 3
    assert cached_sizes(tmp_path / "cache") == [len(DATA)]
    assert leftovers(tmp_path / "cache") == []


def test_a_verified_copy_is_read_even_if_the_check_cannot_be_recorded(
    server, storage, url, copy, monkeypatch
):
    def fails(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    os.utime(copy, (1, 1))
    monkeypatch.setattr(cache_entries, "write_lock", fails)
    assert content(storage().fetch(url)) == DATA
    assert len(server.calls("GET")) == 1


def test_a_copy_that_cannot_be_opened_is_not_taken_for_a_damaged_one(server, storage, url, copy, monkeypatch):
    opens = Path.open

    def lacks_descriptors(path, *arguments, **options):
        if path == copy:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opens(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lacks_descriptors)
        with pytest.raises(DatasetError, match="Too many open files"):
            storage().fetch(url)
    assert content(storage().fetch(url)) == DATA
    assert len(server.calls("GET")) == 1


def _read_by_this_process() -> int:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar"))


def test_a_copy_is_verified_once_and_not_at_each_opening(storage, url, copy):
    read = []
    for number in range(4):
        if number == 1:
            os.utime(copy, (1, 1))
        reader = storage()
        reader.version(url)
        before = _read_by_this_process()
        reader.fetch(url).close()
        read.append(_read_by_this_process() - before)
    assert read[1] >= len(DATA)
    assert max(read[0], *read[2:]) < 100_000


@pytest.mark.parametrize("is_same_start", [True, False])
def test_after_a_reboot_a_copy_is_verified_again(storage, url, copy, is_same_start):
    zeros_everywhere(copy)
    lock = copy.with_suffix(".lock")
    checksum, start, *_ = lock.read_text().split()
    assert start == MACHINE_START.read_text().strip().replace("-", "")
    with copy.open("rb", buffering=0) as file:
        state = state_of(file)
    lock.write_text(f"{checksum} {state if is_same_start else state.replace(start, '0' * 32)}")
    # With the state that a loss of power leaves, only the start shows that the file has to be read.
    assert content(storage().fetch(url)) == (bytes(len(DATA)) if is_same_start else DATA)


def test_a_damaged_copy_in_use_is_downloaded_again_beside_it(server, storage, url, tmp_path):
    pinned = storage().fetch(url)
    with Path(pinned.path).open("rb") as opened:
        time.sleep(CLOCK)
        zeros_everywhere(Path(pinned.path))
        assert content(storage().fetch(url)) == DATA
        assert opened.read() == bytes(len(DATA))
    pinned.close()
    assert content(storage().fetch(url)) == DATA
    assert len(server.calls("GET")) == 2
    assert cached_sizes(tmp_path / "cache") == [len(DATA)]
    assert leftovers(tmp_path / "cache") == []


def test_a_copy_that_two_processes_find_damaged_is_discarded_once(storage, url, copy, monkeypatch):
    is_intact, again = Entry.is_intact, []

    def both_find_it(entry, lock):
        if not again and is_intact(entry, lock):  # in the second one, when it has found it to be damaged
            return True
        monkeypatch.undo()
        again.append(storage().fetch(url))  # the first one discards it, and downloads it
        return False

    zeros_everywhere(copy)
    monkeypatch.setattr(Entry, "is_intact", both_find_it)
    with storage().fetch(url) as local, again[0]:
        assert Path(local.path).read_bytes() == Path(again[0].path).read_bytes() == DATA


def test_a_copy_that_another_process_discards_as_it_is_opened_is_downloaded_again(
    storage, url, copy, monkeypatch
):
    is_intact, discarded = Entry.is_intact, []

    def check(entry, lock):
        if not discarded:
            discarded.append(entry.discard(lock, Stop()))
        return is_intact(entry, lock)

    monkeypatch.setattr(Entry, "is_intact", check)
    reader = storage()
    assert content(reader.fetch(url)) == DATA
    assert reader.stats.downloads == 1
    assert copy.read_bytes() == DATA


def test_an_entry_with_an_empty_lock_file_is_evicted_like_others(server, storage, copy, tmp_path):
    # A loss of power may leave it so.
    os.truncate(copy.with_suffix(".lock"), 0)
    max_bytes = len(DATA) + 500
    assert content(storage(max_cache_bytes=max_bytes).fetch(server.put("/b", DATA[:900]))) == DATA[:900]
    assert cached_sizes(tmp_path / "cache") == [900]


def test_a_copy_is_renamed_while_no_process_lists_the_cache(server, storage, tmp_path):
    folder = tmp_path / "cache"
    storage().fetch(server.put("/a", DATA[:10])).close()
    url, reader = server.put("/b", DATA), storage(timeout=60.0)
    server.always["GET", "/b"] = waits_in_the_body
    done = threading.Thread(target=lambda: reader.fetch(url).close())
    done.start()
    # Room was made before, so that only the name needs the lock.
    wait_until(lambda: sum(path.stat().st_size for path in folder.glob("samplerkit-*.[pf]*")) > 10)
    with exclusive_lock(folder / FOLDER_LOCK, Stop()):
        server.released.set()
        time.sleep(0.5)
        assert cached_sizes(folder) == [10]
    done.join(60)
    assert cached_sizes(folder) == [10, len(DATA)]


def test_a_cache_that_is_emptied_between_two_files_is_filled_again(server, storage, url, tmp_path):
    reader = storage()
    for _ in range(3):
        assert content(reader.fetch(url)) == DATA
        shutil.rmtree(tmp_path / "cache")
    assert len(server.calls("GET")) == 3


def test_a_cache_emptied_during_a_download_is_an_error_with_the_cause(server, storage, url, tmp_path):
    def empties(handler, resource):
        shutil.rmtree(tmp_path / "cache")
        answer_correctly(handler, resource)

    server.faults["GET", "/a"] = [empties]
    reader = storage()
    with pytest.raises(
        DatasetError, match=r"cache: was emptied while it was in use, got .*; do not change it"
    ):
        reader.fetch(url)
    assert content(reader.fetch(url)) == DATA


EIGHT_MB = random.Random(11).randbytes(8_000_000)


def test_a_full_disk_makes_the_cache_smaller(server, storage, small_disk):
    reader = storage(cache=small_disk, max_cache_bytes=1 << 40)
    data = [EIGHT_MB[number:][:3_000_000] for number in range(5)]
    for number, each in enumerate(data):
        assert content(reader.fetch(server.put(f"/{number}", each))) == each
    assert cached_sizes(small_disk) == [3_000_000] * 2
    assert leftovers(small_disk) == []


def test_a_disk_full_of_other_files_is_an_error(server, storage, small_disk):
    (small_disk / "precious").write_bytes(bytes(6_000_000))
    reader = storage(cache=small_disk, max_cache_bytes=1 << 40)
    with pytest.raises(DatasetError, match=r"\(No space left on device\): 3000000 bytes.*cache="):
        reader.fetch(server.put("/a", EIGHT_MB[:3_000_000]))
    assert leftovers(small_disk) == ["precious"]
    # What is smaller fits all the same, in whole and again and again.
    for number in range(5):
        assert (
            content(reader.fetch(server.put(f"/{number}", EIGHT_MB[number:][:1_000_000])))
            == EIGHT_MB[number:][:1_000_000]
        )


def test_a_disk_without_a_free_block_has_room_after_own_files_are_evicted(server, storage, small_disk):
    reader = storage(cache=small_disk, max_cache_bytes=1 << 40)
    reader.fetch(server.put("/a", EIGHT_MB[:1_000_000])).close()
    with (small_disk / "precious").open("wb", 0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(4096))
    assert content(reader.fetch(server.put("/b", EIGHT_MB[1:1_000_001]))) == EIGHT_MB[1:1_000_001]
    assert leftovers(small_disk) == ["precious"]


def test_a_disk_that_is_full_of_files_in_use_evicts_none(server, storage, small_disk):
    reader = storage(cache=small_disk, max_cache_bytes=1 << 40)
    pinned = [reader.fetch(server.put(f"/{number}", EIGHT_MB[number:][:3_000_000])) for number in range(2)]
    with pytest.raises(DatasetError, match="No space left on device"):
        reader.fetch(server.put("/more", EIGHT_MB[:4_000_000]))
    assert [content(each) for each in pinned] == [EIGHT_MB[:3_000_000], EIGHT_MB[1:3_000_001]]


def test_a_filesystem_without_fallocate_holds_a_cache(server, storage, tmp_path, monkeypatch):
    """Such a filesystem reads the existing bytes and writes them again."""
    take = os.posix_fallocate

    def as_of_nfs(descriptor, offset, size):
        os.pread(descriptor, 1, 0)
        take(descriptor, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", as_of_nfs)
    assert content(storage(cache=tmp_path).fetch(server.put("/a", EIGHT_MB[:100]))) == EIGHT_MB[:100]


def test_without_a_limit_the_cache_uses_half_of_the_free_space(server, storage, small_disk):
    reader = storage(cache=small_disk)
    for number in range(5):
        content(reader.fetch(server.put(f"/{number}", EIGHT_MB[number:][:1_500_000])))
    assert cached_sizes(small_disk) == [1_500_000] * 2
    with pytest.raises(DatasetError, match="half of the free space"):
        reader.fetch(server.put("/large", EIGHT_MB[:5_000_000]))
