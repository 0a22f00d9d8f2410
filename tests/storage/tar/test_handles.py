"""Open archives: as few as were asked for, and none that holds room on the disk for nothing."""

from __future__ import annotations

import os

import pytest

from samplerkit.storage.files.handles import Handle, Handles


@pytest.fixture(name="paths")
def fixture_paths(tmp_path):
    paths = [tmp_path / str(number) for number in range(5)]
    for path in paths:
        path.write_bytes(b"data")
    return paths


@pytest.mark.parametrize("is_copy", [True, False])
def test_a_copy_that_was_evicted_is_let_go_when_another_one_is_opened_and_no_other_file_is(paths, is_copy):
    opened = []

    def open_file(number):
        opened.append(number)
        return Handle(os.open(paths[number], os.O_RDONLY), is_copy=is_copy)

    handles = Handles(open_file, most=4)
    for number in range(3):
        handles.get(number)
    paths[1].unlink()
    handles.get(3)
    assert len(handles) == (3 if is_copy else 4)
    for number in (0, 2, 3):
        handles.get(number)
    assert opened == [0, 1, 2, 3]
    handles.close()


def test_the_archive_that_was_used_least_recently_is_closed_for_a_new_one(paths):
    opened = []

    def open_file(number):
        opened.append(number)
        return Handle(os.open(paths[number], os.O_RDONLY))

    handles = Handles(open_file, most=2)
    for number in (0, 1, 0, 2, 0, 2, 1):
        assert os.pread(handles.get(number).descriptor, 4, 0) == b"data"
        assert len(handles) <= 2
    assert opened == [0, 1, 2, 1]
