"""Batches that the loop makes though there are threads, since that is faster: all else is unchanged."""

from __future__ import annotations

import itertools
import threading
import time
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

import samplerkit as sk
from samplerkit.loading.workers import loader_workers
from tests.loading.numbers import Numbers, ids_of, numbers_loader
from tests.loading.test_worker_threads import Recording
from tests.loading.worker_kinds import THREADS, GivenSeconds, LoopSchedule, RandomSchedule, with_workers


class ByLoop(Numbers):
    """A sample is whether the loop read it."""

    def __getitem__(self, index):
        return index, threading.current_thread() is threading.main_thread()


def read_by_loop(loader):
    """Which batches of an epoch the loop made."""
    by_loop = []
    for batch in loader:
        (is_loop,) = {is_loop for _, is_loop in batch}
        by_loop.append(is_loop)
    return by_loop


@pytest.fixture
def loop_makes_all(monkeypatch):
    """Lets the loop make every batch that it may."""
    monkeypatch.setattr(loader_workers, "ThreadSchedule", LoopSchedule)


@pytest.mark.parametrize(("step", "limit"), [(0.0, 180), (0.005, 0)])
def test_an_idle_loop_makes_small_batches_and_one_that_trains_does_not(monkeypatch, step, limit):
    monkeypatch.setattr(loader_workers, "ThreadSchedule", partial(GivenSeconds, step=step))
    with sk.Loader(ByLoop(400), sk.SequentialSampler(), batch_size=2, collate_fn=list, **THREADS) as loader:
        assert limit - 30 <= sum(read_by_loop(loader)) <= limit


class Connected(ByLoop):
    """Each thread reads a copy."""

    def copy_for_thread(self):
        return Connected(self.size)


@pytest.mark.usefixtures("loop_makes_all")
@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (Connected(20), {}),
        (ByLoop(20), {"worker_init_fn": lambda number: None}),
        (ByLoop(20), {"timeout": 50.0}),
        (ByLoop(20), {"num_workers": 1}),
        (ByLoop(20), {"device": "cpu"}),
    ],
    ids=["copies", "a function of each worker", "a time limit", "one thread", "a device"],
)
def test_the_loop_makes_no_batch_of_a_dataset_with_copies_or_of_workers_with_a_limit(dataset, options):
    with sk.Loader(dataset, batch_size=2, collate_fn=list, **{**THREADS, **options}) as loader:
        assert not any(read_by_loop(loader))


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


@pytest.mark.usefixtures("loop_makes_all")
def test_a_loader_that_is_closed_while_the_loop_makes_a_batch_is_an_error():
    class Closing(Numbers):
        def __getitem__(self, index):
            if index == 20:
                loader.close()
            return index

    loader, received = sk.Loader(Closing(30), sk.SequentialSampler(), batch_size=2, **THREADS), []
    with pytest.raises(sk.StateError, match="close"):
        for batch in loader:
            received += batch.tolist()
    assert received == [*range(20)]
    assert ids_of(numbers_loader(**THREADS)) == ids_of(numbers_loader())
