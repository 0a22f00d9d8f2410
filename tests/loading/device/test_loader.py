"""The device loader over every kind of loader: what is handed out, what the state says, how it ends."""

from __future__ import annotations

import copy
import gc
import itertools
import json
import pickle
import threading
import time
import traceback

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import samplerkit as sk
from samplerkit.loading.device.loader import DeviceLoader
from samplerkit.loading.device.streams import current_device
from tests.loading.device.threads import loading_threads
from tests.waiting import wait_until

SIZE, BATCH = 23, 3
BATCHES = 8


class Shuffled(torch.utils.data.Sampler):
    """As torch's distributed sampler: another order for each epoch that it is told."""

    def __init__(self):
        self.epoch = 0
        self.told = []

    def __len__(self):
        return SIZE

    def __iter__(self):
        yield from np.random.default_rng(self.epoch).permutation(SIZE).tolist()

    def set_epoch(self, epoch):
        self.told.append(epoch)
        self.epoch = epoch


class Stream(IterableDataset):
    """Has no length and no state."""

    def __iter__(self):
        return iter(range(SIZE))


class StatefulStream(IterableDataset):
    """Goes on where its state stands."""

    def __init__(self):
        self.at = 0

    def __iter__(self):
        while self.at < SIZE:
            self.at += 1
            yield self.at - 1
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def epoch_order(epoch):
    return np.random.default_rng(epoch).permutation(SIZE).tolist()


def read(loader):
    return [sample for batch in loader for sample in batch.tolist()]


def ours(**options):
    return sk.Loader(range(SIZE), sk.RandomSampler(seed=5), batch_size=BATCH, **options)


def plain(**options):
    return DataLoader(range(SIZE), BATCH, sampler=Shuffled(), **options)


KINDS = {
    "samplerkit's loader": ours,
    "samplerkit's loader with workers": lambda: ours(num_workers=2, persistent_workers=True),
    "a plain loader": lambda: DataLoader(range(SIZE), BATCH),
    "a plain loader with workers": lambda: DataLoader(range(SIZE), BATCH, num_workers=2),
    "a plain loader over a stream": lambda: DataLoader(Stream(), BATCH),
    "a plain loader with samplerkit's sampler": lambda: DataLoader(
        range(SIZE), BATCH, sampler=sk.TorchSampler(sk.RandomSampler(seed=5), range(SIZE))
    ),
    "torchdata's loader": lambda: StatefulDataLoader(range(SIZE), BATCH),
    "torchdata's loader with workers": lambda: StatefulDataLoader(range(SIZE), BATCH, num_workers=2),
    "torchdata's loader over a stateful stream": lambda: StatefulDataLoader(StatefulStream(), BATCH),
    "torchdata's loader with samplerkit's sampler": lambda: StatefulDataLoader(
        range(SIZE), BATCH, sampler=sk.TorchSampler(sk.RandomSampler(seed=5), range(SIZE))
    ),
    "a list": lambda: list(torch.arange(SIZE).split(BATCH)),
}
SHUFFLING = {name for name in KINDS if "samplerkit" in name}
# After the last batch the states of these stand at the end of the epoch, and all others at the beginning of
# the next one: where a length tells that it was the last batch, and where samplerkit's sampler does.
AT_THE_END = {
    "a plain loader over a stream",
    "torchdata's loader",
    "torchdata's loader with workers",
    "torchdata's loader over a stateful stream",
}


def made(kind, **options):
    return DeviceLoader(KINDS[kind](), "cpu", **options)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    gc.collect()
    wait_until(lambda: loading_threads() == [])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("run_ahead", [False, True])
def test_every_epoch_has_every_sample_once_in_the_loaders_own_order(kind, run_ahead):
    alone = KINDS[kind]()
    with made(kind, run_ahead=run_ahead) as loader:
        before = None
        for epoch in range(3):
            samples = read(loader)
            assert sorted(samples) == list(range(SIZE))
            # torchdata's loader does not reset the position of samplerkit's sampler by itself.
            if not run_ahead:
                assert samples == read(alone)
            assert loader.stats.batches == BATCHES
            if kind in SHUFFLING and epoch:
                assert samples != before
            before = samples
    if hasattr(alone, "close"):
        alone.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("run_ahead", [False, True])
@pytest.mark.parametrize(
    "cut", [0, 2, 7, 8, *(pytest.param(cut, marks=pytest.mark.campaign) for cut in (1, 3, 4, 5, 6))]
)
def test_a_state_counts_only_what_the_loop_received(kind, run_ahead, cut):
    """However much was loaded ahead, what comes after a restore is the rest: nothing twice, nothing lost."""
    with made(kind, run_ahead=run_ahead, depth=3) as loader:
        whole = read(made(kind))
        first = []
        batches = iter(loader)
        for batch in itertools.islice(batches, cut):
            first += batch.tolist()
        time.sleep(0.005)
        state = copy.deepcopy(loader.state_dict())
        batches.close()
    with made(kind) as resumed:
        resumed.load_state_dict(pickle.loads(pickle.dumps(state)))  # noqa: S301  # ours
        second = read(resumed)
    if cut < BATCHES:
        assert first + second == whole
    else:
        following = list(sk.RandomSampler(seed=5).order(SIZE, 1)) if kind in SHUFFLING else whole
        assert (first, second) == (whole, [] if kind in AT_THE_END else following)


# A dataset that goes on where it stands does so without a device loader, too.
@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"torchdata's loader over a stateful stream"}))
@pytest.mark.parametrize("run_ahead", [False, True])
def test_after_an_early_break_the_epoch_begins_anew(kind, run_ahead):
    with made(kind, run_ahead=run_ahead) as loader:
        whole = read(made(kind))
        for taken in (1, 7):
            for number, _ in enumerate(loader, 1):
                if number == taken:
                    break
            assert loading_threads() == []
        assert read(loader) == whole


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_iterator_ends_the_first(kind):
    with made(kind) as loader:
        first = iter(loader)
        next(first)
        second = iter(loader)
        next(second)
        with pytest.raises(sk.StateError, match="was ended by a newer one"):
            next(first)
        next(second)


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_loader_can_be_used_again(kind):
    loader = made(kind)
    batches = iter(loader)
    next(batches)
    loader.close()
    assert loading_threads() == []
    with pytest.raises(sk.StateError, match="was ended"):
        next(batches)
    if "stream" not in kind:
        assert sorted(read(loader)) == list(range(SIZE))
    loader.close()


@pytest.mark.parametrize("kind", ["samplerkit's loader", "a plain loader", "torchdata's loader"])
def test_a_loader_that_becomes_garbage_ends_its_thread(kind):
    loader = made(kind, run_ahead=True)
    read(loader)
    batches = iter(loader)
    next(batches)
    assert len(loading_threads()) == 1
    del loader, batches
    gc.collect()
    wait_until(lambda: loading_threads() == [])


@pytest.mark.parametrize("run_ahead", [False, True])
def test_the_sampler_is_told_the_epoch(run_ahead):
    loader = DeviceLoader(plain(), "cpu", run_ahead=run_ahead)
    for epoch in (0, 1, 2, 7, 8, 3):
        loader.set_epoch(epoch)
        assert read(loader) == epoch_order(epoch)
    loader.close()


def test_an_epoch_that_the_sampler_was_told_by_others_is_read():
    loader = DeviceLoader(plain(), "cpu")
    for ours, of_others in ((0, 5), (3, 4)):
        loader.set_epoch(ours)
        loader.sampler.set_epoch(of_others)
        assert read(loader) == epoch_order(of_others)
        assert loader.state_dict() == {"schema": 1, "epoch": of_others + 1, "step": 0}


def test_run_ahead_goes_on_without_being_told():
    loader = DeviceLoader(plain(), "cpu", run_ahead=True)
    for epoch in range(4):
        assert read(loader) == epoch_order(epoch)
        wait_until(lambda: loader.sampler.told[-1:] == [epoch + 1])  # noqa: B023  # called at once
    loader.close()
    assert loader.sampler.told == [1, 2, 3, 4]


def test_run_ahead_has_the_next_epochs_batches_before_they_are_asked_for():
    loaded = []

    class Noting(torch.utils.data.Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            loaded.append(index)
            return index

    loader = DeviceLoader(DataLoader(Noting(), 2), "cpu", run_ahead=True)
    read(loader)
    wait_until(lambda: len(loaded) == 6 + 4)
    read(loader)
    loader.close()


def test_run_ahead_keeps_the_workers():
    batches = DataLoader(Pids(), 1, num_workers=2, persistent_workers=True)
    with DeviceLoader(batches, "cpu", run_ahead=True) as loader:
        assert len({pid for _ in range(4) for pid in read(loader)}) == 2


class Pids(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.utils.data.get_worker_info().id


def test_set_epoch_during_an_iteration_holds_at_its_end():
    loader = DeviceLoader(plain(), "cpu", run_ahead=True)
    for number, _ in enumerate(loader):
        if number == 3:
            loader.set_epoch(9)
        at_the_end = loader.state_dict()
    assert at_the_end == {"schema": 1, "epoch": 9, "step": 0}
    assert read(loader) == epoch_order(9)
    loader.close()


@pytest.mark.parametrize("run_ahead", [False, True])
@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_an_epoch_that_is_set_during_an_iteration_reaches_the_sampler(epoch, run_ahead):
    with DeviceLoader(plain(), "cpu", run_ahead=run_ahead) as loader:
        for _ in loader:
            loader.set_epoch(epoch)
        assert loader.state_dict() == {"schema": 1, "epoch": epoch, "step": 0}
        assert read(loader) == epoch_order(epoch)


def test_a_loop_that_is_left_at_its_last_batch_goes_on_as_its_state_says():
    with DeviceLoader(plain(), "cpu") as loader:
        for number, _ in enumerate(loader, 1):
            if number == BATCHES:
                break
        assert loader.state_dict() == {"schema": 1, "epoch": 1, "step": 0}
        assert read(loader) == epoch_order(1)


def test_a_break_while_running_ahead_goes_back_to_the_epoch():
    loader = DeviceLoader(plain(), "cpu", run_ahead=True, depth=4)
    assert read(loader) == epoch_order(0)
    for number, _ in enumerate(loader):
        if number == BATCHES - 2:
            wait_until(lambda: loader.sampler.epoch == 2)
            break
    assert loader.state_dict() == {"schema": 1, "epoch": 1, "step": BATCHES - 1}
    assert read(loader) == epoch_order(1)
    assert read(loader) == epoch_order(2)
    loader.close()


def test_samplers_of_every_place_are_told():
    class Batches(Shuffled):
        def __iter__(self):
            return iter(np.asarray(epoch_order(self.epoch))[:, None].tolist())

    sampler, batches = Shuffled(), Batches()
    for given in (
        DataLoader(range(SIZE), batch_sampler=torch.utils.data.BatchSampler(sampler, BATCH, drop_last=False)),
        DataLoader(range(SIZE), batch_sampler=batches),
    ):
        loader = DeviceLoader(given, "cpu")
        loader.set_epoch(4)
        assert read(loader) == epoch_order(4)


def test_the_plain_state_is_small_json_and_moves_on_at_the_end():
    loader = DeviceLoader(plain(), "cpu")
    loader.set_epoch(4)
    states = [loader.state_dict()] + [loader.state_dict() for _ in loader] + [loader.state_dict()]
    steps = [(4, step) for step in range(BATCHES)] + [(5, 0), (5, 0)]
    assert [(state["epoch"], state["step"]) for state in json.loads(json.dumps(states))] == steps


def test_a_restored_state_is_that_state_and_stands_set_epoch():
    loader = DeviceLoader(plain(), "cpu")
    loader.load_state_dict({"schema": 1, "epoch": 2, "step": 5})
    assert loader.state_dict() == {"schema": 1, "epoch": 2, "step": 5}
    loader.set_epoch(2)
    assert read(loader) == epoch_order(2)[5 * BATCH :]
    assert loader.state_dict() == {"schema": 1, "epoch": 3, "step": 0}
    loader.load_state_dict({"schema": 1, "epoch": 2, "step": 5})
    loader.set_epoch(6)
    assert read(loader) == epoch_order(6)


BAD_STATES = {
    "no mapping": ([], "state"),
    "nothing in it": ({}, "schema"),
    "a newer schema": ({"schema": 2, "epoch": 0, "step": 0}, "schema"),
    "no step": ({"schema": 1, "epoch": 0}, "step"),
    "a negative step": ({"schema": 1, "epoch": 0, "step": -1}, "step"),
    "a step that is a bool": ({"schema": 1, "epoch": 0, "step": True}, "step"),
    "an epoch that is a text": ({"schema": 1, "epoch": "0", "step": 0}, "epoch"),
}


@pytest.mark.parametrize(("state", "field"), BAD_STATES.values(), ids=BAD_STATES.keys())
def test_a_bad_state_is_refused_by_name(state, field):
    with pytest.raises(sk.StateError) as caught:
        DeviceLoader(plain(), "cpu").load_state_dict(state)
    assert caught.value.field == field


@pytest.mark.parametrize("kind", ["samplerkit's loader", "a plain loader", "torchdata's loader"])
def test_a_state_is_not_loaded_in_the_middle_of_an_iteration(kind):
    with made(kind) as loader:
        state = loader.state_dict()
        batches = iter(loader)
        next(batches)
        with pytest.raises(sk.StateError, match="under way"):
            loader.load_state_dict(state)
        batches.close()
        loader.load_state_dict(state)


def test_the_state_of_ours_and_of_torchdatas_loader_are_their_own():
    for kind in ("samplerkit's loader", "torchdata's loader"):
        alone = KINDS[kind]()
        batches = iter(alone)
        with made(kind) as loader:
            for _ in itertools.islice(loader, 3):
                next(batches)
                assert loader.state_dict() == alone.state_dict()


# With workers, torch takes five seconds to end them after an error, also without a device loader.
@pytest.mark.parametrize(
    ("position", "workers", "run_ahead"),
    [*((position, 0, ahead) for position in (0, 4, 22) for ahead in (False, True)), (4, 1, True)],
)
def test_an_error_of_the_dataset_is_raised_at_its_position(position, workers, run_ahead):
    loader = DeviceLoader(DataLoader(Damaged(position), 1, num_workers=workers), "cpu", run_ahead=run_ahead)
    received = []
    with pytest.raises(OSError, match=f"sample {position} is damaged") as caught:
        received.extend(batch.item() for batch in loader)
    assert received == list(range(position))
    assert "__getitem__" in "".join(traceback.format_exception(caught.value))
    assert loader.state_dict() == {"schema": 1, "epoch": 0, "step": position}
    assert loading_threads() == []


class Damaged(torch.utils.data.Dataset):
    def __init__(self, position):
        self.position = position

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        if index == self.position:
            raise OSError(f"sample {index} is damaged")
        return index


def test_two_threads_never_read_from_one_loader():
    """A load that outlasts the end of its iteration is waited for before the next iteration begins."""

    class Slow:
        def __init__(self):
            self.readers = self.most = 0
            self.goes_on, self.may_go_on = threading.Event(), threading.Event()

        def __iter__(self):
            self.readers += 1
            self.most = max(self.most, self.readers)
            try:
                yield 0
                self.goes_on.set()
                self.may_go_on.wait(20)
                yield 1
            finally:
                self.readers -= 1

    slow = Slow()
    loader = DeviceLoader(slow, "cpu")
    for _ in loader:
        slow.goes_on.wait(20)
        break
    assert slow.readers == 1
    threading.Timer(0.2, slow.may_go_on.set).start()
    assert list(loader) == [0, 1]
    assert slow.most == 1


def test_an_error_of_the_loop_ends_the_thread():
    loader = DeviceLoader(plain(), "cpu")
    with pytest.raises(ValueError, match="mine"):
        for _ in loader:
            raise ValueError("mine")
    gc.collect()
    assert loading_threads() == []


@pytest.mark.parametrize("run_ahead", [False, True])
def test_an_empty_loader_has_empty_epochs(run_ahead):
    for empty in ([], DataLoader([], 2), StatefulDataLoader(Empty(), 2)):
        with DeviceLoader(empty, "cpu", run_ahead=run_ahead) as loader:
            assert [read(loader) for _ in range(5)] == [[]] * 5
            assert loader.stats.batches == 0


class Empty(torch.utils.data.Dataset):
    def __len__(self):
        return 0


def test_an_endless_loader_is_read_for_as_long_as_one_likes():
    class Endless:
        def __iter__(self):
            return itertools.count()

    with DeviceLoader(Endless(), "cpu") as loader:
        assert list(itertools.islice(loader, 100)) == list(range(100))
        assert loader.state_dict()["step"] == 100
        with pytest.raises(TypeError, match="len"):
            len(loader)


def test_none_batches_are_batches():
    loader = DeviceLoader(DataLoader(range(4), 2, collate_fn=lambda samples: None), "cpu")
    assert list(loader) == [None, None]


def test_what_the_loader_has_can_be_read_here():
    batches = plain(drop_last=True)
    loader = DeviceLoader(batches, "cpu")
    assert loader.dataset is batches.dataset
    assert loader.sampler is batches.sampler
    assert loader.batch_sampler == batches.batch_sampler
    assert (loader.batch_size, loader.drop_last, len(loader)) == (BATCH, True, SIZE // BATCH)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = loader.nothing_like_it
    with ours(num_workers=0) as running:
        counted = DeviceLoader(running, "cpu")
        for number, _ in enumerate(counted, 1):
            assert counted.step == number
            assert counted.pads(counted.step - 1).shape == (min(BATCH, SIZE - BATCH * (number - 1)),)


BAD = {
    "no loader": ({"loader": 3}, sk.ArgumentTypeError),
    "a depth of 0": ({"depth": 0}, sk.ArgumentRangeError),
    "a bool as depth": ({"depth": True}, sk.ArgumentTypeError),
    "a text as run_ahead": ({"run_ahead": "yes"}, sk.ArgumentTypeError),
    "a number as device": ({"device": 1.5}, sk.ArgumentTypeError),
    "no such device": ({"device": "gpu"}, sk.ArgumentValueError),
    "an unknown word for pinning": ({"pin_memory": "yes"}, sk.ArgumentValueError),
}


@pytest.mark.parametrize(("options", "error"), BAD.values(), ids=BAD.keys())
def test_a_bad_argument_is_refused_by_name(options, error):
    with pytest.raises(error) as caught:
        DeviceLoader(**{"loader": [], **options})
    assert caught.value.place == next(iter(options))


def test_a_device_loader_is_not_wrapped_again():
    with pytest.raises(sk.ArgumentTypeError, match="already"):
        DeviceLoader(DeviceLoader([], "cpu"), "cpu")


@pytest.mark.parametrize("number", ["zero", -1, True, None])
def test_a_bad_epoch_is_refused(number):
    with pytest.raises((sk.ArgumentTypeError, sk.ArgumentValueError)):
        DeviceLoader(plain(), "cpu").set_epoch(number)


@pytest.mark.skipif(current_device().type != "cpu", reason="there is an accelerator")
def test_without_an_accelerator_batches_stay_on_the_cpu():
    assert DeviceLoader([]).device == torch.device("cpu")
    assert {thread.name for thread in threading.enumerate()} >= {"MainThread"}
