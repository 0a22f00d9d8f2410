"""The states and epochs of a device loader, over every kind of loader, count what the loop received."""

import copy
import itertools
import pickle
import time

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import samplerkit as sk
from samplerkit.loading.device.loader import DeviceLoader
from tests.loading.device.kinds import (
    BATCH,
    BATCHES,
    KINDS,
    SHUFFLING,
    SIZE,
    Shuffled,
    epoch_order,
    plain,
    read,
    wrap,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_thread_remains")

# After the last batch the states of these are at the end of the epoch, and all others at the beginning of
# the next one: where a length says that it was the last batch, and where samplerkit's sampler does.
AT_THE_END = {
    "a plain loader over a stream",
    "torchdata's loader",
    "torchdata's loader with workers",
    "torchdata's loader over a stateful stream",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("run_ahead", "cut"), [(True, 0), (True, 7), (False, 8)])
def test_a_state_counts_only_what_the_loop_received(kind, run_ahead, cut):
    """However much was loaded ahead, what comes after a restore is the rest: nothing twice, nothing lost."""
    with wrap(kind, run_ahead=run_ahead, depth=3) as loader:
        expected = read(wrap(kind))
        first = []
        batches = iter(loader)
        for batch in itertools.islice(batches, cut):
            first += batch.tolist()
        time.sleep(0.005)
        state = copy.deepcopy(loader.state_dict())
        batches.close()
    with wrap(kind) as resumed:
        resumed.load_state_dict(pickle.loads(pickle.dumps(state)))  # noqa: S301  # ours
        second = read(resumed)
    if cut < BATCHES:
        assert first + second == expected
    else:
        following = list(sk.RandomSampler(seed=5).order(SIZE, 1)) if kind in SHUFFLING else expected
        assert (first, second) == (expected, [] if kind in AT_THE_END else following)


def test_a_restored_state_is_that_state_and_outlasts_set_epoch():
    loader = DeviceLoader(plain(), "cpu")
    loader.load_state_dict({"schema": 1, "epoch": 2, "step": 5, "ended": None})
    assert loader.state_dict() == {"schema": 1, "epoch": 2, "step": 5, "ended": None}
    loader.set_epoch(2)
    assert read(loader) == epoch_order(2)[5 * BATCH :]
    assert loader.state_dict() == {"schema": 1, "epoch": 3, "step": 0, "ended": 2}
    loader.load_state_dict({"schema": 1, "epoch": 2, "step": 5, "ended": None})
    loader.set_epoch(6)
    assert read(loader) == epoch_order(6)


BAD_STATES = {
    "no mapping": ([], "state"),
    "nothing in it": ({}, "state"),
    "a newer schema": ({"schema": 2, "epoch": 0, "step": 0, "ended": None}, "schema"),
    "no step": ({"schema": 1, "epoch": 0, "ended": None}, "state"),
    "a negative step": ({"schema": 1, "epoch": 0, "step": -1, "ended": None}, "step"),
    "a step that is a bool": ({"schema": 1, "epoch": 0, "step": True, "ended": None}, "step"),
    "an epoch that is a text": ({"schema": 1, "epoch": "0", "step": 0, "ended": None}, "epoch"),
}


@pytest.mark.parametrize(("state", "field"), BAD_STATES.values(), ids=BAD_STATES.keys())
def test_a_bad_state_is_refused_by_name(state, field):
    with pytest.raises(sk.StateError) as caught:
        DeviceLoader(plain(), "cpu").load_state_dict(state)
    assert caught.value.field == field


@pytest.mark.parametrize("kind", ["samplerkit's loader", "a plain loader", "torchdata's loader"])
def test_a_state_is_not_loaded_in_the_middle_of_an_iteration(kind):
    with wrap(kind) as loader:
        state = loader.state_dict()
        batches = iter(loader)
        next(batches)
        with pytest.raises(sk.StateError, match="under way"):
            loader.load_state_dict(state)
        batches.close()
        loader.load_state_dict(state)


def test_loaders_with_a_state_keep_their_own_state():
    for kind in ("samplerkit's loader", "torchdata's loader"):
        alone = KINDS[kind]()
        batches = iter(alone)
        with wrap(kind) as loader:
            for _ in itertools.islice(loader, 3):
                next(batches)
                assert loader.state_dict() == alone.state_dict()


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
@pytest.mark.parametrize("cut", [1, BATCHES])
def test_a_stateful_loader_continues_with_the_epochs_after_that_of_its_state(run_ahead, cut):
    kind = "torchdata's loader with samplerkit's sampler"
    with wrap(kind) as first, wrap(kind, run_ahead=run_ahead) as resumed:
        for _ in range(2):
            read(first)
        batches = iter(first)
        for _ in itertools.islice(batches, cut):
            state = first.state_dict()
        batches.close()
        resumed.load_state_dict(state)
        following = [read(resumed) for _ in range(3)][1 if cut < BATCHES else 0 :]
    assert following[:2] == [list(sk.RandomSampler(seed=5).order(SIZE, epoch)) for epoch in (3, 4)]


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("run_ahead", [False, True])
def test_an_epoch_that_is_set_at_the_sampler_after_a_break_is_read(kind, run_ahead):
    with DeviceLoader(kind(range(SIZE), BATCH, sampler=Shuffled()), "cpu", run_ahead=run_ahead) as loader:
        for epoch in (0, 1, 2, 5):
            loader.sampler.set_epoch(epoch)
            assert next(iter(loader)).tolist() == epoch_order(epoch)[:BATCH]


def test_an_epoch_that_is_set_at_the_sampler_after_a_state_was_loaded_is_read_from_its_beginning():
    with DeviceLoader(plain(), "cpu") as loader:
        for epoch, rest in ((2, epoch_order(2)[5 * BATCH :]), (6, epoch_order(6))):
            loader.load_state_dict({"schema": 1, "epoch": 2, "step": 5, "ended": None})
            loader.sampler.set_epoch(epoch)
            assert read(loader) == rest
        loader.load_state_dict({"schema": 1, "epoch": 3, "step": 0, "ended": 2})
        loader.sampler.set_epoch(2)  # it was read to its end
        assert read(loader) == []


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
        with pytest.raises(AttributeError, match="edit"):
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
        with pytest.raises(sk.StateError, match="is not the same as in the saved run"):
            next(iter(loader))
