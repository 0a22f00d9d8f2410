"""Threads and processes that read a dataset, and files that are read ahead: none waits for ever."""

import os
import sysconfig
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.files.dataset import FileDataset
from tests.jobs import ended
from tests.storage.crowd import PATIENCE_SECONDS, Child, run_in_threads
from tests.storage.files.folders import Watching, plain, reading_threads, samples_of, write_npz
from tests.waiting import wait_until, within

SIZES = [10] * 16
SAMPLES = samples_of(SIZES)
LAGS = sysconfig.get_config_var("Py_GIL_DISABLED")
"""Without a GIL, an object that another thread released stays until the thread that made it runs again."""


@pytest.fixture(name="paths", scope="module")
def fixture_paths(tmp_path_factory):
    return write_npz(tmp_path_factory.mktemp("threads"), SIZES)


class Tracked(np.ndarray):
    """An array whose release is counted."""


class Counting:
    """A reader that counts how many of the files that it read are in memory."""

    def __init__(self):
        self.most = 0
        self._alive: dict[int, weakref.ref[Tracked]] = {}
        self._lock = threading.Lock()

    def __call__(self, path):
        with np.load(path) as arrays:
            data = dict(arrays)
        data["id"] = data["id"].view(Tracked)
        number = id(data["id"])
        # Taken out in one step: it may happen in the middle of anything.
        reference = weakref.ref(data["id"], lambda _: self._alive.pop(number, None))
        with self._lock:
            self._alive[number] = reference
            self.most = max(self.most, len(self._alive))
        return data


def reading(dataset, batches):
    def read():
        for ids in batches:
            samples = [plain(sample) for sample in dataset.__getitems__(ids)]
            assert samples == [SAMPLES[id] for id in ids]

    return read


def test_releasing_a_file_wakes_threads_that_wait_for_room(paths):
    is_used, has_waiter = threading.Event(), threading.Event()
    with FileDataset(paths, Counting(), SIZES, max_files=1, read_ahead=0) as dataset:
        cache = dataset._cache()

        def uses():
            with cache.using(0):
                is_used.set()
                has_waiter.wait(PATIENCE_SECONDS)

        def waits():
            is_used.wait(PATIENCE_SECONDS)
            with cache.using(1):
                pass

        def signal_when_waiting():
            wait_until(lambda: cache._waiting)
            with cache._changed:  # the thread in the queue waits now, and has released the lock
                has_waiter.set()

        run_in_threads(uses, waits, signal_when_waiting)


def test_a_thread_that_waits_for_room_is_served_in_the_end(paths):
    reads = 0
    is_over = threading.Event()

    def reads_and_reads(dataset):
        nonlocal reads
        while not is_over.is_set():
            reading(dataset, [[0], [10]])()
            reads += 2

    def reads_some(dataset):
        try:
            reading(dataset, [[20], [30]] * 10)()
        finally:
            is_over.set()

    with FileDataset(paths, "npz", SIZES, max_files=1, read_ahead=0) as dataset:
        run_in_threads(lambda: reads_and_reads(dataset), lambda: reads_some(dataset))
    # One of each in turn, and some before the other thread has started.
    assert reads < 200


def test_an_error_in_one_thread_is_raised_there_and_the_others_continue(paths):
    reader = Watching()
    reader.failing["003.npz"] = OSError("the disk is gone")
    with FileDataset(paths, reader, SIZES, max_files=1) as dataset:

        def fails():
            for _ in range(20):
                with pytest.raises(sk.DatasetError, match=r"003\.npz: cannot be read"):
                    dataset[30]

        run_in_threads(fails, reading(dataset, [[id] for id in (0, 10, 40, 0, 70) * 4]))


@pytest.mark.parametrize("max_files", [1, 2, 4])
def test_threads_that_share_a_dataset_keep_its_limit_of_files(paths, max_files, caplog):
    """Any order, batch size, limit and number of threads; the expected order is right, wrong or not given."""
    caplog.set_level("ERROR", "samplerkit")  # files are read again and again
    cases = int(os.environ.get("SAMPLERKIT_CROWDS", "15"))
    rng = np.random.default_rng(max_files)
    reads = 0
    for _ in range(cases):
        threads = int(rng.integers(1, 5))
        reader = Counting()
        has_bytes = rng.random() < 0.3
        options = {
            "max_files": max_files,
            "max_bytes": 10 * 8 * 4 * max_files if has_bytes else None,
            "read_ahead": int(rng.integers(0, 4)),
            "threads": int(rng.integers(1, 4)),
        }
        with FileDataset(paths, reader, SIZES, **options) as dataset:
            plans = [
                rng.integers(0, 80, (int(rng.integers(1, 12)), int(rng.integers(1, 6)))).tolist()
                if rng.random() < 0.7
                else np.arange(80).reshape(-1, 8).tolist()
                for _ in range(threads)
            ]
            if rng.random() < 0.6:
                dataset.expect(iter([np.array(ids) for ids in plans[0]]))
            others = []
            if rng.random() < 0.2:
                others.append(lambda dataset=dataset, plans=plans: dataset.expect(map(np.array, plans[-1])))
            run_in_threads(*(reading(dataset, plan) for plan in plans), *others)
            assert dataset.stats.peak_files <= max_files
        assert LAGS or reader.most <= max_files
        reads += sum(map(len, plans))
    print(f"max_files={max_files}: {cases} crowds of 1 to 4 threads, {reads:,} batches, none waited for ever")


# Processes


def test_a_child_forked_while_all_locks_are_held_is_not_locked_and_the_parent_continues(paths):
    holding, let_go = threading.Event(), threading.Event()

    def hold(lock):
        with lock:
            holding.set()
            let_go.wait(60)

    with FileDataset(paths, "npz", SIZES, read_ahead=2, max_files=6) as dataset:
        dataset.expect(iter([np.arange(start, start + 10) for start in range(0, 160, 10)]))
        dataset.__getitems__(np.arange(10))
        assert reading_threads() != []
        for lock in (dataset._cache()._changed, dataset._processes.current().lock):
            holding.clear()
            threading.Thread(target=hold, args=(lock,), daemon=True).start()
            assert holding.wait(10)
        child = Child(lambda: [plain(sample) for sample in dataset.__getitems__(np.arange(35, 55))])
        try:
            assert child.result() == SAMPLES[35:55]
        finally:
            let_go.set()
        assert [plain(sample) for sample in dataset.__getitems__(np.arange(10, 20))] == SAMPLES[10:20]


READS = """
import sys, time
import numpy as np
from samplerkit.storage.files.dataset import FileDataset

def reader(path):
    if path.endswith("001.npz"):
        print("reading", flush=True)
        time.sleep(60)
    return np.load(path)

dataset = FileDataset(sys.argv[1:], reader, [10] * 16)
dataset.expect(iter([np.arange(10 * n, 10 * n + 10) for n in range(16)]))
dataset.__getitems__(np.arange(10))
time.sleep(0.5)
raise RuntimeError("on purpose")
"""


def test_the_interpreter_ends_at_once_while_a_file_is_read(paths):
    """The reader of the second file would take a minute."""
    code, printed, errors = ended("-c", READS, *map(str, paths), seconds=50)
    assert (code, printed) == (1, "reading\n"), errors


EIGHT = [10] * 8
OF_EIGHT = samples_of(EIGHT)


@pytest.fixture(name="eight", scope="module")
def fixture_eight(tmp_path_factory):
    return write_npz(tmp_path_factory.mktemp("ahead"), EIGHT)


def batches_of(files):
    return [np.arange(10 * file, 10 * file + 10) for file in files]


@pytest.mark.parametrize("read_ahead", [0, 1, 2, 3])
def test_the_requested_number_of_files_is_prefetched(eight, read_ahead):
    reader = Watching()
    with FileDataset(eight, reader, EIGHT, max_files=6, read_ahead=read_ahead) as dataset:
        dataset.expect(iter(batches_of(range(8))))
        dataset.__getitems__(np.arange(10))
        wait_until(lambda: len(reader.read) == 1 + read_ahead)
        time.sleep(0.05)
        assert len(reader.read) == 1 + read_ahead
        assert (reading_threads() != []) == (read_ahead > 0)
    assert reading_threads() == []


def test_an_error_of_prefetching_is_raised_when_the_file_is_needed_and_then_retried(eight):
    reader = Watching()
    reader.failing["001.npz"] = error = OSError("the disk is gone")
    with FileDataset(eight, reader, EIGHT) as dataset:
        dataset.expect(iter(batches_of(range(8))))
        first = dataset.__getitems__(np.arange(10))
        wait_until(lambda: "001.npz" in reader.read)
        assert [plain(sample) for sample in first] == OF_EIGHT[:10]
        with pytest.raises(
            sk.DatasetError, match=r"001\.npz: cannot be read \(OSError: the disk is gone\)"
        ) as caught:
            dataset.__getitems__(np.arange(10, 20))
        assert caught.value.__cause__ is error
        assert reader.read.count("001.npz") == 1
        reader.failing.clear()
        rest = [plain(s) for ids in batches_of(range(1, 8)) for s in dataset.__getitems__(ids)]
        assert rest == OF_EIGHT[10:]
        assert len(reader.read) == 9


def test_a_failed_prefetch_is_retried_after_the_expected_order_changed(eight):
    reader = Watching()
    reader.failing["001.npz"] = OSError("the disk is gone")
    with FileDataset(eight, reader, EIGHT) as dataset:
        dataset.expect(iter(batches_of(range(8))))
        dataset.__getitems__(np.arange(10))
        wait_until(lambda: dataset._cache()._failures)
        reader.failing.clear()
        dataset.expect(iter(batches_of([1, 5])))
        assert [plain(sample) for sample in dataset.__getitems__(np.arange(10, 20))] == OF_EIGHT[10:20]


def test_close_does_not_wait_for_a_reader_that_hangs(eight):
    go_on = threading.Event()

    def reader(path):
        if "001" in Path(path).name:
            go_on.wait(60)
        return np.load(path)

    dataset = FileDataset(eight, reader, EIGHT)
    dataset.expect(iter(batches_of(range(8))))
    dataset.__getitems__(np.arange(10))
    wait_until(lambda: reading_threads() != [])
    with within(10):
        dataset.close()
    go_on.set()
    wait_until(lambda: reading_threads() == [])
    assert dataset.__getitems__(np.arange(10, 20))[0]["id"] == 10
    dataset.close()


def test_waits_and_hits_are_counted(eight):
    with FileDataset(eight, Watching(seconds=0.02), EIGHT, read_ahead=0) as dataset:
        dataset.__getitems__(np.arange(20))
        dataset.__getitems__(np.arange(20))
        stats = dataset.stats
    assert (stats.files_read, stats.waits, stats.hits, stats.peak_files) == (2, 2, 2, 2)
    assert stats.wait_seconds >= 0.04
    assert stats.bytes_read == stats.peak_bytes == 2 * 10 * 8 * 4


def test_a_file_larger_than_those_before_makes_others_leave_memory(tmp_path):
    """Before it is read, its size is taken for that of the largest one so far; the one used last stays."""
    paths = write_npz(tmp_path, [10, 10, 100])
    reader = Watching()
    with FileDataset(paths, reader, [10, 10, 100], max_bytes=3600) as dataset:
        for index in (10, 0, 10, 10, 20, 20, 0):
            dataset.__getitems__([index])
    assert reader.read == ["001.npz", "000.npz", "002.npz", "000.npz"]
