"""A dataset that wants to know what comes next is told, in the process that reads."""

from __future__ import annotations

import numpy as np
import pytest

import samplerkit as sk


class Expecting:
    """Sample i is (i, what this process still expected when it was read, and how often it was told)."""

    layout = sk.Layout([8] * 5)
    times_told = 0

    def __len__(self):
        return 40

    def expect(self, upcoming):
        self.times_told += 1
        self._upcoming = [ids.tolist() for ids in upcoming]

    def __getitems__(self, ids):
        assert self._upcoming.pop(0) == ids.tolist()
        return [(index, len(self._upcoming), self.times_told) for index in ids.tolist()]


@pytest.mark.parametrize(
    ("workers", "shuffle", "options"),
    [
        (0, "partial", {}),
        (0, "global", {"run_ahead": True}),
        (2, "global", {}),
        (2, "partial", {"persistent_workers": True}),
        (2, "partial", {"file_affinity": True, "run_ahead": True}),
        (2, "global", {"file_affinity": True, "persistent_workers": True}),
    ],
    ids=str,
)
def test_each_process_is_told_once_an_epoch_all_that_it_will_read(workers, shuffle, options):
    sampler = sk.DistributedSampler(2, 1, shuffle=shuffle, partial_size=6, seed=3)
    loader = sk.Loader(Expecting(), sampler, batch_size=3, num_workers=workers, collate_fn=list, **options)
    with loader:
        for epoch in range(3):
            received = [sample for batch in loader for sample in batch]
            assert [index for index, *_ in received] == np.asarray(sampler.order(Expecting(), epoch)).tolist()
            # A worker that is new in each epoch has never been told before.
            is_new = workers and not ("persistent_workers" in options or "run_ahead" in options)
            assert {told for *_, told in received} == {1 if is_new else epoch + 1}
            still = [left for _, left, _ in received]
            assert still.count(0) >= max(1, workers)  # each worker's last batch was its last expected one


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "persistent_workers": True}], ids=str)
def test_a_resume_tells_only_the_rest(options):
    with sk.Loader(Expecting(), sk.RandomSampler(), batch_size=4, **options) as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = loader.state_dict()
        loader.close()
        loader.load_state_dict(state)
        assert sum(len(batch[0]) for batch in loader) == 28


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 1}, {"num_workers": 2}, {"num_workers": 2, "file_affinity": True}]
)
def test_each_process_is_told_what_it_will_read_after_an_edit(options):
    ledger = sk.Ledger(sk.RandomSampler(seed=3))
    with sk.Loader(Expecting(), ledger, batch_size=2, collate_fn=list, **options) as loader:
        received = []
        for batch in loader:
            received += [index for index, *_ in batch]
            if loader.step == 2:
                loader.edit(skip=4)
        assert received == loader.sampler.order(Expecting())[:].tolist()
