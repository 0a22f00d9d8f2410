"""Batches of a plan through torch's and torchdata's loaders."""

from __future__ import annotations

import json

import pytest
import torch
import torch.distributed
from torchdata.stateful_dataloader import StatefulDataLoader

import samplerkit as sk
from tests.loading.batch_loaders import RECIPE, SAMPLERS, SIZE, Noisy, loader


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["global", "windows"])
def test_torchdata_resumes_batches_exactly(kind, workers):
    make, recipe = SAMPLERS[kind]

    def stateful():
        sampler = sk.TorchSampler(make(), range(SIZE), sk.World(3, 1))
        batches = sk.TorchBatchSampler(sampler, batches=recipe, tail="split")
        return StatefulDataLoader(range(SIZE), batch_sampler=batches, num_workers=workers)

    whole = [batch.tolist() for batch in stateful()]
    first = stateful()
    batches = iter(first)
    received = [next(batches).tolist() for _ in range(4)]
    state = json.loads(json.dumps(first.state_dict())) if not workers else first.state_dict()
    resumed = stateful()
    resumed.load_state_dict(state)
    assert received + [batch.tolist() for batch in resumed] == whole


def test_a_sampler_counts_samples_or_batches_and_never_both():
    sampler = sk.TorchSampler(sk.RandomSampler(), range(SIZE), sk.World(3, 1))
    next(iter(sampler))
    with pytest.raises(sk.ArgumentValueError, match="has begun"):
        sk.TorchBatchSampler(sampler, batches=RECIPE)
    sampler = sk.TorchSampler(sk.RandomSampler(), range(SIZE), sk.World(3, 1))
    samples = sampler.state_dict()
    batches = sk.TorchBatchSampler(sampler, batches=RECIPE, drop_last=True)
    assert batches.state_dict()["tail"] == "drop"
    with pytest.raises(sk.StateError) as caught:
        batches.load_state_dict({**samples})
    assert caught.value.field in ("tail", "unit")
    for ask in (sampler.__len__, lambda: sampler.order, lambda: next(iter(sampler))):
        with pytest.raises(sk.CompositionError):
            ask()


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_plain_dataloader_reads_the_batches_of_a_rank(kind):
    class Quiet(Noisy):
        def __getitem__(self, index):
            return index, 0.0

    make, recipe = SAMPLERS[kind]
    sampler = sk.TorchSampler(make(), Noisy(), sk.World(3, 1))
    batches = sk.TorchBatchSampler(sampler, batches=recipe)
    plain = torch.utils.data.DataLoader(Quiet(), batch_sampler=batches, collate_fn=list)
    ours = loader(kind, 3, 1)
    for epoch in range(2):
        assert sampler.epoch == epoch
        ids = [[index for index, _ in batch] for batch in ours]
        assert [[index for index, _ in batch] for batch in plain] == ids
    assert len(batches) == len(ours)
    sampler.set_epoch(0)
    with pytest.raises(sk.CompositionError):
        iter(sampler).__next__()
