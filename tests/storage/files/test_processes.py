"""Files in worker processes: each has its own, and none outlives what it works for."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.files.dataset import FileDataset
from tests.storage.files.folders import plain, reading_threads, samples_of, write_npz

SIZES = [10] * 16
SAMPLES = samples_of(SIZES)


@pytest.fixture(name="paths", scope="module")
def fixture_paths(tmp_path_factory):
    return write_npz(tmp_path_factory.mktemp("processes"), SIZES)


class Ledger:
    """A reader that writes down which process read which file."""

    def __init__(self, file):
        self.file = str(file)

    def __call__(self, path):
        with np.load(path) as arrays:
            found = dict(arrays)
        # Only now: a race in the parser of Python before 3.11.8 fails, and is tried again.
        handle = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, f"{os.getpid()} {os.path.basename(path)}\n".encode())  # noqa: PTH119
        os.close(handle)
        return found

    def entries(self):
        """Pairs of process and file."""
        with open(self.file, encoding="utf-8") as file:  # noqa: PTH123
            return [tuple(line.split()) for line in file]


# Spawned workers take seconds to start.
@pytest.mark.parametrize(("workers", "context"), [(0, "fork"), (2, "fork"), (4, "fork"), (1, "spawn")])
def test_workers_read_what_the_order_says_and_each_file_once_each(paths, tmp_path, workers, context):
    ledger = Ledger(tmp_path / "ledger")
    sampler = sk.DistributedSampler(shuffle="files", seed=3)
    options = {"multiprocessing_context": context} if workers else {}
    with FileDataset(paths, ledger, SIZES) as dataset:
        loader = sk.Loader(
            dataset,
            sampler,
            batch_size=2,
            num_workers=workers,
            collate_fn=list,
            world=sk.World(2, 0),
            **options,
        )
        received = [plain(sample) for batch in loader for sample in batch]
        loader.close()
    order = sampler.order(sk.Layout(SIZES), world=sk.World(2, 0))
    assert received == [SAMPLES[id] for id in order]
    entries = ledger.entries()
    processes = {process for process, _ in entries}
    assert len(processes) == max(1, workers)
    assert len(entries) == len(set(entries)), "a process read a file twice"
    assert len({name for _, name in entries}) == 8
    assert len(entries) == 8 * max(1, workers)


def in_child(dataset, results):
    try:
        results.put([plain(sample) for sample in dataset.__getitems__(np.arange(35, 55))])
        results.put((dataset.stats.files_read, len(reading_threads())))
        dataset.close()
        results.put(len(reading_threads()))
    except BaseException as error:
        results.put(repr(error))
        raise


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_a_child_begins_anew_and_the_parent_goes_on(paths, context):
    processes = multiprocessing.get_context(context)
    with FileDataset(paths, "npz", SIZES, read_ahead=2, max_files=6) as dataset:
        dataset.expect(iter([np.arange(start, start + 10) for start in range(0, 160, 10)]))
        dataset.__getitems__(np.arange(10))
        assert reading_threads() != []
        results = processes.Queue()
        child = processes.Process(target=in_child, args=(dataset, results))
        child.start()
        assert results.get(timeout=60) == SAMPLES[35:55]
        files_read, threads = results.get(timeout=60)
        assert files_read >= 3
        assert threads <= 1
        assert results.get(timeout=60) == 0
        child.join(60)
        assert child.exitcode == 0
        assert [plain(sample) for sample in dataset.__getitems__(np.arange(10, 20))] == SAMPLES[10:20]


def test_a_child_forked_while_all_locks_are_held_is_not_locked(paths):
    holding, let_go = threading.Event(), threading.Event()

    def hold(lock):
        with lock:
            holding.set()
            let_go.wait(60)

    with FileDataset(paths, "npz", SIZES) as dataset:
        dataset.__getitems__([0])
        for lock in (dataset._cache()._changed, dataset._processes.here().lock):
            holding.clear()
            threading.Thread(target=hold, args=(lock,), daemon=True).start()
            assert holding.wait(10)
        processes = multiprocessing.get_context("fork")
        results = processes.Queue()
        child = processes.Process(target=in_child, args=(dataset, results))
        child.start()
        try:
            assert results.get(timeout=60) == SAMPLES[35:55]
        finally:
            let_go.set()
            child.join(60)
        assert child.exitcode == 0


EXITS = {
    "the end of the program": "",
    "an exception": "raise RuntimeError('on purpose')",
}


@pytest.mark.parametrize("end", EXITS)
def test_the_interpreter_ends_at_once_while_a_file_is_read(paths, end):
    """The reader of the second file would take a minute."""
    program = f"""
        import sys, time
        import numpy as np
        from samplerkit.storage.files.dataset import FileDataset

        def reader(path):
            if path.endswith("001.npz"):
                print("reading", flush=True)
                time.sleep(60)
            return np.load(path)

        dataset = FileDataset({[str(path) for path in paths]!r}, reader, {SIZES!r})
        dataset.expect(iter([np.arange(10 * n, 10 * n + 10) for n in range(16)]))
        dataset.__getitems__(np.arange(10))
        time.sleep(0.5)
        print("ending", time.time(), flush=True)
        {EXITS[end]}
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    ended = time.time()
    assert "reading" in done.stdout, done.stderr
    assert done.returncode == bool(EXITS[end])
    assert ended - float(done.stdout.split()[-1]) < 20
