"""The epochs of a device loader: which one its sampler is set to, and what is loaded of the next one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import samplerkit as sk
from samplerkit.loading.device.loader import DeviceLoader
from tests.loading.device.kinds import BATCH, BATCHES, SIZE, Shuffled, epoch_order, plain, read
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


class Batches(Shuffled):
    def __iter__(self):
        return iter(np.asarray(epoch_order(self.epoch))[:, None].tolist())


SAMPLERS = {
    "a sampler": plain,
    "a batch sampler": lambda: DataLoader(range(SIZE), batch_sampler=Batches()),
    "a sampler of a batch sampler": lambda: DataLoader(
        range(SIZE), batch_sampler=torch.utils.data.BatchSampler(Shuffled(), BATCH, drop_last=False)
    ),
}


@pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)
@pytest.mark.parametrize("run_ahead", [False, True])
def test_set_epoch_reaches_the_sampler_wherever_it_is(make, run_ahead):
    with DeviceLoader(make(), "cpu", run_ahead=run_ahead) as loader:
        for epoch in (0, 1, 2, 7, 8, 3):
            loader.set_epoch(epoch)
            assert read(loader) == epoch_order(epoch)


def test_an_epoch_that_others_set_is_read():
    loader = DeviceLoader(plain(), "cpu")
    for ours, of_others in ((0, 5), (3, 4)):
        loader.set_epoch(ours)
        loader.sampler.set_epoch(of_others)
        assert read(loader) == epoch_order(of_others)
        assert loader.state_dict() == {"schema": 1, "epoch": of_others + 1, "step": 0, "ended": of_others}


def test_run_ahead_continues_by_itself():
    loader = DeviceLoader(plain(), "cpu", run_ahead=True)
    for epoch in range(4):
        assert read(loader) == epoch_order(epoch)
        wait_until(lambda: loader.sampler.set[-1:] == [epoch + 1])  # noqa: B023  # called at once
    loader.close()
    assert loader.sampler.set == [1, 2, 3, 4]


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


@pytest.mark.parametrize("run_ahead", [False, True])
@pytest.mark.parametrize("epoch", [0, 1, 2, 9])
def test_an_epoch_that_is_set_during_an_iteration_reaches_the_sampler(epoch, run_ahead):
    with DeviceLoader(plain(), "cpu", run_ahead=run_ahead) as loader:
        for _ in loader:
            loader.set_epoch(epoch)
        ended = 0 if epoch else None  # the same one is to be read again
        assert loader.state_dict() == {"schema": 1, "epoch": epoch, "step": 0, "ended": ended}
        assert read(loader) == epoch_order(epoch)


def test_a_break_while_running_ahead_goes_back_to_the_epoch():
    loader = DeviceLoader(plain(), "cpu", run_ahead=True, depth=4)
    assert read(loader) == epoch_order(0)
    for number, _ in enumerate(loader):
        if number == BATCHES - 2:
            wait_until(lambda: loader.sampler.epoch == 2)
            break
    assert loader.state_dict() == {"schema": 1, "epoch": 1, "step": BATCHES - 1, "ended": None}
    assert read(loader) == epoch_order(1)
    assert read(loader) == epoch_order(2)
    loader.close()


@pytest.mark.parametrize("number", ["zero", -1, True, None])
def test_a_bad_epoch_is_refused(number):
    with pytest.raises((sk.ArgumentTypeError, sk.ArgumentValueError)):
        DeviceLoader(plain(), "cpu").set_epoch(number)
