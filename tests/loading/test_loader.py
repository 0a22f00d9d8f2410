"""What a loader hands out, and its attributes."""

from __future__ import annotations

import os
import time

import pytest

import samplerkit as sk
from tests.chains import under
from tests.loading.numbers import Numbers, epoch_ids, ids_of, numbers_loader
from tests.loading.worker_kinds import with_threads_too, with_workers
from tests.numbers import Made


@pytest.mark.parametrize("workers", [0, 3, "3 threads"])
@pytest.mark.parametrize(
    ("size", "tail", "sizes"), [(34, "ragged", [16, 16, 2]), (46, "drop", [16, 16]), (3, "pad", [3])]
)
def test_any_number_of_workers_gives_the_order_of_the_sampler(workers, size, tail, sizes):
    """Its batches are those of one process, and as many as `len` says; its dataset knows the epoch."""
    with numbers_loader(size, batch_size=16, tail=tail, **with_workers(workers)) as loader:
        for epoch in range(2):
            batches = list(loader)
            assert [len(batch) for batch in batches] == sizes
            assert len(loader) == len(batches)
            assert sum(batches, []) == [(index, epoch) for index in epoch_ids(size, epoch)[: sum(sizes)]]


@pytest.mark.parametrize("workers", [0, 2, "2 threads"])
def test_the_order_of_an_epoch_is_drawn_once(workers):
    epochs = []

    class Counted(sk.Sampler):
        def draw(self, layout, context):
            epochs.append(context.epoch)
            return sk.RandomSampler(seed=3).draw(layout, context)

    with numbers_loader(sampler=Counted(), **with_workers(workers)) as loader:
        for _ in range(2):
            for step, batch in enumerate(loader):
                assert [index for index, _ in batch] == loader.ids(step).tolist()
                assert len(loader.order) == 10
    assert epochs == [0, 1]


def test_lightning_finds_set_epoch_at_the_sampler_of_the_batch_sampler():
    loader = numbers_loader()
    loader.batch_sampler.sampler.set_epoch(3)
    loader.batch_sampler.set_epoch(loader.epoch + 1)
    assert loader.epoch == 4


def epoch_of(epoch):
    return [epoch_ids(10, epoch)[first : first + 3] for first in range(0, 10, 3)]


@with_threads_too
@pytest.mark.parametrize("options", [{}, {"run_ahead": True}, {"after_break": "continue"}], ids=str)
@pytest.mark.parametrize("batches", [1, 4])
@pytest.mark.parametrize("ended_by", ["its end", "a break", "a second iterator", "close"])
def test_an_epoch_set_during_an_iteration_is_read_next_however_that_ends(ended_by, batches, options):
    for epoch in (1, 5, 0):
        loader = numbers_loader(**options)
        iteration = iter(loader)
        assert [[index for index, _ in next(iteration)] for _ in range(batches)] == epoch_of(0)[:batches]
        loader.set_epoch(epoch)
        assert loader.state_dict()["epoch"] == (epoch if batches == 4 else 0)
        if ended_by == "its end":
            list(iteration)
        elif ended_by == "a break":
            iteration.close()
        elif ended_by == "close":
            loader.close()
        continues = epoch == 0 and batches < 4 and "after_break" in options and ended_by != "its end"
        assert ids_of(loader) == epoch_of(epoch)[batches if continues else 0 :]
        assert ids_of(loader) == epoch_of(epoch + 1)
        assert loader.epoch == epoch + 2


@with_threads_too
@pytest.mark.parametrize("tail", ["pad", "drop", "ragged"])
@pytest.mark.parametrize("size", [0, 3, 7, 24])
def test_a_progress_bar_is_the_same_after_a_resume(size, tail):
    def of_all_ranks(state=None):
        """What the bars of three ranks show in each step: done, to do, in all."""
        shown = []
        for rank in range(3):
            loader = numbers_loader(size, world=sk.World(3, rank), batch_size=2, tail=tail)
            if state is not None:
                loader.load_state_dict(state)
            shown.append([])
            for _ in loader:
                shown[rank].append((loader.epoch_step, loader.remaining, len(loader)))
                assert loader.epoch_step + loader.remaining == len(loader)
            assert (loader.epoch_step, loader.remaining) == (0, len(loader))
        return shown

    expected = of_all_ranks()
    for rank, bar in enumerate(expected):
        steps = len(numbers_loader(size, world=sk.World(3, rank), batch_size=2, tail=tail))
        assert bar == [(step, steps - step, steps) for step in range(1, steps + 1)]
    for step in range(max(map(len, expected))):
        state = numbers_loader(size, world=sk.World(3, 0), batch_size=2, tail=tail).state_dict(step=step)
        assert of_all_ranks(state) == [bar[step:] for bar in expected]


def test_without_a_sampler_a_dataset_is_read_in_its_own_order():
    numbers = Numbers(20)
    assert sk.Loader(numbers, batch_size=5).ids(1).tolist() == [5, 6, 7, 8, 9]
    numbers.default_partial_size = 7
    recipe = sk.RandomSampler(shuffle="partial", partial_size=7)
    expected = list(recipe.order(20))
    assert sk.Loader(numbers, batch_size=20).ids(0).tolist() == expected
    assert list(sk.TorchSampler(None, numbers)) == expected


def test_a_chain_that_shuffles_above_its_child_has_no_lanes_and_is_dealt_like_cards():
    def chain():
        return under(sk.RandomSampler(seed=1), sk.SequentialSampler())

    order = list(chain().order(30))
    for rank in range(3):  # of two lanes, each rank would be dealt neighbours of one
        loader = sk.Loader(range(30), chain(), batch_size=2, world=sk.World(3, rank))
        assert loader.ids(0).tolist() == order[rank:6:3]


def test_the_longest_wait_is_that_of_one_batch_and_not_of_the_first():
    uneven = Made(4, lambda index: time.sleep((0.3, 0.0, 0.2, 0.1)[index]) or index)
    loader = sk.Loader(uneven, sk.SequentialSampler(), batch_size=1)
    waits = []
    for _ in loader:
        waits.append(loader.stats.total_wait - sum(waits))
    stats = loader.stats
    assert stats.first_wait == pytest.approx(waits[0])
    assert stats.longest_wait == pytest.approx(max(waits[1:]))
    assert (stats.epoch, stats.batches, stats.skipped) == (0, 4, 0)
    assert stats.total_wait == pytest.approx(sum(waits))
    assert stats.to_dict()["waiting"] == stats.total_wait / stats.seconds < 1
    assert (stats.first_wait >= 0.3, 0.2 <= stats.longest_wait < sum(waits[1:]) + 1e-9) == (True, True)
    next(iter(loader))
    assert (loader.stats.epoch, loader.stats.batches) == (1, 1)


def test_the_fingerprint_names_the_order_and_nothing_of_the_job():
    fingerprint = numbers_loader(world=sk.World(2, 1)).fingerprint
    assert numbers_loader(world=sk.World(2, 0), batch_size=7).fingerprint == fingerprint
    assert numbers_loader(sampler=sk.RandomSampler(seed=4), world=sk.World(2, 1)).fingerprint != fingerprint
    assert numbers_loader(11, world=sk.World(2, 1)).fingerprint != fingerprint


@pytest.mark.parametrize("workers", [1, "1 threads"])
def test_a_timeout_may_be_as_long_as_one_likes(workers):
    with numbers_loader(timeout=1e15, **with_workers(workers)) as loader:
        assert sum(ids_of(loader), []) == epoch_ids(10)


@with_threads_too
def test_drop_last_means_drop():
    assert numbers_loader(drop_last=True).tail == "drop"
    assert [len(batch) for batch in numbers_loader(drop_last=True)] == [3, 3, 3]


@pytest.mark.parametrize(
    ("name", "value"), [("batch_size", 5), ("dataset", range(3)), ("after_break", "continue")]
)
def test_an_argument_that_would_change_nothing_cannot_be_set(name, value):
    loader = numbers_loader()
    with pytest.raises(sk.ArgumentValueError, match=f"^{name}: cannot be set once the loader is made"):
        setattr(loader, name, value)
    loader.note = 1  # attributes of a user's own can, and again
    loader.note = 2
    assert (loader.note, loader.batch_size) == (2, 3)


def test_torch_warns_of_more_processes_than_processors_but_not_of_threads():
    options = {"batch_size": 1, "num_workers": os.cpu_count() + 1}
    with pytest.warns(UserWarning, match="worker processes in total"):
        sk.Loader(range(3), sk.SequentialSampler(), **options)
    sk.Loader(range(3), sk.SequentialSampler(), workers="threads", **options)
