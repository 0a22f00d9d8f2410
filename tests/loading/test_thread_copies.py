"""What threads share, and what each has a copy of: datasets, statistics, and files in memory."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

import pytest
from torch.utils.data import ConcatDataset, StackDataset, Subset

import samplerkit as sk
from tests.loading.worker_kinds import THREADS


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


def test_the_stats_of_copies_are_summed_and_persistent_threads_keep_theirs(table):
    options = {**THREADS, "persistent_workers": True}
    with sk.Loader(table, sk.RandomSampler(seed=1), batch_size=3, collate_fn=list, **options) as loader:
        for epoch in (1, 2, 3):
            assert sum(map(len, loader)) == 24
            assert loader.stats.dataset == Reads(24 * epoch)
        assert len(table.copies) <= 2
        assert not any(copy.is_closed for copy in table.copies)
    with sk.Loader(table, sk.RandomSampler(seed=1), batch_size=3, collate_fn=list, **THREADS) as loader:
        for epoch in (1, 2):
            assert sum(map(len, loader)) == 24
            assert loader.stats.dataset == Reads(24 * epoch)
    assert table.stats == Reads()
