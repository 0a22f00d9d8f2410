"""Files that are written completely or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from samplerkit.storage.atomic import atomic, is_the_file
from samplerkit.storage.lengths import save_lengths
from tests.storage.remote.children import Child
from tests.storage.tar.shards import write_tar
from tests.waiting import wait_until


def file_names(folder):
    return sorted(path.name for path in folder.iterdir())


def write_atomically(path, data):
    with atomic(path) as file:
        file.write(data)


def write_half_and_hang(path):
    with atomic(path) as file:
        file.write(b"half")
        file.flush()
        time.sleep(60)


def start_writer(path):
    """Returns a child that has written half of a file."""
    child = Child(write_half_and_hang, path)
    wait_until(lambda: any(part.stat().st_size for part in path.parent.glob(f".{path.name}*")))
    return child


def test_a_file_gets_its_name_once_it_is_complete(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with atomic(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    with pytest.raises(KeyError), atomic(path) as file:
        file.write(b"half")
        raise KeyError
    assert (path.read_bytes(), file_names(tmp_path)) == (b"new", ["a"])


def test_the_partial_file_of_a_killed_writer_is_reused_by_the_next_one(tmp_path):
    path = tmp_path / "a"
    for _ in range(3):
        start_writer(path).kill()
        assert len(file_names(tmp_path)) == 1
    write_atomically(path, b"")
    assert (path.read_bytes(), file_names(tmp_path)) == (b"", ["a"])


def test_many_writers_of_one_file_leave_one_whole_file(tmp_path):
    path = tmp_path / "a"

    def write_ten_times(number):
        for _ in range(10):
            write_atomically(path, bytes([number]) * 100_000)

    for child in [Child(write_ten_times, number) for number in range(4)]:
        child.result()
    data = path.read_bytes()
    assert data == data[:1] * 100_000
    assert file_names(tmp_path) == ["a"]


def test_a_link_in_place_of_the_partial_file_is_not_followed(tmp_path):
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / ".a.0.samplerkit-part").symlink_to(tmp_path / "precious")
    os.link(tmp_path / "precious", tmp_path / ".a.1.samplerkit-part")
    (tmp_path / ".a.2.samplerkit-part").mkdir()
    os.mkfifo(tmp_path / ".a.3.samplerkit-part")
    write_atomically(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert not (tmp_path / "a").is_symlink()
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_files_are_written_on_a_filesystem_without_locks(tmp_path, monkeypatch):
    # No filesystem without locks is at hand for this test.
    def refuses(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuses)
    write_atomically(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"


def write_archive(folder):
    return Path(*write_tar(folder / "a.tar", [{"__key__": "a", "txt": "text"}], index=False))


def write_lengths(folder):
    save_lengths(folder / "a.json", ["a"], np.array([1]))
    return folder / "a.json"


@pytest.mark.parametrize("write", [write_archive, write_lengths])
def test_data_is_synced_before_the_file_gets_its_name_and_the_folder_after(tmp_path, monkeypatch, write):
    synced, sync = [], os.fsync

    def record(descriptor):
        sync(descriptor)
        name = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((name, [path.name for path in tmp_path.glob("a*")]))

    monkeypatch.setattr(os, "fsync", record)
    path = write(tmp_path)
    (first, before), (second, after) = synced
    assert first.name.startswith(f".{path.name}")
    assert before == []
    assert (second, after) == (tmp_path, [path.name])


def test_a_replaced_or_removed_file_is_not_the_open_one(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"")
    with path.open("rb") as file:
        assert is_the_file(file.fileno(), path)
        (tmp_path / "b").write_bytes(b"")
        (tmp_path / "b").replace(path)
        assert not is_the_file(file.fileno(), path)
        path.unlink()
        assert not is_the_file(file.fileno(), path)


@pytest.mark.parametrize(("number", "is_error"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_folder_that_cannot_be_synced_is_an_error_unless_its_filesystem_does_not_support_it(
    tmp_path, monkeypatch, number, is_error
):
    fsync = os.fsync

    def refuses(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuses)
    with pytest.raises(OSError, match="Input") if is_error else nullcontext():
        write_atomically(tmp_path / "a", b"all")
    assert (tmp_path / "a").read_bytes() == b"all"
