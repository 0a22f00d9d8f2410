"""A loop that keeps its own epoch in the checkpoint, stopped at every step around two ends of an epoch."""

import json
from functools import partial
from itertools import count

import numpy as np
import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

import samplerkit as sk
from samplerkit.compat.torch import DistributedSampler
from tests.loading.saved_states import as_list, item_ids

SIZE = 12
EPOCHS = 3
RANKS = 2
WORLDS = [sk.World(RANKS, rank) for rank in range(RANKS)]


def numbers_loader(world, **options):
    options = {"batch_size": 2, "world": world, "collate_fn": as_list, **options}
    return sk.Loader(range(SIZE), sk.RandomSampler(seed=3), **options)


def sampler(world):
    return sk.TorchSampler(sk.RandomSampler(seed=3), range(SIZE), world)


def stateful(bridge, **options):
    """A torchdata loader, whose loop sets the epoch of the sampler."""
    loader = StatefulDataLoader(range(SIZE), collate_fn=as_list, **options)
    loader.set_epoch = bridge.set_epoch
    return loader


def below_torchdata(world):
    bridge = sampler(world)
    return stateful(bridge, batch_size=2, sampler=bridge)


def batches_below_torchdata(world):
    bridge = sk.TorchBatchSampler(sampler(world), 2)
    return stateful(bridge, batch_sampler=bridge)


def torchs_below_torchdata(world):
    bridge = DistributedSampler(range(SIZE), world.num_shards, world.shard_id)
    return stateful(bridge, batch_size=2, sampler=bridge)


READERS = {  # others are driven by tests/loading/test_cursor_machine.py and tests/campaigns/ledgers
    "Loader": numbers_loader,
    "DeviceLoader over torchdata": lambda world: sk.DeviceLoader(below_torchdata(world), "cpu"),
    "TorchSampler below torchdata": below_torchdata,
    "TorchBatchSampler below torchdata": batches_below_torchdata,
    "torch's DistributedSampler below torchdata": torchs_below_torchdata,
}


def run_until(make, stop=None, checkpoint=None):
    """One rank of a job: returns the ids of each epoch, and the checkpoint after so many steps in all."""
    reader = make()
    epoch, steps = 0, 0
    if checkpoint is not None:
        saved = json.loads(checkpoint)
        epoch, steps = saved["epoch"], saved["steps"]
        reader.load_state_dict(saved["data"])
    read = [[] for _ in range(EPOCHS)]
    try:
        for number in range(epoch, EPOCHS):
            reader.set_epoch(number)
            for item in reader:
                read[number] += np.ravel(item_ids(item)).tolist()
                steps += 1
                if steps == stop:
                    return read, json.dumps({"epoch": number, "steps": steps, "data": reader.state_dict()})
    finally:
        getattr(reader, "close", lambda: None)()
    return read, None


def test_an_epoch_with_nothing_left_has_no_state_after_a_step():
    loader, again = numbers_loader(sk.World()), numbers_loader(sk.World())
    assert len([*loader]) == 6
    again.load_state_dict(loader.state_dict())
    again.set_epoch(0)
    assert again.state_dict(step=0) == loader.state_dict()
    with pytest.raises(sk.OutOfDatasetError, match=r"step: must be in \[0, 0\], got 1"):
        again.state_dict(step=1)


def test_an_epoch_set_in_its_own_loop_is_followed_by_the_next_one():
    loader = numbers_loader(sk.World())
    for _ in loader:
        loader.set_epoch(0)
        break
    assert loader.state_dict(step=6)["epoch"] == 1


@pytest.mark.parametrize("name", READERS)
def test_a_loop_with_its_own_epoch_stopped_anywhere_reads_each_sample_once_an_epoch(name):
    makes = [partial(READERS[name], world) for world in WORLDS]
    uninterrupted = [run_until(make)[0] for make in makes]
    for epoch in range(EPOCHS):
        assert sorted(id for rank in uninterrupted for id in rank[epoch]) == [*range(SIZE)]
    for make, expected in zip(makes, uninterrupted, strict=True):
        ends = 0
        for stop in count(1):
            before, checkpoint = run_until(make, stop)
            if checkpoint is None:
                break
            ends += before[json.loads(checkpoint)["epoch"]] in expected
            after, _ = run_until(make, checkpoint=checkpoint)
            assert [a + b for a, b in zip(before, after, strict=True)] == expected, stop
        assert ends == EPOCHS, "each epoch was stopped exactly at its end"


def test_a_set_epoch_before_that_of_the_loaded_state_is_logged(caplog):
    loader = numbers_loader(WORLDS[0])
    loader.set_epoch(5)
    state = loader.state_dict(step=1)
    for epoch, warned in [(5, False), (6, False), (2, True)]:
        resumed = numbers_loader(WORLDS[0])
        resumed.load_state_dict(state)
        caplog.clear()
        resumed.set_epoch(epoch)
        assert ("epoch 2 is set and read again: the loaded state is at epoch 5" in caplog.text) == warned
