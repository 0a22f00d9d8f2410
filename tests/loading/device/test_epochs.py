"""The epochs of a device loader: which its sampler is set to, what is loaded of the next one; edits."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import samplerkit as sk
from samplerkit.loading.device.loader import DeviceLoader
from tests.loading.device.kinds import BATCH, BATCHES, SIZE, Shuffled, epoch_order, plain, read
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_thread_remains")


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


SAMPLES = list(range(40))


def ledger(*edits):
    return sk.Ledger(sk.SequentialSampler(), edits)


def torch_loader(*edits, kind=torch.utils.data.DataLoader, workers=0):
    sampler = sk.TorchSampler(ledger(*edits), SAMPLES)
    return sk.DeviceLoader(kind(SAMPLES, batch_size=4, sampler=sampler, num_workers=workers), "cpu")


def test_an_edit_applies_after_the_batches_in_flight_to_the_device():
    with sk.DeviceLoader(sk.Loader(SAMPLES, ledger(), batch_size=4), "cpu") as loader:
        batches = iter(loader)
        seen = [next(batches).tolist() for _ in range(2)]
        applied = loader.edit(skip=8)
        seen += [batch.tolist() for batch in batches]
    assert 8 <= applied <= 24
    expected = sk.Ledger(sk.SequentialSampler(), [sk.Edit(at=applied, skip=8)]).order(40)
    assert sum(seen, []) == expected[:].tolist()


@pytest.mark.parametrize("kind", [torch.utils.data.DataLoader, StatefulDataLoader])
def test_another_loader_cannot_be_edited_while_it_reads_and_continues_unchanged(kind):
    with torch_loader(kind=kind) as loader:
        batches = iter(loader)
        seen = next(batches).tolist()
        with pytest.raises(sk.NotSupportedError, match="loader: cannot be edited while it reads"):
            loader.edit(skip=8)
        for batch in batches:
            seen += batch.tolist()
    assert seen == SAMPLES


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stateful_loader_resumes_from_its_state_with_an_edit_after_it(workers):
    with torch_loader(kind=StatefulDataLoader, workers=workers) as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = loader.state_dict()
        batches.close()
    with torch_loader(sk.Edit(at=12, skip=8), kind=StatefulDataLoader, workers=workers) as loader:
        loader.load_state_dict(state)
        seen = [sample for batch in loader for sample in batch.tolist()]
    assert seen == ledger(sk.Edit(at=12, skip=8)).order(40)[12:].tolist()
    with torch_loader(sk.Edit(at=11, skip=8), kind=StatefulDataLoader, workers=workers) as loader:
        loader.load_state_dict(state)
        with pytest.raises(sk.StateError, match="this run has an edit that its run had not"):
            next(iter(loader))
