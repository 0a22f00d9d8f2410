"""What a loader hands out, its attributes, its reports, and the digest that it expects."""

import os
import random
import time

import numpy as np
import pytest
import torch

import samplerkit as sk
from samplerkit.compat import megatron
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


@pytest.mark.parametrize("ranks", [6, 7])
def test_a_run_that_resumes_on_ranks_that_do_not_divide_its_lanes_still_reads_few_files_on_each(ranks):
    def loader(rank, ranks):
        dataset = Made(sk.Layout([10] * 64), int)
        recipe = sk.RandomSampler(shuffle="files", seed=1)
        return sk.Loader(dataset, recipe, batch_size=4, world=sk.World(ranks, rank))

    state = loader(0, 8).state_dict(step=1)
    for rank in range(ranks):
        resumed = loader(rank, ranks)
        resumed.load_state_dict(state)
        ids = [id for step in range(resumed.steps_left) for id in resumed.ids(step).tolist()]
        assert len({id // 10 for id in ids}) <= 28  # dealt like cards: 32, and 64


def test_the_longest_wait_is_that_of_one_batch_and_not_of_the_first():
    uneven = Made(4, lambda index: time.sleep((0.3, 0.0, 0.2, 0.1)[index]) or index)
    loader = sk.Loader(uneven, sk.SequentialSampler(), batch_size=1)
    assert loader.stats.first_wait == 0
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


def read(loader):
    """The ids of an epoch, one after another."""
    return sum(ids_of(loader), [])


def random_states():
    """The states of the generators of this process."""
    numpy_state = np.random.get_state()[1].tolist()  # noqa: NPY002  # what other people's code draws from
    return torch.get_rng_state().tolist(), random.getstate(), numpy_state


@pytest.mark.parametrize("workers", [0, 2, "2 threads"])
def test_reading_another_loader_changes_neither_the_order_nor_the_random_states(workers):
    """torch: a validation epoch changed in which order the training set was read next."""
    train, validation = (
        numbers_loader(20),
        numbers_loader(9, sampler=sk.SequentialSampler(), **with_workers(workers)),
    )
    before = random_states()
    with validation:
        for epoch in range(2):
            assert read(train) == epoch_ids(20, epoch)
            assert read(validation) == list(range(9))
    assert random_states() == before


@pytest.mark.parametrize("persistent", [False, True])
def test_epochs_with_more_workers_than_batches_end(persistent):
    """MosaicML Streaming: the second epoch hung, while some workers were done with the first."""
    with numbers_loader(7, num_workers=5, persistent_workers=persistent, timeout=60) as loader:
        assert [read(loader)[:7] for _ in range(4)] == [epoch_ids(7, epoch) for epoch in range(4)]


@pytest.mark.parametrize(
    "kind", [megatron.MegatronPretrainingSampler, megatron.MegatronPretrainingRandomSampler]
)
def test_consumed_samples_of_megatron_shorten_the_first_epoch_only(kind):
    """Megatron-Bridge, by the replays of Megatron's own samplers."""
    loader = numbers_loader(16, sampler=kind(2, 1, consumed_samples=6), batch_size=2)
    first, *later = (read(loader) for _ in range(3))
    assert len(set(first)) == len(first) == 10
    assert [sorted(epoch) for epoch in later] == [list(range(16))] * 2


def test_each_epoch_has_an_iterator_of_its_own():
    """TorchRec: a pipeline knows a new epoch by a new iterator, and persistent workers kept the old one."""
    with numbers_loader(12, num_workers=2, persistent_workers=True) as loader:
        epochs = [iter(loader)]
        for epoch in range(3):
            assert sum(epochs[-1], []) == [(index, epoch) for index in epoch_ids(12, epoch)]
            assert next(epochs[-1], None) is None
            epochs.append(iter(loader))
        assert len({id(iterator) for iterator in epochs}) == 4


def test_a_resume_reads_nothing_that_was_read_before():
    """transformers: a resume read through all batches that it skipped, for hours."""
    read_ids = []
    dataset = Made(3000, lambda index: read_ids.append(index) or index)
    first, resumed = (sk.Loader(dataset, sk.RandomSampler(seed=3), batch_size=3) for _ in range(2))
    resumed.load_state_dict(first.state_dict(step=990))
    assert sum((batch.tolist() for batch in resumed), []) == epoch_ids(3000, 0)[2970:]
    assert read_ids == epoch_ids(3000, 0)[2970:]


@pytest.mark.parametrize("workers", [2, "2 threads"])
def test_workers_that_live_already_follow_a_state_that_is_loaded(workers):
    """TorchEasyRec: workers that were started before a state was loaded read from the beginning."""
    first = numbers_loader(30)
    batches = iter(first)
    for _ in range(7):
        next(batches)
    with numbers_loader(30, **with_workers(workers), persistent_workers=True) as resumed:
        assert read(resumed) == epoch_ids(30, 0)
        resumed.load_state_dict(first.state_dict())
        assert read(resumed) == epoch_ids(30, 0)[21:]
        assert read(resumed) == epoch_ids(30, 1)


class Expecting:
    """Sample i is (i, how many batches this process still expected, and the calls of `expect` so far)."""

    layout = sk.Layout([8] * 5)
    calls = 0

    def __len__(self):
        return 40

    def expect(self, upcoming):
        self.calls += 1
        self._upcoming = [ids.tolist() for ids in upcoming]

    def __getitems__(self, ids):
        assert self._upcoming.pop(0) == ids.tolist()
        return [(index, len(self._upcoming), self.calls) for index in ids.tolist()]


@pytest.mark.parametrize(
    ("workers", "shuffle", "options"),
    [
        (0, "partial", {}),
        (0, "global", {"run_ahead": True}),
        (2, "global", {}),
        (2, "partial", {"persistent_workers": True}),
        (2, "partial", {"file_affinity": True, "run_ahead": True}),
        (2, "global", {"file_affinity": True, "persistent_workers": True}),
    ],
    ids=str,
)
def test_expect_gets_all_ids_of_a_process_once_an_epoch(workers, shuffle, options):
    sampler = sk.DistributedSampler(2, 1, shuffle=shuffle, partial_size=6, seed=3)
    loader = sk.Loader(Expecting(), sampler, batch_size=3, num_workers=workers, collate_fn=list, **options)
    with loader:
        for epoch in range(3):
            received = [sample for batch in loader for sample in batch]
            assert [index for index, *_ in received] == np.asarray(sampler.order(Expecting(), epoch)).tolist()
            # A worker that is new in each epoch has had no call before.
            is_new = workers and not ("persistent_workers" in options or "run_ahead" in options)
            assert {calls for *_, calls in received} == {1 if is_new else epoch + 1}
            remaining = [count for _, count, _ in received]
            assert remaining.count(0) >= max(1, workers)  # each worker's last batch was its last expected one


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "persistent_workers": True}], ids=str)
def test_expect_gets_only_the_rest_after_a_resume(options):
    with sk.Loader(Expecting(), sk.RandomSampler(), batch_size=4, **options) as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = loader.state_dict()
        loader.close()
        loader.load_state_dict(state)
        assert sum(len(batch[0]) for batch in loader) == 28


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 1}, {"num_workers": 2}, {"num_workers": 2, "file_affinity": True}]
)
def test_expect_gets_the_edited_ids(options):
    ledger = sk.Ledger(sk.RandomSampler(seed=3))
    with sk.Loader(Expecting(), ledger, batch_size=2, collate_fn=list, **options) as loader:
        received = []
        for batch in loader:
            received += [index for index, *_ in batch]
            if loader.step == 2:
                loader.edit(skip=4)
        assert received == loader.sampler.order(Expecting())[:].tolist()
