"""The device loader over every kind of loader: what is handed out, how it ends, and what it refuses."""

import itertools
import threading
import traceback
import weakref

import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import samplerkit as sk
from samplerkit.loading.device.loader import DeviceLoader
from samplerkit.loading.device.streams import current_device
from tests.loading.device.kinds import (
    BATCH,
    BATCHES,
    KINDS,
    SHUFFLING,
    SIZE,
    loading_threads,
    ours,
    plain,
    read,
    wrap,
)
from tests.numbers import Damaged, Numbers
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_thread_remains")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("run_ahead", [False, True])
def test_every_epoch_has_every_sample_once_in_the_loaders_own_order(kind, run_ahead):
    alone = KINDS[kind]()
    with wrap(kind, run_ahead=run_ahead) as loader:
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


# A dataset that resumes where it is does so without a device loader, too.
@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"torchdata's loader over a stateful stream"}))
@pytest.mark.parametrize("run_ahead", [False, True])
def test_after_an_early_break_the_epoch_begins_again(kind, run_ahead):
    with wrap(kind, run_ahead=run_ahead) as loader:
        expected = read(wrap(kind))
        for taken in (1, 7):
            for number, _ in enumerate(loader, 1):
                if number == taken:
                    break
            wait_until(lambda: loading_threads() == [])  # on a busy machine, each may take its time
        assert read(loader) == expected


class Movable:
    def to(self, *_, **__):
        return self


def test_after_a_break_no_batch_is_held_though_its_tensors_are_unknown():
    batches = []

    def collate(_):
        batches.append(weakref.ref(batch := Movable()))
        return batch

    with DeviceLoader(DataLoader(range(20), 2, collate_fn=collate), "cpu") as loader:
        for _ in loader:
            break
        del _
        wait_until(lambda: not any(batch() for batch in batches))


@pytest.mark.parametrize("kind", KINDS)
def test_an_iteration_is_ended_by_a_newer_one_or_by_close_and_the_loader_can_be_used_again(kind):
    loader = wrap(kind)
    first = iter(loader)
    next(first)
    second = iter(loader)
    next(second)
    with pytest.raises(sk.StateError, match="was ended by a newer one"):
        next(first)
    next(second)
    loader.close()
    assert loading_threads() == []
    with pytest.raises(sk.StateError, match="was ended"):
        next(second)
    if "stream" not in kind:
        assert sorted(read(loader)) == list(range(SIZE))
    loader.close()


@pytest.mark.parametrize("position", [0, 4, 22])
@pytest.mark.parametrize("run_ahead", [False, True])
def test_an_error_of_the_dataset_is_raised_at_its_position(position, run_ahead):
    loader = DeviceLoader(DataLoader(Damaged(sk.Layout(SIZE), [position]), 1), "cpu", run_ahead=run_ahead)
    received = []
    with pytest.raises(OSError, match=f"sample {position} is damaged") as caught:
        received.extend(batch.item() for batch in loader)
    assert received == list(range(position))
    assert "__getitem__" in "".join(traceback.format_exception(caught.value))
    assert loader.state_dict() == {"schema": 1, "epoch": 0, "step": position, "ended": None}
    assert loading_threads() == []


def test_two_threads_never_read_from_one_loader():
    """A load that outlasts the end of its iteration is waited for before the next iteration begins."""

    class Slow:
        def __init__(self):
            self.readers = self.most = 0
            self.continues, self.may_continue = threading.Event(), threading.Event()

        def __iter__(self):
            self.readers += 1
            self.most = max(self.most, self.readers)
            try:
                yield 0
                self.continues.set()
                self.may_continue.wait(20)
                yield 1
            finally:
                self.readers -= 1

    slow = Slow()
    loader = DeviceLoader(slow, "cpu")
    for _ in loader:
        slow.continues.wait(20)
        break
    assert slow.readers == 1
    threading.Timer(0.2, slow.may_continue.set).start()
    assert list(loader) == [0, 1]
    assert slow.most == 1


@pytest.mark.parametrize("run_ahead", [False, True])
def test_an_empty_loader_has_empty_epochs(run_ahead):
    assert DeviceLoader([], "cpu").state_dict() == {"schema": 1, "epoch": 0, "step": 0, "ended": None}
    for empty in ([], DataLoader([], 2), StatefulDataLoader(Numbers(sk.Layout(0)), 2)):
        with DeviceLoader(empty, "cpu", run_ahead=run_ahead) as loader:
            assert [read(loader) for _ in range(5)] == [[]] * 5
            assert loader.stats.batches == 0
            assert loader.state_dict().get("epoch", 5) == 5


def test_an_endless_loader_is_read_for_as_long_as_one_likes():
    class Endless:
        def __iter__(self):
            return itertools.count()

    with DeviceLoader(Endless(), "cpu") as loader:
        assert list(itertools.islice(loader, 100)) == list(range(100))
        assert loader.state_dict()["step"] == 100
        with pytest.raises(TypeError, match="len"):
            len(loader)


def test_attributes_of_the_wrapped_loader_can_be_read():
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


def test_workers_that_the_thread_of_a_stage_may_still_read_are_not_used_for_the_next_iteration():
    is_loading, released = threading.Event(), threading.Event()

    def wait_after_the_first(batch):
        if 0 not in batch:
            is_loading.set()
            assert released.wait(60)
        return batch

    options = {"batch_size": 4, "num_workers": 1, "persistent_workers": True}
    with sk.Loader(range(8), **options) as inner:
        loader = DeviceLoader(inner, "cpu", load=wait_after_the_first)
        for _ in loader:
            before = inner.worker_pids
            assert is_loading.wait(60)
            break
        assert [batch.tolist() for batch in itertools.islice(loader, 1)] == [[0, 1, 2, 3]]
        assert inner.worker_pids != before
        released.set()


def test_load_makes_each_batch_in_the_thread_and_the_state_stays_that_of_the_loader():
    threads = set()

    def doubled(batch):
        threads.add(threading.current_thread().name)
        return batch * 2

    with ours() as alone, ours() as inner, DeviceLoader(inner, "cpu", load=doubled) as loader:
        batches = iter(loader)
        for expected in itertools.islice(alone, 5):
            assert torch.equal(next(batches), expected * 2)
            assert loader.state_dict() == alone.state_dict()
    assert threads == {"samplerkit-device-0"}
    with pytest.raises(sk.ArgumentValueError, match="seed the generators of this process in a background"):
        next(iter(DeviceLoader(ours(seed_draws=True), "cpu", load=doubled)))
    with pytest.raises(sk.ArgumentTypeError, match="load"):
        DeviceLoader([], load="doubled")
    with pytest.raises(sk.ArgumentTypeError, match='must be a bool or "auto", got None'):
        DeviceLoader([], pin_memory=None)


@pytest.mark.skipif(current_device().type != "cpu", reason="there is an accelerator")
def test_without_an_accelerator_batches_stay_on_the_cpu_and_others_are_refused():
    assert DeviceLoader([]).device == torch.device("cpu")
    for options in ({"device": "cuda"}, {"device": "xpu:1"}, {"device": "vulkan"}, {"pin_memory": True}):
        with pytest.raises(sk.ArgumentValueError):
            DeviceLoader([], **options)
    # Of a Loader, None leaves batches where they are.
    with pytest.raises(sk.ArgumentValueError, match="got 'cuda'; take \"cpu\", which is"):
        next(iter(sk.Loader(range(4), batch_size=2, device="cuda")))
