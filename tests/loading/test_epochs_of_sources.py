"""Which epoch of its source a sample is read in, as orders tell it and datasets are told."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.order.mixing.streams import Part
from tests.loading.token_loaders import TREE, blocks, loader, mixture, read
from tests.loading.worker_kinds import beside


def test_a_source_that_is_read_again_has_another_phase_and_each_pass_has_every_token_once():
    """Passes run on over the borders of epochs, and a run changes its length within them."""
    sampler = mixture(num_samples=22)  # blocks, of which the sources have 7 and 3
    told, state = Counter(), None
    for seq_len, ranks, steps in [(2, 2, 24), (4, 3, 18), (1, 1, None), (6, 2, None), (12, 1, None)] * 2:
        seen, state = read(seq_len, ranks, state, steps, files=TREE, sampler=blocks(1, sampler), batch_size=1)
        told += seen
    assert state["epoch"] >= 6
    by_pass = {}
    for (number, file, place), count in told.items():
        by_pass.setdefault((number, file), Counter())[place] += count
    whole = {0: 60, 1: 24, 2: 36}
    last = {file: max(number for number, one in by_pass if one == file) for file in whole}
    assert min(last.values()) > 6
    for (number, file), places in by_pass.items():
        assert {*places.values()} == {1}
        if number < last[file]:
            assert len(places) == whole[file]
    phases = {number: min(places) for (number, file), places in by_pass.items() if file == 0}
    assert len({*phases.values()}) > 1


def test_epochs_of_sources_are_told_through_workers_trees_and_pads():
    sampler = blocks(2, mixture(num_samples=22, passes="restart"))
    with loader(4, files=TREE, sampler=sampler, batch_size=7, tail="pad") as run:
        run.set_epoch(5)
        order = run.order
        expected = order.epochs_at(5, np.arange(len(order))).tolist()
        here = [epoch for batch in run for epoch, _ in batch]
    assert here[: len(expected)] == expected
    assert here[len(expected) :] == expected[: len(here) - len(expected)]
    assert {epoch & (2**40 - 1) for epoch in expected} == {5}
    assert 0 < max(expected) >> 40 < order.num_passes
    for workers in (2, "2 threads"):
        with loader(4, files=TREE, sampler=sampler, batch_size=7, tail="pad", **beside(workers)) as run:
            run.set_epoch(5)
            assert [epoch for batch in run for epoch, _ in batch] == here


@pytest.mark.parametrize("name", ["passes_at", "epochs_at"])
def test_passes_and_epochs_are_computed_for_many_batches_at_once(monkeypatch, name):
    calls, computed = [], getattr(Part, name)
    monkeypatch.setattr(Part, name, lambda order, *given: calls.append(given) or computed(order, *given))
    data = sk.TreeDataset({"a": Both(), "b": Both()})
    sampler = sk.MixtureSampler([2, 1], num_samples=2000)
    with sk.Loader(data, sampler, batch_size=2, world=sk.World(1, 0), collate_fn=list) as run:
        assert sum(1 for _ in run) == 1000
    assert len(calls) == 2  # of an eighth first, since a loop that begins waits for it, and then of the rest


def test_a_ledger_reads_each_source_in_the_epochs_in_which_its_sampler_does():
    for child in (
        mixture(num_samples=22),
        mixture(num_samples=22, passes="restart"),
        sk.RandomSampler(seed=1),
    ):
        layout = sk.Layout.tree({"web": sk.Layout([5, 2]), "code": 3})
        for epoch in (0, 4):
            plain, edited = child.order(layout, epoch), sk.Ledger(child).order(layout, epoch)
            places = np.arange(len(plain))
            assert plain.epochs_at(epoch, places).tolist() == edited.epochs_at(epoch, places).tolist()


def test_what_repeats_is_in_an_epoch_of_its_own_each_time():
    repeated = sk.RepeatSampler(3)
    repeated.add_child(sk.MixtureSampler([1, 1], num_samples=20, seed=1))
    order = repeated.order(sk.Layout([2, 3]), 4)
    pairs = {*zip(order, order.epochs_at(4, np.arange(60)).tolist(), strict=True)}
    assert len(pairs) == 60


class Both:
    """Wants both: it is given passes, then epochs."""

    wants_passes = wants_epochs = True

    def __len__(self):
        return 6

    def __getitems__(self, ids, passes, epochs):
        return [*zip(ids.tolist(), passes.tolist(), epochs.tolist(), strict=True)]


class Neither(Both):
    wants_passes = wants_epochs = False

    def __getitems__(self, ids):
        return [(int(id), -1, -1) for id in ids]


@pytest.mark.parametrize("in_a_tree", [False, True])
def test_a_dataset_may_want_passes_and_epochs(in_a_tree):
    data = sk.TreeDataset({"a": Both(), "b": Neither()}) if in_a_tree else Both()
    with sk.Loader(data, sk.SubsetSampler([4, 1, 4] + [9] * in_a_tree), batch_size=4, collate_fn=list) as run:
        run.set_epoch(2)
        samples = [sample for batch in run for sample in batch]
    assert samples[:3] == [(4, 0, 2), (1, 0, 2), (4, 1, 2 + 2**40)]
    assert samples[3:] == [(3, -1, -1)] * in_a_tree
