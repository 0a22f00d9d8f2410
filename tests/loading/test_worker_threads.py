"""Threads as workers: what they share, what is copied for each, and how they end."""

from __future__ import annotations

import gc
import pickle
import sqlite3
import threading
import time
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, StackDataset, Subset

import samplerkit as sk
from tests.jobs import ended
from tests.loading.numbers import Numbers, ids_of, numbers_loader
from tests.loading.worker_kinds import THREADS, beside
from tests.own_seconds import OwnSeconds
from tests.waiting import wait_until


def threads_of_loaders():
    return [thread for thread in threading.enumerate() if thread.name.startswith("samplerkit-worker")]


class Meeting(Numbers):
    """A sample is read when another thread reads one too."""

    def __init__(self, size):
        super().__init__(size)
        self.meeting = threading.Barrier(2, timeout=60)

    def __getitem__(self, index):
        self.meeting.wait()
        return index, threading.get_ident()


def test_two_threads_read_at_the_same_time_and_the_batches_come_in_order():
    with sk.Loader(Meeting(40), sk.RandomSampler(seed=3), batch_size=4, collate_fn=list, **THREADS) as loader:
        read = [sample for batch in loader for sample in batch]
    assert [index for index, _ in read] == list(sk.RandomSampler(seed=3).order(40))
    assert Counter(Counter(thread for _, thread in read).values()) == {20: 2}


@dataclass
class Told:
    """What a dataset was told, and whether it was read meanwhile."""

    epochs: list[int]
    expected: list[list[int]]
    broken: list[str]


class Telling:
    """Knows what it was told; while it is told an epoch, nobody may read."""

    def __init__(self, while_read=lambda: time.sleep(0.002)):
        self.told = Told([], [], [])
        self.while_read = while_read
        self._lock = threading.Lock()
        self._reading = 0

    def __len__(self):
        return 12

    def set_epoch(self, epoch):
        with self._lock:
            self.told.broken += ["read while an epoch began"] if self._reading else []
        self.told.epochs.append(epoch)

    def expect(self, upcoming):
        self.told.expected.append([index for ids in upcoming for index in ids.tolist()])

    def __getitems__(self, ids):
        epoch = self.told.epochs[-1]
        with self._lock:
            self._reading += 1
        self.while_read()
        with self._lock:
            self._reading -= 1
            self.told.broken += [] if self.told.epochs[-1] == epoch else ["an epoch began while it was read"]
        return [(index, epoch) for index in ids.tolist()]


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}, {"run_ahead": True}], ids=str)
def test_a_dataset_is_told_once_for_all_threads_and_never_while_it_is_read(options):
    dataset, sampler, options = Telling(), sk.RandomSampler(seed=5), {**beside("3 threads"), **options}
    with sk.Loader(dataset, sampler, batch_size=1, collate_fn=list, **options) as loader:
        for epoch in range(4):
            expected = [(index, epoch) for index in sampler.order(12, epoch)[:].tolist()]
            assert [sample for batch in loader for sample in batch] == expected
    told = dataset.told
    assert told.broken == []
    assert told.epochs[:4] == [0, 1, 2, 3]
    assert told.expected[:4] == [sampler.order(12, epoch)[:].tolist() for epoch in range(4)]


def test_a_dataset_that_is_read_while_an_epoch_begins_would_be_noticed():
    is_told = threading.Event()
    dataset = Telling(is_told.wait)
    dataset.set_epoch(0)
    reader = threading.Thread(target=dataset.__getitems__, args=(np.arange(2),))
    reader.start()
    wait_until(lambda: dataset._reading)
    dataset.set_epoch(1)
    is_told.set()
    reader.join()
    assert dataset.told.broken == ["read while an epoch began", "an epoch began while it was read"]


@dataclass(frozen=True)
class Reads:
    """How many samples were read."""

    number: int = 0

    def __add__(self, other):
        return Reads(self.number + other.number)


class Table:
    """Rows of a database, whose connection serves the thread alone that opened it."""

    def __init__(self, path, copies):
        self.path, self.copies, self.is_closed, self.stats = path, copies, False, Reads()
        self._connection = None

    def __len__(self):
        return 24

    def copy_for_thread(self):
        made = Table(self.path, self.copies)
        self.copies.append(made)
        return made

    def __getitem__(self, index):
        assert not self.is_closed
        self._connection = self._connection or sqlite3.connect(self.path)
        self.stats += Reads(1)
        return self._connection.execute("select value from rows where id = ?", (index,)).fetchone()[0]

    def close(self):
        self._connection.close()
        self.is_closed = True


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "rows.db"
    with sqlite3.connect(path) as database:
        database.execute("create table rows (id integer primary key, value)")
        database.executemany("insert into rows values (?, ?)", [(index, 100 + index) for index in range(24)])
    database.close()
    return Table(str(path), [])


WRAPPERS = {
    "alone": lambda table: table,
    "Subset": lambda table: Subset(table, range(24)),
    "ConcatDataset": lambda table: ConcatDataset([table, range(2)]),
    "StackDataset": lambda table: StackDataset(table, range(24)),
    "StackDataset by names": lambda table: StackDataset(row=table, id=range(24)),
    "Subset of a ConcatDataset": lambda table: Subset(ConcatDataset([range(2), table]), range(2, 26)),
    "TreeDataset": lambda table: sk.TreeDataset({"rows": table, "more": range(3)}),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_each_thread_reads_a_copy_of_a_dataset_that_asks_for_it_wherever_that_lies(table, wrapper):
    dataset = WRAPPERS[wrapper](table)
    alone = sk.Loader(dataset, sk.RandomSampler(seed=1), batch_size=3, collate_fn=list)
    expected = list(alone)
    table._connection.close()
    with sk.Loader(dataset, sk.RandomSampler(seed=1), batch_size=3, collate_fn=list, **THREADS) as loader:
        assert list(loader) == expected
    assert table.stats == Reads(24)  # of the loop alone
    assert sum(made.stats.number for made in table.copies) == 24
    assert all(made.is_closed for made in table.copies if made.stats.number)


def test_the_figures_of_copies_are_added_up_and_lasting_threads_keep_theirs(table):
    options = {**THREADS, "persistent_workers": True}
    with sk.Loader(table, sk.RandomSampler(seed=1), batch_size=3, collate_fn=list, **options) as loader:
        for epoch in (1, 2, 3):
            assert sum(map(len, loader)) == 24
            assert loader.stats.dataset == Reads(24 * epoch)
        assert len(table.copies) <= 2
        assert not any(made.is_closed for made in table.copies)
    with sk.Loader(table, sk.RandomSampler(seed=1), batch_size=3, collate_fn=list, **THREADS) as loader:
        for epoch in (1, 2):
            assert sum(map(len, loader)) == 24
            assert loader.stats.dataset == Reads(24 * epoch)
    assert table.stats == Reads()


@pytest.mark.parametrize("mode", ["files", "partial", "global"])
def test_all_threads_share_what_is_in_memory_so_that_each_file_is_read_once(tmp_path, mode):
    for number in range(6):
        np.savez(tmp_path / f"{number}.npz", x=np.arange(10) + number * 10)
    dataset = sk.FileDataset(str(tmp_path / "*.npz"), "npz", max_files=6, progress=False)
    sampler = sk.RandomSampler(shuffle=mode, seed=7, **({"partial_size": 20} if mode == "partial" else {}))
    with sk.Loader(dataset, sampler, batch_size=4, **beside("3 threads")) as loader:
        for epoch in (1, 2):
            read = [index for batch in loader for index in batch["x"].tolist()]
            assert read == sampler.order(dataset, epoch - 1)[:].tolist()
            assert loader.stats.dataset == dataset.stats
            assert loader.stats.dataset.files_read <= 6 * epoch


def test_what_threads_cannot_do_is_refused_with_a_mend():
    with pytest.raises(sk.ArgumentValueError, match=r"seed_draws: .*draw_rng"):
        numbers_loader(seed_draws=True, **THREADS)
    with pytest.raises(sk.ArgumentValueError, match="multiprocessing_context: is for processes"):
        numbers_loader(multiprocessing_context="spawn", **THREADS)
    with pytest.raises(sk.ArgumentValueError, match="workers"):
        numbers_loader(workers="fibres")
    assert len(ids_of(numbers_loader(seed_draws=True, workers="threads"))) == 4  # none beside the loop


def numbers_of(loader):
    return [int(number) for batch in loader for number in batch]


def test_a_loader_that_is_not_read_can_be_pickled_and_the_other_reads_the_same():
    for options in ({}, THREADS):
        loader = sk.Loader(range(20), sk.RandomSampler(seed=3), batch_size=4, **options)
        with pickle.loads(pickle.dumps(loader)) as other:  # noqa: S301  # of this very process
            assert numbers_of(other) == numbers_of(loader)
        loader.close()


def test_a_loader_inside_of_a_sample_has_threads_of_its_own():
    class Summed(Numbers):
        def __getitem__(self, index):
            with sk.Loader(range(index + 1), sk.SequentialSampler(), batch_size=1, **THREADS) as inner:
                return sum(int(number) for number in inner)

    with sk.Loader(Summed(9), sk.SequentialSampler(), batch_size=2, tail="ragged", **THREADS) as loader:
        assert numbers_of(loader) == [index * (index + 1) // 2 for index in range(9)]
    wait_until(lambda: not threads_of_loaders())


def test_more_threads_than_batches_and_none_at_all_hand_out_what_there_is():
    for size in (0, 1, 5):
        options = {**THREADS, "num_workers": 16}
        with sk.Loader(range(size), sk.SequentialSampler(), batch_size=4, tail="ragged", **options) as loader:
            assert numbers_of(loader) == [*range(size)]
            assert loader.state_dict()["epoch"] == 1


def test_draws_repeat_in_threads_and_a_thread_is_no_worker_of_torch():
    class Drawing(Numbers):
        def __getitem__(self, index):
            assert torch.utils.data.get_worker_info() is None
            return int(sk.draw_rng().integers(1 << 30)), int(sk.sample_rng(7, 0, index).integers(1 << 30))

    def read(workers):
        options = {"batch_size": 3, "collate_fn": list, **beside(workers)}
        with sk.Loader(Drawing(40), sk.RandomSampler(seed=3), **options) as loader:
            return list(loader)

    assert read(0) == read("2 threads") == read("3 threads")


class OddError(Exception):
    """Cannot be made anew from its message, as another process would have to."""

    def __init__(self, code, *, place):
        super().__init__(f"{code} at {place}")
        self.code = code


@pytest.mark.parametrize(
    "error", [OddError(7, place="here"), StopIteration(), SystemExit(3), KeyError("x")], ids=repr
)
@pytest.mark.parametrize("options", [{}, {"device": "cpu"}], ids=str)
def test_what_the_dataset_raises_is_raised_itself_at_its_place(error, options):
    class Broken(Numbers):
        def __getitem__(self, index):
            if index == 7:
                raise error
            return index

    loader, received = sk.Loader(Broken(20), sk.SequentialSampler(), batch_size=2, **THREADS, **options), []
    with pytest.raises(RuntimeError if isinstance(error, StopIteration) else type(error)) as caught:
        for batch in loader:
            received += batch.tolist()
    assert received == [0, 1, 2, 3, 4, 5]
    assert loader.state_dict()["position"] == 6
    assert error in (caught.value, caught.value.__cause__)
    wait_until(lambda: not threads_of_loaders())


def test_the_function_of_a_worker_is_called_in_each_thread_and_its_error_is_raised_in_the_loop():
    class Named(Meeting):
        def __getitem__(self, index):
            super().__getitem__(index)
            return here.number

    here = threading.local()
    options = {**THREADS, "worker_init_fn": lambda number: setattr(here, "number", number)}
    with sk.Loader(Named(8), sk.SequentialSampler(), batch_size=1, **options) as loader:
        assert {int(batch) for batch in loader} == {0, 1}

    def fails(number):
        raise OSError(f"thread {number} has no room")

    with pytest.raises(OSError, match="has no room"):
        list(numbers_loader(**{**THREADS, "worker_init_fn": fails}))


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("end", ["close", "break"])
def test_closing_and_breaking_end_the_threads(persistent, end):
    loader = numbers_loader(60, persistent_workers=persistent, **THREADS)
    batches = iter(loader)
    next(batches)
    mine = threads_of_loaders()
    assert len(mine) == 2
    assert loader.worker_pids == []
    if end == "break":
        del batches
        assert [thread.is_alive() for thread in mine] == [persistent] * 2
        assert len(ids_of(loader)) == 20
    if end == "close" or persistent:
        loader.close()
    assert threads_of_loaders() == []
    if end == "close":
        with pytest.raises(sk.StateError, match="close"):
            next(batches)
    assert len(ids_of(loader)) == 20
    loader.close()


class Stuck(Numbers):
    """From the fifth on, samples come when they are let go."""

    def __init__(self, size):
        super().__init__(size)
        self.let_go = threading.Event()

    def __getitem__(self, index):
        if index >= 4:
            self.let_go.wait()
        return index


@pytest.mark.parametrize("options", [{}, {"device": "cpu"}, {"persistent_workers": True}], ids=str)
def test_a_break_waits_no_longer_than_two_seconds_for_a_sample_that_hangs(options):
    dataset = Stuck(20)
    loader = sk.Loader(dataset, sk.SequentialSampler(), batch_size=2, **THREADS, **options)
    for _ in loader:
        with OwnSeconds() as own:
            loader.close()
        break
    assert own.seconds < 2
    dataset.let_go.set()
    wait_until(lambda: not threads_of_loaders())
    assert [i for batch in loader for i in batch.tolist()] == list(range(20))
    loader.close()


def test_a_batch_that_does_not_come_in_time_is_a_typed_error():
    dataset = Stuck(20)
    loader, received = sk.Loader(dataset, sk.SequentialSampler(), batch_size=2, timeout=0.2, **THREADS), []
    with pytest.raises(sk.WorkerError, match="timeout"):
        for batch in loader:
            received += batch.tolist()
    assert received == [0, 1, 2, 3]
    dataset.let_go.set()


def test_a_handler_that_closes_the_loader_while_it_waits_ends_the_wait():
    dataset = Stuck(20)
    loader = sk.Loader(dataset, sk.SequentialSampler(), batch_size=2, **THREADS)
    received = []
    closing = threading.Timer(0.3, loader.close)
    closing.start()
    with pytest.raises(sk.StateError, match="close"):
        for batch in loader:
            received += batch.tolist()
    assert received == [0, 1, 2, 3]
    dataset.let_go.set()
    closing.join()


@pytest.mark.parametrize("options", [{"run_ahead": True}, {"persistent_workers": True}], ids=str)
def test_a_loader_that_is_dropped_leaves_no_thread_behind(options):
    loader = numbers_loader(**THREADS, **options)
    ids_of(loader)
    assert threads_of_loaders()
    del loader
    gc.collect()
    wait_until(lambda: not threads_of_loaders())


def test_batches_that_the_loop_has_not_asked_for_are_bounded():
    read = []

    class Noting(Numbers):
        def __getitem__(self, index):
            read.append(index)
            return index

    loader = sk.Loader(Noting(100), sk.SequentialSampler(), batch_size=1, prefetch_factor=3, **THREADS)
    with loader:
        for _ in loader:
            if loader.step == 5:
                time.sleep(0.1)
                assert len(read) <= 5 + 2 * 3
                break


INHERITED = """
import os, samplerkit as sk
batches = iter(sk.Loader(range(40), sk.SequentialSampler(), batch_size=2, num_workers=2, workers="threads"))
next(batches)
if os.fork() == 0:
    try:
        next(batches)
    except sk.StateError as error:
        os.write(1, f"{error}\\n".encode())
    os._exit(0)
os.wait()
print(next(batches).tolist(), sum(1 for _ in batches))
"""


def test_an_iteration_that_a_forked_process_inherits_is_an_error_there_and_goes_on_here():
    code, printed, errors = ended("-c", INHERITED, seconds=120)
    assert code == 0, errors
    assert printed.splitlines() == [
        "state: iteration: belongs to the process that began it; iterate anew in this process",
        "[2, 3] 18",
    ]


AT_THE_END = """
import sys, threading, time, samplerkit as sk
class Slow:
    def __len__(self): return 100
    def __getitem__(self, index):
        if index > 4:
            time.sleep(60)
        return index
options = {options}
loader = sk.Loader(Slow(), sk.SequentialSampler(), batch_size=2, num_workers=2, workers="threads", **options)
kept = iter(loader)
next(kept)
begun = time.monotonic()
{end}
"""


@pytest.mark.parametrize(
    ("options", "end"), [({}, ""), ({"device": "cpu", "run_ahead": True}, "raise ValueError")], ids=str
)
def test_a_script_ends_though_its_threads_are_in_the_middle_of_a_sample(end, options):
    with OwnSeconds() as own:
        code, _, errors = ended("-c", AT_THE_END.format(options=options, end=end), seconds=120)
    assert code == ("ValueError" in end), errors
    assert "Fatal" not in errors
    assert own.seconds < 20  # a sample alone takes sixty
