"""The bridge to a plain torch DataLoader and to torchdata's: samples, and batches of a plan."""

import numpy as np
import pytest
import torch
import torch.distributed
from torch.utils.data import DataLoader

import samplerkit as sk
from tests.loading.batch_loaders import NOISY, RECIPE, SAMPLERS, SIZE, loader
from tests.loading.saved_states import as_list


class InBatches:
    """A dataset that takes whole batches."""

    def __len__(self):
        return 10

    def __getitems__(self, ids):
        assert isinstance(ids, np.ndarray)
        return ids


def test_a_plain_dataloader_reads_the_order_of_the_sampler():
    sampler = sk.TorchSampler(sk.RandomSampler(seed=3), 10)
    loader = DataLoader(range(10), 4, sampler=sampler, collate_fn=as_list)
    for epoch in range(3):
        assert sum(loader, []) == list(sk.RandomSampler(seed=3).order(10, epoch))
    assert len(loader) == 3
    assert sampler.epoch == 3


def test_it_is_a_torch_distributed_sampler_with_torchs_names():
    sampler = sk.TorchSampler(sk.RandomSampler(), 10, world=sk.World(4, 1))
    assert isinstance(sampler, torch.utils.data.DistributedSampler)
    assert (sampler.num_replicas, sampler.rank, sampler.num_samples, sampler.total_size) == (4, 1, 3, 12)


@pytest.mark.parametrize(("drop_last", "sizes"), [(False, [4, 4, 2]), (True, [4, 4])])
def test_whole_batches_reach_a_dataset_that_takes_them(drop_last, sizes):
    batches = sk.TorchBatchSampler(sk.TorchSampler(sk.SequentialSampler(), InBatches()), 4, drop_last)
    loader = DataLoader(InBatches(), batch_sampler=batches, collate_fn=as_list)
    assert [len(batch) for batch in loader] == sizes
    assert len(loader) == len(sizes)
    assert isinstance(next(iter(sk.TorchBatchSampler(sk.TorchSampler(sk.SequentialSampler(), 5), 2))), list)


def test_a_sampler_counts_samples_or_batches_and_never_both():
    sampler = sk.TorchSampler(sk.RandomSampler(), range(SIZE), sk.World(3, 1))
    next(iter(sampler))
    with pytest.raises(sk.ArgumentValueError, match="has begun"):
        sk.TorchBatchSampler(sampler, batches=RECIPE)
    sampler = sk.TorchSampler(sk.RandomSampler(), range(SIZE), sk.World(3, 1))
    samples = sampler.state_dict()
    sampler.set_epoch(2)
    batches = sk.TorchBatchSampler(sampler, batches=RECIPE, drop_last=True)
    assert (sampler.epoch, batches.state_dict()["tail"]) == (2, "drop")
    with pytest.raises(sk.StateError) as caught:
        batches.load_state_dict({**samples})
    assert caught.value.field in ("tail", "unit")
    for use in (lambda: sampler.order, lambda: next(iter(sampler))):
        with pytest.raises(sk.CompositionError):
            use()


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_plain_dataloader_reads_the_batches_of_a_rank(kind):
    make, recipe = SAMPLERS[kind]
    sampler = sk.TorchSampler(make(), NOISY, sk.World(3, 1))
    batches = sk.TorchBatchSampler(sampler, batches=recipe)
    plain = DataLoader(range(SIZE), batch_sampler=batches, collate_fn=list)
    ours = loader(kind, 3, 1)
    for epoch in range(2):
        assert sampler.epoch == epoch
        assert list(plain) == [[index for index, _ in batch] for batch in ours]
    assert len(batches) == len(ours)
    sampler.set_epoch(0)
    with pytest.raises(sk.CompositionError):
        iter(sampler).__next__()
