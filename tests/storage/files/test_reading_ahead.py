"""Files are read in the background before they are needed; an error is raised where the file is needed."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.files.dataset import FileDataset
from tests.load_free_timer import LoadFreeTimer
from tests.storage.files.folders import Watching, plain, reading_threads, samples_of, write_npz
from tests.waiting import wait_until

SIZES = [10] * 8
SAMPLES = samples_of(SIZES)


@pytest.fixture(name="paths", scope="module")
def fixture_paths(tmp_path_factory):
    return write_npz(tmp_path_factory.mktemp("ahead"), SIZES)


def batches_of(files):
    return [np.arange(10 * file, 10 * file + 10) for file in files]


@pytest.mark.parametrize("read_ahead", [0, 1, 2, 3])
def test_the_requested_number_of_files_is_prefetched(paths, read_ahead):
    reader = Watching()
    with FileDataset(paths, reader, SIZES, max_files=6, read_ahead=read_ahead) as dataset:
        dataset.expect(iter(batches_of(range(8))))
        dataset.__getitems__(np.arange(10))
        wait_until(lambda: len(reader.read) == 1 + read_ahead)
        time.sleep(0.05)
        assert len(reader.read) == 1 + read_ahead
        assert (reading_threads() != []) == (read_ahead > 0)
    assert reading_threads() == []


def test_files_read_one_after_another_are_prefetched_without_expect(paths):
    reader = Watching()
    with FileDataset(paths, reader, SIZES) as dataset:
        dataset.__getitems__([13])
        dataset.__getitems__([23])
        wait_until(lambda: len(reader.read) == 3)
        for index in (60, 20, 70, 10):  # here and there
            dataset.__getitems__([index])
        time.sleep(0.05)
        assert len(reader.read) == 6
        assert reader.read[:3] == ["001.npz", "002.npz", "003.npz"]
    for places in (2, 3):  # a full cache makes room
        with FileDataset(paths, reader, SIZES, max_files=places, read_ahead=3) as dataset:
            dataset[10], dataset[0]  # so that both are in memory before others are prefetched
            for file in range(1, 8):
                dataset.__getitems__([10 * file])
                most = 320 * min(8, file + places)
                wait_until(lambda most=most: dataset.stats.bytes_read == most)
            assert (dataset.stats.waits, dataset.stats.files_read) == (2, 8)


def test_an_error_of_prefetching_is_raised_when_the_file_is_needed_and_then_retried(paths):
    reader = Watching()
    reader.failing["001.npz"] = error = OSError("the disk is gone")
    with FileDataset(paths, reader, SIZES) as dataset:
        dataset.expect(iter(batches_of(range(8))))
        first = dataset.__getitems__(np.arange(10))
        wait_until(lambda: "001.npz" in reader.read)
        assert [plain(sample) for sample in first] == SAMPLES[:10]
        with pytest.raises(
            sk.DatasetError, match=r"001\.npz: cannot be read \(OSError: the disk is gone\)"
        ) as caught:
            dataset.__getitems__(np.arange(10, 20))
        assert caught.value.__cause__ is error
        assert reader.read.count("001.npz") == 1
        reader.failing.clear()
        rest = [plain(s) for ids in batches_of(range(1, 8)) for s in dataset.__getitems__(ids)]
        assert rest == SAMPLES[10:]
        assert len(reader.read) == 9


def test_a_failed_prefetch_is_retried_after_the_expected_order_changed(paths):
    reader = Watching()
    reader.failing["001.npz"] = OSError("the disk is gone")
    with FileDataset(paths, reader, SIZES) as dataset:
        dataset.expect(iter(batches_of(range(8))))
        dataset.__getitems__(np.arange(10))
        wait_until(lambda: dataset._cache()._failures)
        reader.failing.clear()
        dataset.expect(iter(batches_of([1, 5])))
        assert [plain(sample) for sample in dataset.__getitems__(np.arange(10, 20))] == SAMPLES[10:20]


def test_close_does_not_wait_for_a_reader_that_hangs(paths):
    go_on = threading.Event()

    def reader(path):
        if "001" in Path(path).name:
            go_on.wait(60)
        return np.load(path)

    dataset = FileDataset(paths, reader, SIZES)
    dataset.expect(iter(batches_of(range(8))))
    dataset.__getitems__(np.arange(10))
    wait_until(lambda: reading_threads() != [])
    with LoadFreeTimer() as timer:
        dataset.close()
    assert timer.seconds < 10
    go_on.set()
    wait_until(lambda: reading_threads() == [])
    assert dataset.__getitems__(np.arange(10, 20))[0]["id"] == 10
    dataset.close()


def test_waits_and_hits_are_counted(paths):
    with FileDataset(paths, Watching(seconds=0.02), SIZES, read_ahead=0) as dataset:
        dataset.__getitems__(np.arange(20))
        dataset.__getitems__(np.arange(20))
        stats = dataset.stats
    assert (stats.files_read, stats.waits, stats.hits, stats.peak_files) == (2, 2, 2, 2)
    assert stats.wait_seconds >= 0.04
    assert stats.bytes_read == stats.peak_bytes == 2 * 10 * 8 * 4


@pytest.mark.parametrize("read_ahead", [0, 1])
def test_a_file_larger_than_those_before_makes_others_leave_memory(tmp_path, read_ahead):
    """Before it is read, its size is taken for that of the largest one so far; the one used last stays."""
    paths = write_npz(tmp_path, [10, 10, 100])
    reader = Watching(seconds=0.02)  # so that the batch before has ended
    with FileDataset(paths, reader, [10, 10, 100], max_bytes=3600, read_ahead=read_ahead) as dataset:
        for index in (10, 0, 10):
            dataset.__getitems__([index])
        wait_until(lambda: dataset.stats.bytes_read == 640 + 3200 * read_ahead)
        for index in (10, 20, 20, 0):
            dataset.__getitems__([index])
    assert reader.read == ["001.npz", "000.npz", "002.npz", "000.npz"]
