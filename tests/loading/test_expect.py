"""`expect` of a dataset gets the ids that its process will read next."""

from __future__ import annotations

import numpy as np
import pytest

import samplerkit as sk


class Expecting:
    """Sample i is (i, how many batches this process still expected, and the calls of `expect` so far)."""

    layout = sk.Layout([8] * 5)
    calls = 0

    def __len__(self):
        return 40

    def expect(self, upcoming):
        self.calls += 1
        self._upcoming = [ids.tolist() for ids in upcoming]

    def __getitems__(self, ids):
        assert self._upcoming.pop(0) == ids.tolist()
        return [(index, len(self._upcoming), self.calls) for index in ids.tolist()]


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
def test_expect_gets_all_ids_of_a_process_once_an_epoch(workers, shuffle, options):
    sampler = sk.DistributedSampler(2, 1, shuffle=shuffle, partial_size=6, seed=3)
    loader = sk.Loader(Expecting(), sampler, batch_size=3, num_workers=workers, collate_fn=list, **options)
    with loader:
        for epoch in range(3):
            received = [sample for batch in loader for sample in batch]
            assert [index for index, *_ in received] == np.asarray(sampler.order(Expecting(), epoch)).tolist()
            # A worker that is new in each epoch has had no call before.
            is_new = workers and not ("persistent_workers" in options or "run_ahead" in options)
            assert {calls for *_, calls in received} == {1 if is_new else epoch + 1}
            remaining = [count for _, count, _ in received]
            assert remaining.count(0) >= max(1, workers)  # each worker's last batch was its last expected one


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "persistent_workers": True}], ids=str)
def test_expect_gets_only_the_rest_after_a_resume(options):
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
def test_expect_gets_the_edited_ids(options):
    ledger = sk.Ledger(sk.RandomSampler(seed=3))
    with sk.Loader(Expecting(), ledger, batch_size=2, collate_fn=list, **options) as loader:
        received = []
        for batch in loader:
            received += [index for index, *_ in batch]
            if loader.step == 2:
                loader.edit(skip=4)
        assert received == loader.sampler.order(Expecting())[:].tolist()
