"""Runs that are edited, read through a DeviceLoader: of samplerkit's loader, and of others."""

from __future__ import annotations

import pytest
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

import samplerkit as sk

SAMPLES = list(range(40))


def ledger(*edits):
    return sk.Ledger(sk.SequentialSampler(), edits)


def foreign(*edits, kind=torch.utils.data.DataLoader, workers=0):
    sampler = sk.TorchSampler(ledger(*edits), SAMPLES)
    return sk.DeviceLoader(kind(SAMPLES, batch_size=4, sampler=sampler, num_workers=workers), "cpu")


def test_an_edit_applies_behind_what_is_on_its_way_to_the_device():
    with sk.DeviceLoader(sk.Loader(SAMPLES, ledger(), batch_size=4), "cpu") as loader:
        batches = iter(loader)
        seen = [next(batches).tolist() for _ in range(2)]
        applied = loader.edit(skip=8)
        seen += [batch.tolist() for batch in batches]
    assert 8 <= applied <= 24
    wanted = sk.Ledger(sk.SequentialSampler(), [sk.Edit(at=applied, skip=8)]).order(40)
    assert sum(seen, []) == wanted[:].tolist()


@pytest.mark.parametrize("kind", [torch.utils.data.DataLoader, StatefulDataLoader])
def test_another_loader_cannot_be_edited_while_it_reads_and_reads_on_as_it_was(kind):
    with foreign(kind=kind) as loader:
        batches = iter(loader)
        seen = next(batches).tolist()
        with pytest.raises(sk.NotSupportedError, match="loader: cannot be edited while it reads"):
            loader.edit(skip=8)
        for batch in batches:
            seen += batch.tolist()
    assert seen == SAMPLES


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stateful_loader_resumes_from_its_state_by_an_edit_behind_it(workers):
    with foreign(kind=StatefulDataLoader, workers=workers) as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = loader.state_dict()
        batches.close()
    with foreign(sk.Edit(at=12, skip=8), kind=StatefulDataLoader, workers=workers) as loader:
        loader.load_state_dict(state)
        seen = [sample for batch in loader for sample in batch.tolist()]
    assert seen == ledger(sk.Edit(at=12, skip=8)).order(40)[12:].tolist()
    with foreign(sk.Edit(at=11, skip=8), kind=StatefulDataLoader, workers=workers) as loader:
        loader.load_state_dict(state)
        with pytest.raises(sk.StateError, match="this run has an edit that its run had not"):
            next(iter(loader))
