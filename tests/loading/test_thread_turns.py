"""Threads that load: how many make batches at once, and copies of a dataset."""

import itertools
import sqlite3
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, StackDataset, Subset

import samplerkit as sk
from samplerkit.loading.workers import loader_workers, thread_pool
from samplerkit.loading.workers.thread_pool import LONGEST_PAUSE, TRIAL_BATCHES, ThreadSchedule
from tests.loading.test_worker_threads import Meeting, Recording
from tests.loading.worker_kinds import THREADS, GivenSeconds, RandomSchedule, with_workers


def warming_up(threads):
    """How many batches are not measured at first."""
    return threads * (1 if getattr(sys, "_is_gil_enabled", lambda: True)() else 4)


def make_batches(schedule, alone, together, batches):
    """Makes batches that take so many seconds alone, or together; returns how many were made alone."""
    made_alone = 0
    for _ in range(batches):
        made_alone += schedule.at_once == 1
        schedule.count_batch(schedule.at_once, alone if schedule.at_once == 1 else together)
    return made_alone


@pytest.mark.parametrize("threads", [2, 4, 16])
@pytest.mark.parametrize("times_alone", [0.2, 0.5, 1, 1.2, 3, 16])
def test_the_faster_schedule_is_found_and_rarely_left_again(threads, times_alone):
    schedule, together = ThreadSchedule(threads), 0.01
    made_alone = make_batches(schedule, times_alone * together / threads, together, 20_000)
    if times_alone <= 1:  # if both are equally fast, one thread is enough
        assert schedule.at_once == 1
        assert made_alone > 19_700
    else:
        assert schedule.at_once == threads
        assert made_alone < 300


def test_a_change_in_mid_run_is_noticed():
    schedule = ThreadSchedule(2)
    make_batches(schedule, 0.002, 0.01, 5_000)
    assert schedule.at_once == 1
    make_batches(schedule, 0.01, 0.01, 2 * LONGEST_PAUSE)
    assert schedule.at_once == 2
    make_batches(schedule, 0.002, 0.01, 2 * LONGEST_PAUSE)
    assert schedule.at_once == 1


def test_batches_started_before_a_change_do_not_count_for_it():
    schedule = ThreadSchedule(2)
    make_batches(schedule, 0.002, 0.01, warming_up(2) + TRIAL_BATCHES)
    assert schedule.at_once == 1
    for _ in range(100):
        schedule.count_batch(2, 9.0)
    assert make_batches(schedule, 0.002, 0.01, TRIAL_BATCHES) == TRIAL_BATCHES
    assert schedule.at_once == 1


class Crowd:
    """Knows how often two read at once."""

    def __init__(self, size):
        self.size, self.reading, self.crowds = size, 0, []
        self.lock = threading.Lock()

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        with self.lock:
            self.reading += 1
            is_crowd = self.reading > 1
        time.sleep(0.001)
        with self.lock:
            self.reading -= 1
        self.crowds.append(is_crowd)
        return index


def test_threads_that_hinder_one_another_take_turns_and_the_next_epoch_knows_it(monkeypatch):
    monkeypatch.setattr(loader_workers, "ThreadSchedule", GivenSeconds)
    monkeypatch.setattr(thread_pool, "PATIENCE", 60)
    dataset, sampler = Crowd(60), sk.RandomSampler(seed=3)
    with sk.Loader(dataset, sampler, batch_size=1, collate_fn=list, **THREADS) as loader:
        for epoch in range(2):
            assert [index for [index] in loader] == list(sampler.order(60, epoch))
    first, second = dataset.crowds[:60], dataset.crowds[60:]
    assert sum(first) <= warming_up(2) + TRIAL_BATCHES + 1
    assert sum(second) <= TRIAL_BATCHES + 3  # a trial whether that is still true


def test_samples_that_need_another_thread_delay_a_trial_only_shortly():
    sampler = sk.RandomSampler(seed=3)
    with sk.Loader(Meeting(400), sampler, batch_size=2, collate_fn=list, **THREADS) as loader:
        assert [index for batch in loader for index, _ in batch] == list(sampler.order(400))


SEEDS = itertools.count()


@given(
    options=st.fixed_dictionaries(
        {"num_workers": st.integers(2, 4), "prefetch_factor": st.integers(1, 3)},
        optional={"persistent_workers": st.just(True), "run_ahead": st.just(True)},
    ),
    chance=st.sampled_from([0.1, 0.5, 1.0]),
    breaks=st.lists(st.integers(1, 14), max_size=3),
)
def test_random_schedules_keep_the_order_and_set_no_epoch_during_a_read(options, chance, breaks):
    seed = next(SEEDS)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loader_workers, "ThreadSchedule", partial(RandomSchedule, seed=seed, chance=chance))
        dataset, sampler = Recording(lambda: time.sleep(0.0002)), sk.RandomSampler(seed=5)
        loader = sk.Loader(
            dataset, sampler, batch_size=1, collate_fn=list, **{**with_workers("2 threads"), **options}
        )
    with loader:
        for leave_at in breaks:  # workers that survive read for an epoch that is over here
            for step, _ in enumerate(loader, 1):
                if step == leave_at:
                    break
        first = loader.epoch
        for epoch in range(first, first + 3):
            loader.set_epoch(epoch)
            expected = [(index, epoch) for index in sampler.order(12, epoch)[:].tolist()]
            assert [sample for batch in loader for sample in batch] == expected
    assert dataset.calls.broken == []


@dataclass(frozen=True)
class Reads:
    """How many samples were read."""

    number: int = 0

    def __add__(self, other):
        return Reads(self.number + other.number)


class Table:
    """Rows of a database, whose connection can be used only by the thread that opened it."""

    def __init__(self, path, copies):
        self.path, self.copies, self.is_closed, self.stats = path, copies, False, Reads()
        self._connection = None

    def __len__(self):
        return 24

    def copy_for_thread(self):
        copy = Table(self.path, self.copies)
        self.copies.append(copy)
        return copy

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
def test_each_thread_reads_its_copy_of_a_dataset_that_needs_one_at_any_depth(table, wrapper):
    dataset = WRAPPERS[wrapper](table)
    alone = sk.Loader(dataset, sk.RandomSampler(seed=1), batch_size=3, collate_fn=list)
    expected = list(alone)
    table._connection.close()
    with sk.Loader(dataset, sk.RandomSampler(seed=1), batch_size=3, collate_fn=list, **THREADS) as loader:
        assert list(loader) == expected
    assert table.stats == Reads(24)  # of the loop alone
    assert sum(copy.stats.number for copy in table.copies) == 24
    assert all(copy.is_closed for copy in table.copies if copy.stats.number)


def test_persistent_threads_keep_their_copies(table):
    options = {**THREADS, "persistent_workers": True}
    with sk.Loader(table, sk.RandomSampler(seed=1), batch_size=3, collate_fn=list, **options) as loader:
        for _ in range(3):
            assert sum(map(len, loader)) == 24
        assert len(table.copies) <= 2
        assert sum(copy.stats.number for copy in table.copies) == 72
        assert not any(copy.is_closed for copy in table.copies)
