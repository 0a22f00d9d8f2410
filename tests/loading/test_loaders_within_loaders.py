"""A dataset that reads loaders in the middle of a sample, its own one among them, in threads."""

from __future__ import annotations

import threading

import pytest

import samplerkit as sk
from tests.loading.worker_kinds import THREADS
from tests.waiting import begun_since, wait_until


class Snake:
    """Reads a batch of a loader, its own at first, in place of each sample from `first` on."""

    def __init__(self, first=4, **options):
        self.first = first
        self.loader = sk.Loader(self, sk.SequentialSampler(), batch_size=2, **THREADS, **options)
        self.inner = self.loader

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return index if index < self.first else next(iter(self.inner))


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    before = set(threading.enumerate())
    yield
    wait_until(lambda: not begun_since(before))


OPTIONS = [{}, {"persistent_workers": True}, {"run_ahead": True}, {"device": "cpu"}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_dataset_that_reads_its_own_loader_is_told_so_and_no_thread_is_left(options):
    snake, received = Snake(**options), []
    with snake.loader, pytest.raises(sk.StateError, match=r"was ended by a newer one.*; give the dataset"):
        for batch in snake.loader:
            received += batch.tolist()
    assert received == [0, 1, 2, 3]
    assert snake.loader.state_dict()["position"] == 4


def test_a_snake_that_is_left_by_a_break_begins_no_thread_behind_it():
    snake = Snake()
    for _ in snake.loader:
        break
    snake.loader.close()


def test_two_datasets_that_read_the_loaders_of_one_another_are_told_so():
    one, other = Snake(first=0), Snake(first=0)
    one.inner, other.inner = other.loader, one.loader
    with one.loader, other.loader, pytest.raises(sk.StateError, match="was ended by a newer one"):
        list(one.loader)
