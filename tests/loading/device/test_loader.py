"""The device loader over every kind of loader: what is handed out, how it ends, and what it refuses."""

from __future__ import annotations

import gc
import itertools
import threading
import traceback

import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import samplerkit as sk
from samplerkit.loading.device.loader import DeviceLoader
from samplerkit.loading.device.streams import current_device
from tests.loading.device.kinds import BATCH, BATCHES, KINDS, SHUFFLING, SIZE, made, ours, plain, read
from tests.loading.device.threads import loading_threads
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


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


@pytest.mark.skipif(current_device().type != "cpu", reason="there is an accelerator")
def test_without_an_accelerator_batches_stay_on_the_cpu():
    assert DeviceLoader([]).device == torch.device("cpu")
    assert {thread.name for thread in threading.enumerate()} >= {"MainThread"}
