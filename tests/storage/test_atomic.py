"""Files that are written as a whole or not at all."""

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
from tests.storage.tar.shards import packed
from tests.waiting import wait_until


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def written(path, data):
    with atomic(path) as file:
        file.write(data)


def hangs_in_the_middle(path):
    with atomic(path) as file:
        file.write(b"half")
        file.flush()
        time.sleep(60)


def begun(path):
    """A child that has written a half of a file."""
    child = Child(hangs_in_the_middle, path)
    wait_until(lambda: any(part.stat().st_size for part in path.parent.glob(f".{path.name}*")))
    return child


def test_a_file_has_its_name_when_all_of_it_is_there(tmp_path):
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
    assert (path.read_bytes(), names(tmp_path)) == (b"new", ["a"])


def test_what_a_killed_writer_left_is_taken_up_by_the_next_one(tmp_path):
    path = tmp_path / "a"
    for _ in range(3):
        begun(path).kill()
        assert len(names(tmp_path)) == 1
    written(path, b"new")
    assert (path.read_bytes(), names(tmp_path)) == (b"new", ["a"])


def test_many_writers_of_one_file_leave_one_whole_file(tmp_path):
    path = tmp_path / "a"

    def again(number):
        for _ in range(10):
            written(path, bytes([number]) * 100_000)

    for child in [Child(again, number) for number in range(4)]:
        child.result()
    data = path.read_bytes()
    assert data == data[:1] * 100_000
    assert names(tmp_path) == ["a"]


def test_a_link_in_the_place_of_what_is_being_written_is_not_followed(tmp_path):
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / ".a.0.samplerkit-part").symlink_to(tmp_path / "precious")
    os.link(tmp_path / "precious", tmp_path / ".a.1.samplerkit-part")
    (tmp_path / ".a.2.samplerkit-part").mkdir()
    os.mkfifo(tmp_path / ".a.3.samplerkit-part")
    written(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert not (tmp_path / "a").is_symlink()
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_without_locks_files_are_written_all_the_same(tmp_path, monkeypatch):
    # There is no filesystem without locks here to try.
    def refuses(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuses)
    written(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"


def writes_an_archive(folder):
    return Path(*packed(folder / "a.tar", [{"__key__": "a", "txt": "text"}], index=False))


def writes_lengths(folder):
    save_lengths(folder / "a.json", ["a"], np.array([1]))
    return folder / "a.json"


@pytest.mark.parametrize("write", [writes_an_archive, writes_lengths])
def test_the_bytes_are_on_the_disk_before_the_name_and_then_the_name(tmp_path, monkeypatch, write):
    synced, sync = [], os.fsync

    def spied(descriptor):
        sync(descriptor)
        named = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((named, [path.name for path in tmp_path.glob("a*")]))

    monkeypatch.setattr(os, "fsync", spied)
    path = write(tmp_path)
    (first, before), (second, after) = synced
    assert first.name.startswith(f".{path.name}")
    assert before == []
    assert (second, after) == (tmp_path, [path.name])


def test_a_file_that_was_replaced_or_removed_is_not_the_one_that_is_open(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"")
    with path.open("rb") as file:
        assert is_the_file(file.fileno(), path)
        (tmp_path / "b").write_bytes(b"")
        (tmp_path / "b").replace(path)
        assert not is_the_file(file.fileno(), path)
        path.unlink()
        assert not is_the_file(file.fileno(), path)


@pytest.mark.parametrize(("number", "is_said"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_folder_that_cannot_be_synced_is_an_error_unless_its_filesystem_has_no_such_thing(
    tmp_path, monkeypatch, number, is_said
):
    fsync = os.fsync

    def refuses(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuses)
    with pytest.raises(OSError, match="Input") if is_said else nullcontext():
        written(tmp_path / "a", b"all")
    assert (tmp_path / "a").read_bytes() == b"all"
