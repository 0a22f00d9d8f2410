"""Any calls: iterate, break, close, a second iterator, save, load, resize, set_epoch; against a model.

The model is a list, an epoch and a position. `pytest -m campaign tests/loading/test_loader_machine.py` runs
more of it.
"""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import samplerkit as sk

LAYOUT = sk.Layout([7, 0, 11, 5])


class Numbers:
    """Sample i is i."""

    layout = LAYOUT

    def __len__(self):
        return len(LAYOUT)

    def __getitem__(self, index):
        return index


def as_lists(batch):
    return batch


class LoaderMachine(RuleBasedStateMachine):
    """The ranks of a job in lock step, beside a model that knows nothing of delivery."""

    @initialize(
        shuffle=st.sampled_from(["false", "global", "files", "infile", "partial"]),
        ranks=st.integers(1, 4),
        batch=st.integers(1, 5),
        num_samples=st.none() | st.integers(1, 9),
        after_break=st.sampled_from(["restart", "continue"]),
        tail=st.sampled_from(["pad", "drop", "ragged"]),
        run_ahead=st.booleans(),
    )
    def start(self, shuffle, ranks, batch, num_samples, after_break, tail, run_ahead):
        self.recipe = sk.DistributedSampler(shuffle=shuffle, num_samples=num_samples, partial_size=4, seed=9)
        self.constants = self.recipe.run_constants(sk.World(ranks, 0))
        self.after_break, self.tail, self.run_ahead = after_break, tail, run_ahead
        self.epoch = self.position = 0
        self.saved, self.of_epochs = [], {}
        self.resize(ranks, batch, 0)

    def resize(self, ranks, batch, workers):
        self.ranks, self.batch = ranks, batch
        self.loaders = [
            sk.Loader(
                Numbers(),
                self.recipe,
                batch_size=batch,
                num_workers=workers,
                world=sk.World(ranks, rank),
                after_break=self.after_break,
                tail=self.tail,
                run_ahead=self.run_ahead,
                collate_fn=as_lists,
            )
            for rank in range(ranks)
        ]
        self.batches = None
        self.next_epoch = None
        self.delivered_any = False

    @property
    def is_over(self):
        """Whether nothing is left to any rank."""
        left = len(self.ids()) - self.position
        return left == 0 or (self.tail == "drop" and left < self.ranks * self.batch)

    def ids(self):
        """The whole epoch, from the recipe and the constants of the first start."""
        if self.epoch not in self.of_epochs:
            order = self.recipe.undealt_order(LAYOUT, self.epoch, constants=self.constants)
            self.of_epochs[self.epoch] = np.asarray(order).tolist()
        return self.of_epochs[self.epoch]

    def finish_epoch(self):
        self.epoch = self.epoch + 1 if self.next_epoch is None else self.next_epoch
        self.position, self.batches, self.next_epoch, self.delivered_any = 0, None, None, False

    @rule(steps=st.integers(1, 4))
    def iterate(self, steps):
        if self.batches is None:
            if self.delivered_any and self.after_break == "restart":
                self.position = 0
            self.batches = [iter(loader) for loader in self.loaders]
        for _ in range(steps):
            received = [next(batches, None) for batches in self.batches]
            if received == [None] * self.ranks:
                assert self.is_over
                self.finish_epoch()
                return
            assert self.tail == "ragged" or None not in received
            kept = Counter()
            for loader, batch in zip(self.loaders, received, strict=True):
                if batch is None:
                    continue
                pads = loader.pads(loader.step - 1)
                kept.update(i for i, pad in zip(batch, pads, strict=True) if not pad)
            until = min(self.position + self.ranks * self.batch, len(self.ids()))
            assert kept == Counter(self.ids()[self.position : until])
            self.position, self.delivered_any = until, True

    @rule()
    def exhaust(self):
        epoch = self.epoch
        for _ in range(200):
            if self.epoch != epoch or (self.next_epoch == epoch and self.batches is None):
                return
            before = self.batches
            self.iterate(1)
            if before is not None and self.batches is None:
                return
        raise AssertionError("the epoch does not end")

    @precondition(lambda self: self.batches is not None)
    @rule(how=st.sampled_from(["break", "close", "a second iterator"]))
    def leave_early(self, how):
        left, self.batches = self.batches, None
        if self.delivered_any and self.is_over:
            self.finish_epoch()
        elif self.next_epoch not in {None, self.epoch}:
            self.epoch, self.position, self.delivered_any = self.next_epoch, 0, False
        self.next_epoch = None
        if how == "close":
            for loader in self.loaders:
                loader.close()
        if how == "a second iterator":
            self.iterate(1)
            for batches in left:
                # One that came to its end before, with fewer batches than others, stays there.
                with pytest.raises((sk.StateError, StopIteration)):
                    next(batches)

    @rule()
    def save(self):
        states = [loader.state_dict() for loader in self.loaders]
        assert all(state == states[0] for state in states)
        is_over = self.position > 0 and self.is_over
        following = self.epoch + 1 if self.next_epoch is None else self.next_epoch
        expected = (following, 0) if is_over else (self.epoch, self.position)
        assert (states[0]["epoch"], states[0]["position"]) == expected
        self.saved.append((json.dumps(states[0]), *expected))

    @precondition(lambda self: self.saved)
    @rule(which=st.integers(0, 9), ranks=st.integers(1, 4), batch=st.integers(1, 5))
    def load(self, which, ranks, batch):
        state, self.epoch, self.position = self.saved[which % len(self.saved)]
        self.resize(ranks, batch, 0)
        for loader in self.loaders:
            loader.load_state_dict(json.loads(state))

    @precondition(lambda self: self.saved)
    @rule(workers=st.integers(1, 3))
    def load_with_workers_and_read_a_little(self, workers):
        state, self.epoch, self.position = self.saved[-1]
        self.resize(1, 3, workers)
        self.loaders[0].load_state_dict(json.loads(state))
        self.iterate(2)
        if self.batches is not None:
            self.leave_early("break")

    @rule(epoch=st.integers(0, 3))
    def set_epoch(self, epoch):
        for loader in self.loaders:
            loader.set_epoch(epoch)
        if self.batches is not None:
            self.next_epoch = epoch
        elif epoch != self.epoch:
            self.epoch, self.position, self.delivered_any = epoch, 0, False

    def teardown(self):
        for loader in getattr(self, "loaders", ()):
            loader.close()


COMMON = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}

TestLoaderMachine = LoaderMachine.TestCase
TestLoaderMachine.settings = settings(max_examples=15, stateful_step_count=25, **COMMON)


@pytest.mark.campaign
class TestLoaderMachineAtLength(LoaderMachine.TestCase):
    """The same, with more examples of more calls."""

    settings = settings(max_examples=80, stateful_step_count=40, **COMMON)
