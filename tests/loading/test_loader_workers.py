"""The workers of a loader: what they draw, how they fail and end; and what copies of a loader share."""

import copy
import gc
import multiprocessing
import os
import pickle
import random
import threading
import time
import traceback

import numpy as np
import pytest
import torch
from torch.utils.data import get_worker_info

import samplerkit as sk
from tests.loading.device import kinds
from tests.loading.numbers import Numbers, epoch_ids, ids_of, numbers_loader
from tests.loading.worker_kinds import THREADS, with_workers
from tests.numbers import Damaged, Made
from tests.numbers import Numbers as InFiles
from tests.waiting import LoadFreeTimer, alive, threads_of_loaders, wait_until


def drawn_here(_):
    return torch.rand(()).item(), np.random.random(), random.random()  # noqa: NPY002


AT_START = []


class Drawn(Numbers):
    """Sample i is what three generators give in its process, what they gave at its start, and the process."""

    def __getitem__(self, index):
        return *drawn_here(index), AT_START[0], os.getpid()


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_draw_different_numbers_and_repeat_them_after_a_restart(persistent):
    """A dataset of one file is read by all workers, too."""

    def drawn(rank):
        options = {"num_workers": 2, "persistent_workers": persistent, "world": sk.World(2, rank)}
        options["worker_init_fn"] = lambda number: AT_START.append(drawn_here(number))
        with sk.Loader(
            Drawn(8), sk.RandomSampler(seed=1), batch_size=2, collate_fn=list, **options
        ) as loader:
            samples = [sample for _ in range(2) for batch in loader for sample in batch]
        assert len({pid for *_, pid in samples}) == (2 if persistent else 4)
        assert len({value for *_, values, _ in samples for value in values}) == 3 * 2
        return [values for *values, _, _ in samples]

    first, again, other = drawn(0), drawn(0), drawn(1)
    assert first == again
    assert len({value for values in first + other for value in values}) == 3 * 16


def test_a_worker_seeds_the_generators_of_devices_too(monkeypatch):
    """As those of torch's DataLoader: a spawned worker may draw there."""
    seeds = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: False)  # as in a spawned worker

    class Seeds(Numbers):
        def __getitem__(self, index):
            return seeds[-1], torch.initial_seed(), get_worker_info().seed

    with sk.Loader(Seeds(4), batch_size=2, num_workers=2, collate_fn=list) as loader:
        [(first, seed, base)], [(second, other, next_base)] = (set(batch) for batch in loader)
    assert (first, second) == (seed, other)
    assert seed != other
    assert next_base == base + 1


def test_no_worker_starts_before_an_iteration_however_many_are_allowed():
    assert sk.Loader(range(4), batch_size=1, num_workers=4096).worker_pids == []


@pytest.mark.parametrize("workers", [2, "2 threads"])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("end", ["close", "break"])
def test_closing_and_breaking_end_the_workers(workers, persistent, end):
    loader = numbers_loader(60, persistent_workers=persistent, **with_workers(workers))
    batches = iter(loader)
    next(batches)
    pids, threads = loader.worker_pids, threads_of_loaders()
    assert (len(pids), len(threads)) == ((2, 0) if workers == 2 else (0, 2))
    if end == "break":
        del batches
        assert (threads_of_loaders(), alive(pids)) == ((threads, pids) if persistent else ([], []))
        if persistent:
            assert len(ids_of(loader)) == 20  # the same workers, from the beginning
            assert (threads_of_loaders(), loader.worker_pids) == (threads, pids)
    if end == "close" or persistent:
        loader.close()
    assert (threads_of_loaders(), alive(pids)) == ([], [])
    if end == "close":
        with pytest.raises(sk.StateError, match="close"):
            next(batches)
    assert len(ids_of(loader)) == 20
    loader.close()


class Stuck(Numbers):
    """Samples from the fifth on wait until they are released."""

    def __init__(self, size):
        super().__init__(size)
        self.released = threading.Event()

    def __getitem__(self, index):
        if index >= 4:
            self.released.wait()
        return index


def stuck_loader(**options):
    return sk.Loader(Stuck(20), sk.SequentialSampler(), batch_size=2, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 2},
        {"num_workers": 2, "device": "cpu"},
        THREADS,
        {**THREADS, "device": "cpu"},
        {**THREADS, "persistent_workers": True},
    ],
)
def test_a_break_waits_no_longer_than_two_seconds_for_a_sample_that_hangs(options):
    loader = stuck_loader(**options)
    for _ in loader:
        pids = loader.worker_pids
        with LoadFreeTimer() as timer:
            loader.close()
        break
    assert timer.seconds < 2
    assert alive(pids) == []
    loader.dataset.released.set()
    wait_until(lambda: not threads_of_loaders())
    assert [i for batch in loader for i in batch.tolist()] == list(range(20))
    loader.close()


@pytest.mark.parametrize("workers", [2, "2 threads"])
@pytest.mark.usefixtures("no_hang")
def test_a_batch_that_does_not_come_in_time_is_a_typed_error(workers):
    loader, received = stuck_loader(timeout=50, **with_workers(workers)), []
    with pytest.raises(sk.WorkerError, match=r"timeout: has passed while .* got 0\.2"):
        for batch in loader:
            received += batch.tolist()
            if len(received) == 4:  # to begin may take workers long
                loader._workers._open.workers.timeout = 0.2
    assert received == [0, 1, 2, 3]
    loader.dataset.released.set()


SIZE, BATCH_SIZE, CUT = 60, 3, 7


def uneven(index):
    """Every twelfth sample takes long, so that workers finish out of turn."""
    if index % 12 == 0:
        time.sleep(0.05)
    return index


def loader(workers):
    options = with_workers(workers)
    return sk.Loader(Made(SIZE, uneven), sk.RandomSampler(seed=3), batch_size=BATCH_SIZE, **options)


def test_a_program_that_terminates_its_child_processes_ends_the_workers():
    loader = numbers_loader(1000, num_workers=2)
    batches = iter(loader)
    next(batches)
    workers = [child for child in multiprocessing.active_children() if child.pid in loader.worker_pids]
    assert len(workers) == 2
    for worker in workers:
        worker.terminate()
        worker.join(20)
        assert worker.exitcode is not None
    with pytest.raises(sk.WorkerError, match="a worker process died"):
        list(batches)


@pytest.mark.parametrize(
    ("workers", "new_workers"),
    [(0, 3), (2, 1), (2, "2 threads"), ("3 threads", 2), ("2 threads", 0)],
)
def test_a_resume_with_other_workers_continues_in_the_same_order(workers, new_workers):
    received = []
    with loader(workers) as first:
        for batch in first:
            received.append(batch.tolist())
            assert received[-1] == first.ids(first.step - 1).tolist()
            assert first.state_dict()["position"] == BATCH_SIZE * len(received)
            if len(received) == CUT:
                break
        state = first.state_dict()
    with loader(new_workers) as second:
        second.load_state_dict(state)
        epochs = [[batch.tolist() for batch in second] for _ in range(3)]
    epochs[0] = received + epochs[0]
    # Of the later epochs nothing is left out.
    for epoch, batches in enumerate(epochs):
        assert sum(batches, []) == epoch_ids(SIZE, epoch)


def exhausted(index):
    """Calls next of an iterator that is at its end."""
    return index if index < 4 else next(iter(()))


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("workers", [0, 1, "1 threads", "2 threads"])
def test_a_stop_iteration_of_the_dataset_is_an_error_in_any_kind_of_worker(workers, device):
    received = []
    with (
        sk.Loader(Made(8, exhausted), batch_size=2, device=device, **with_workers(workers)) as loader,
        pytest.raises(RuntimeError, match="generator raised StopIteration") as caught,
    ):
        for batch in loader:
            received += batch.tolist()
    assert received == [0, 1, 2, 3]
    assert "while reading sample 4" in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"persistent_workers": True},
        {"run_ahead": True},
        {"persistent_workers": True, "device": "cpu"},
        {"persistent_workers": True, "file_affinity": True},
    ],
    ids=str,
)
def test_worker_processes_end_with_their_loader_without_garbage_collection(options, ends):
    gc.disable()
    try:
        dataset = InFiles(sk.Layout([8, 8]))
        loader = sk.Loader(dataset, batch_size=2, num_workers=2, **options)
        for _ in loader:
            pids = loader.worker_pids
            if not ends:
                break
        del loader
        wait_until(lambda: not alive(pids), seconds=20)
    finally:
        gc.enable()


IDS = list(range(23))


def pickled(loader):
    return pickle.loads(pickle.dumps(loader))  # noqa: S301  # ours


def plain(**options):
    return sk.Loader(IDS, sk.RandomSampler(seed=3), batch_size=4, **options)


def packed():
    recipe = sk.PackBatches(12, lengths=[3, 5, 1, 9, 2] * 4)
    return sk.Loader(IDS[:20], sk.RandomSampler(seed=3), batches=recipe, tail="split", collate_fn=list)


def on_device(loader, **options):
    return sk.DeviceLoader(loader, "cpu", **options)


def by_torch():
    return torch.utils.data.DataLoader(
        IDS, batch_sampler=sk.TorchBatchSampler(sk.TorchSampler(sk.RandomSampler(seed=3), IDS), 4)
    )


LOADERS = {
    "plain": plain,
    "continues": lambda: plain(after_break="continue"),
    "persistent workers": lambda: plain(num_workers=1, persistent_workers=True),
    "threads": lambda: plain(**THREADS),
    "device": lambda: plain(device="cpu"),
    "run ahead": lambda: plain(num_workers=1, run_ahead=True),
    "packs": packed,
    "tensors": lambda: sk.TensorLoader(torch.arange(23), sk.RandomSampler(seed=3), batch_size=4),
    "device loader": lambda: on_device(plain(), run_ahead=True),
    "device loader of torch's": lambda: on_device(by_torch()),
    "device loader of a sampler without a state": lambda: on_device(kinds.plain(), run_ahead=True),
}


def read(batches):
    return [torch.as_tensor(batch).tolist() for batch in batches]


@pytest.mark.parametrize(
    ("name", "copied"), [*((name, pickled) for name in LOADERS), ("plain", copy.deepcopy)]
)
def test_a_copy_has_the_position_of_the_loader_and_neither_moves_the_other(name, copied):
    loader = LOADERS[name]()
    close = getattr(loader, "close", lambda: None)
    try:
        unstarted = copied(loader)
        assert unstarted.state_dict() == loader.state_dict()
        batches = iter(loader)
        received = read(next(batches) for _ in range(2))
        mid_epoch = copied(loader)
        assert mid_epoch.state_dict() == loader.state_dict()
        mid_epoch.load_state_dict(loader.state_dict())  # no iteration of its own is under way
        rest = read(mid_epoch)
        assert read(batches) == rest
        assert read(unstarted) == received + rest
        assert sorted(sum(received + rest, [])) == IDS[: len(sum(received + rest, []))]
        assert mid_epoch.state_dict() == loader.state_dict()

        for _ in loader:
            break
        after_break = copied(loader)
        assert after_break.state_dict() == loader.state_dict()
        assert read(after_break) == read(loader)

        at_the_end = copied(loader)
        assert at_the_end.state_dict() == loader.state_dict()
        assert read(at_the_end) == read(loader)
    finally:
        close()


def test_a_copy_knows_what_was_skipped():
    loader = sk.Loader(Damaged(sk.Layout(12), [1]), sk.SequentialSampler(), batch_size=3, bad_samples="skip")
    next(iter(loader))
    copied = pickled(loader)
    assert copied.skipped == loader.skipped != ()
    assert copied.ids(0).tolist() == loader.ids(0).tolist() == [0, 2]
