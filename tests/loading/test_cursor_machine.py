"""One machine drives the one cursor through all of its users, by the same rules, and compares with one model.

The law: what was handed out is what a state counts; what comes after it is the rest of the order, and then
the next epoch; and every rank says the same state. More of it:
`pytest -m campaign tests/loading/test_cursor_machine.py`.
"""

import json
import logging
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from torch.utils.data import DataLoader

import samplerkit as sk
from samplerkit.compat.torch import DistributedSampler, distributed
from samplerkit.loading.device.loader import DeviceLoader
from tests.compat.partially_shuffle.folders import make_dataset, make_sampler
from tests.loading.saved_states import as_list, item_ids
from tests.numbers import Numbers

SIZE = 13


class User(NamedTuple):
    """One reader of epochs, and which of the three choices it made.

    Args:
        make: of the rank of two ranks, and the files of the machine.
        stride: by how much one item of each rank moves the position.
        ranks: how many there are; 1 where a user knows no ranks.
        stays: whether its epoch stays until it is set.
        waits: whether `set_epoch` in a loop waits for its end, and a second iterator ends the first.
        continues: whether an iteration continues after a break.
        closes: whether it has `close`.
    """

    make: Any
    stride: int
    ranks: int = 2
    stays: bool = False
    waits: bool = False
    continues: bool = False
    closes: bool = False


def loader(rank, **options):
    options = {"batch_size": 2, "world": sk.World(2, rank), "collate_fn": as_list, **options}
    return sk.Loader(Numbers(sk.Layout(SIZE)), sk.RandomSampler(seed=3), **options)


def torch_sampler(rank, ranks=2):
    return sk.TorchSampler(sk.RandomSampler(seed=3), SIZE, sk.World(ranks, rank))


def of_loader(continues=False, **options):
    return User(lambda rank, _: loader(rank, **options), 4, waits=True, continues=continues, closes=True)


def of_torchs(**options):
    return User(lambda rank, _: DistributedSampler(range(SIZE), 2, rank, **options), 2, stays=True)


USERS = {
    "Loader": of_loader(),
    "Loader that continues": of_loader(continues=True, after_break="continue"),
    "Loader that drops": of_loader(tail="drop"),
    "Loader that runs ahead": of_loader(run_ahead=True),
    "Loader over threads": of_loader(num_workers=1, workers="threads"),
    "TensorLoader": User(
        lambda rank, _: sk.TensorLoader(
            torch.arange(SIZE), sk.RandomSampler(seed=3), batch_size=2, world=sk.World(2, rank)
        ),
        stride=4,
        waits=True,
    ),
    "TorchSampler": User(lambda rank, _: torch_sampler(rank), 2),
    "TorchBatchSampler": User(lambda rank, _: sk.TorchBatchSampler(torch_sampler(rank), 2), 4),
    "torch's DistributedSampler": of_torchs(),
    "torch's, with drop_last": of_torchs(drop_last=True),
    "torch's, our order": of_torchs(algorithm="samplerkit-1"),
    "any torch sampler": User(lambda rank, _: distributed(list(range(SIZE)), 2, rank), 2, stays=True),
    "PartiallyShuffle": User(
        lambda rank, files: make_sampler(files, 2, rank, shuffle_buffer=4, batch_size=2), 4, closes=True
    ),
    "DeviceLoader over Loader": User(
        lambda rank, _: DeviceLoader(loader(rank), "cpu"), 4, waits=True, closes=True
    ),
    "DeviceLoader over DataLoader": User(
        lambda _, __: DeviceLoader(
            DataLoader(range(SIZE), 2, sampler=torch_sampler(0, 1), collate_fn=as_list), "cpu"
        ),
        stride=1,
        ranks=1,
        waits=True,
        closes=True,
    ),
}


def beginning_of(epoch, ended):
    """What a state says before the first item of an epoch, after another one has ended."""
    return epoch, 0, None if ended == epoch else ended


class CursorMachine(RuleBasedStateMachine):
    """The ranks of a job in lock step, and a model: an epoch, the items read of it, and the next epoch."""

    files: Any = None
    user: User

    @initialize()
    def start(self):
        self.epochs: dict[int, list[Any]] = {}
        self.saved: list[Any] = []
        self.is_epoch_set = False
        self.move_to(0, 0)
        self.readers = self.make_readers()

    def make_readers(self):
        return [self.user.make(rank, self.files) for rank in range(self.user.ranks)]

    def items(self, epoch):
        """What each rank gets in an epoch, from readers that read nothing else."""
        if epoch not in self.epochs:
            fresh = self.make_readers()
            for reader in fresh:
                reader.set_epoch(epoch)
            self.epochs[epoch] = [[item_ids(item) for item in reader] for reader in fresh]
            for reader in fresh:
                self.close(reader)
        return self.epochs[epoch]

    def close(self, reader):
        if self.user.closes:
            reader.close()

    def move_to(self, epoch, at, *, reported=None, is_loaded=False, is_spent=False, previous=None):
        """The model: an epoch, and how many items of it were read; no iteration is under way.

        Until an item is read, a state says `reported`; of a spent epoch no item remains. `previous` is
        the epoch that ended before, also where it is set again and a state does not say so.
        """
        self.previous = previous
        self.epoch, self.at, self.start_at = epoch, at, at
        self.reported, self.is_loaded, self.is_spent = reported, is_loaded, is_spent
        self.iterators: list[Any] | None = None
        self.next_epoch: int | None = None

    @property
    def following(self):
        if self.next_epoch is not None:
            return self.next_epoch
        return self.epoch + (self.is_epoch_set or not self.user.stays)

    @property
    def is_over(self):
        return self.at == len(self.items(self.epoch)[0]) > 0

    @property
    def place(self):
        if self.at == self.start_at and self.reported is not None:
            return self.reported
        return self.end if self.is_over else (self.epoch, self.at, None)

    @property
    def end(self):
        """What a state says at the end of the epoch."""
        ended = None if self.next_epoch == self.epoch else self.epoch
        return self.following, 0, ended

    @property
    def ended(self):
        """The epoch that ended before, as long as nothing was read since."""
        return self.place[2] if self.at == self.start_at else None

    def leave(self, *, at_its_end=False):
        """An iteration is over, whichever way."""
        if at_its_end or (self.is_over and self.at > self.start_at):
            end = self.end
            epoch = self.epoch if self.user.stays else self.following
            self.move_to(epoch, 0, reported=end, previous=self.epoch)
        elif self.next_epoch not in {None, self.epoch}:
            self.move_to(self.next_epoch, 0)
        else:
            self.iterators, self.next_epoch = None, None

    def begin(self):
        self.leave()
        if self.at > self.start_at and not self.user.continues:
            self.at = 0
        if self.at != self.start_at or self.reported is None:
            self.reported, self.is_spent = None, False
        self.start_at = self.at
        self.iterators = [iter(reader) for reader in self.readers]

    def read(self, count):
        """Reads some items of every rank; returns whether the epoch had so many."""
        for _ in range(count):
            received = [next(iterator, None) for iterator in self.iterators]
            expected = [items[self.at : self.at + 1] for items in self.items(self.epoch)]
            expected = [[] for _ in expected] if self.is_spent else expected
            if received == [None] * len(received):
                assert expected == [[]] * len(received)
                return False
            assert [[item_ids(item)] for item in received] == expected
            self.at += 1
        return True

    @rule(count=st.integers(1, 4))
    def take(self, count):
        if self.iterators is None:
            self.begin()
        if not self.read(count):
            self.leave(at_its_end=True)

    @rule()
    def take_to_the_last(self):
        """A reader that counts, and does not read the end."""
        if self.iterators is None:
            self.begin()
        assert self.read(0 if self.is_spent else len(self.items(self.epoch)[0]) - self.at)

    @rule()
    def finish(self):
        if self.iterators is None:
            self.begin()
        assert not self.read(SIZE + 1)
        self.leave(at_its_end=True)

    @precondition(lambda self: self.iterators is not None)
    @rule()
    def leave_early(self):
        iterators, before = self.iterators, self.place
        for iterator in iterators:
            iterator.close()
        if self.user.waits:
            self.leave()
        else:
            self.iterators = None
        # A sampler whose epoch is over by counting moves when it is read next; its state is the same.
        assert self.user.waits or self.place == before

    @precondition(lambda self: self.iterators is not None and not self.is_spent)
    @rule()
    def a_second_iterator(self):
        old = self.iterators
        self.begin()
        assert self.read(1)
        before = self.at
        for iterator in old:
            if self.user.waits:
                with pytest.raises((sk.StateError, StopIteration)):
                    next(iterator)
            else:
                next(iterator, None)
        assert self.at == before  # and `save` finds that it counted for nobody
        self.save()

    @precondition(lambda self: self.user.closes)
    @rule()
    def close_all(self):
        for reader in self.readers:
            reader.close()
        if self.iterators is not None:
            if self.user.waits:
                self.leave()
            else:
                self.iterators = None

    @rule(epoch=st.integers(0, 2))
    def set_epoch(self, epoch):
        for reader in self.readers:
            reader.set_epoch(epoch)
        self.is_epoch_set = True
        if self.user.waits and self.iterators is not None:
            self.next_epoch = epoch
        elif self.is_loaded and epoch == self.ended:
            self.move_to(epoch, 0, reported=self.reported, is_spent=True, previous=self.ended)
        else:
            is_over = self.is_over and self.at > self.start_at
            if epoch != self.epoch or (epoch == self.ended and not self.is_spent) or is_over:
                previous = self.previous if self.at == self.start_at else None
                previous = self.epoch if is_over else previous
                self.move_to(epoch, 0, reported=beginning_of(epoch, previous), previous=previous)

    @rule()
    def save(self):
        states = [reader.state_dict() for reader in self.readers]
        assert states == [states[0]] * len(states)
        text = json.dumps(states[0])
        assert len(text) < 4096
        position = states[0].get("position", states[0].get("step"))
        epoch, at, ended = self.place
        assert (states[0]["epoch"], position, states[0]["ended"]) == (epoch, at * self.user.stride, ended)
        self.saved.append((text, *self.place))

    @rule(before=st.integers(0, 3), count=st.integers(0, 2))
    def load_into_fresh_ones(self, before, count):
        """The current state or an earlier one; a little is read first, and reading continues from there."""
        if count:
            self.take(count)
        self.save()
        text, *place = self.saved[-1 - before % len(self.saved)]
        for reader in self.readers:
            self.close(reader)
        self.readers, self.is_epoch_set = self.make_readers(), False
        for reader in self.readers:
            reader.load_state_dict(json.loads(text))
        reported = None if place[2] is None else tuple(place)
        self.move_to(*place[:2], reported=reported, is_loaded=True, previous=place[2])
        self.save()
        assert self.saved.pop()[0] == text

    def teardown(self):
        for reader in getattr(self, "readers", ()):
            self.close(reader)


COMMON = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}

# Epochs that stay until they are set cause a warning if they are not set.
pytestmark = pytest.mark.filterwarnings("ignore:.*set_epoch")


@pytest.fixture(autouse=True, scope="module")
def _files(tmp_path_factory):
    CursorMachine.files = make_dataset(tmp_path_factory.mktemp("files"), [5, SIZE - 5])


@pytest.mark.parametrize("steps", [20, pytest.param(50, marks=pytest.mark.campaign)])
@pytest.mark.parametrize("name", USERS)
def test_each_user_of_the_cursor_keeps_to_the_model(name, steps, caplog):
    caplog.set_level(logging.ERROR)  # thousands of epochs are read again
    machine = type("OneUser", (CursorMachine,), {"user": USERS[name]})
    chosen = settings(max_examples=8, stateful_step_count=steps, **COMMON)
    run_state_machine_as_test(machine, settings=chosen)
