"""Chains are values: pickled and copied they stay what they were, what was given stays; they compare."""

from __future__ import annotations

import copy
import pickle
from itertools import pairwise

import numpy as np
import pytest

import samplerkit as sk

LINKS = 60


class Slotted(sk.Sampler):
    """A user's sampler with a slot, which is no entry of `__dict__`."""

    __slots__ = ("step",)

    def __init__(self, step):
        super().__init__()
        self.step = step

    def draw(self, layout, context):
        return np.arange(0, len(layout), self.step)


class Stateful(sk.Sampler):
    """A user's sampler that says what is pickled, and puts it back."""

    def __init__(self, step):
        super().__init__()
        self.step, self.table = step, object()

    def __getstate__(self):
        return {name: value for name, value in vars(self).items() if name != "table"}

    def __setstate__(self, state):
        vars(self).update(state, table="made anew")

    def draw(self, layout, context):
        return np.arange(0, len(layout), self.step)


def chain(*links):
    for parent, child in pairwise(links):
        parent.add_child(child)
    return links[0]


def pickled(sampler):
    return pickle.loads(pickle.dumps(sampler))  # noqa: S301  # what was just pickled here


WAYS = {"pickled": pickled, "copied deeply": copy.deepcopy, "copied": copy.copy}


MADE = {
    "a long chain": lambda: chain(*(sk.RandomSampler(seed=number) for number in range(LINKS))),
    "a mixture in a mixture": lambda: sk.MixtureSampler({"a": None, "b": sk.MixtureSampler({"c": None})}),
}
TREE = sk.Layout.tree({"a": 5, "b": sk.Layout.tree({"c": 4})})


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_a_copy_and_what_was_pickled_read_the_same(make, way):
    made = make()
    again = way(made)
    assert again.order(TREE, epoch=3)[:].tolist() == made.order(TREE, epoch=3)[:].tolist()
    assert way(made.order(TREE))[:].tolist() == made.order(TREE)[:].tolist()
    assert repr(again) == repr(made)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_links_of_a_users_keep_slots_and_what_they_do_about_their_state(way):
    made = chain(sk.SequentialSampler(), Slotted(2), Stateful(3), Slotted(1))
    again = way(made)
    assert list(again.order(60)) == list(made.order(60)) == list(range(0, 60, 6))
    assert made.get_child().get_child().table != "made anew"
    assert [type(link).__name__ for link in again._links()] == [
        "SequentialSampler",
        "Slotted",
        "Stateful",
        "Slotted",
    ]


GIVEN = {
    "indices of a list": lambda: sk.SubsetSampler([3, 1, 2]).indices,
    "indices of an array": lambda: sk.SubsetRandomSampler(np.array([3, 1, 2], dtype=np.int32)).indices,
    "indices of objects": lambda: sk.SubsetSampler(np.array([3, 1, 2], dtype=object)).indices,
    "weights of a list": lambda: sk.WeightedRandomSampler([0.5, 1, 2]).weights,
    "weights of an array": lambda: sk.WeightedRandomSampler(np.array([0.5, 1, 2])).weights,
    "weights of a mixture": lambda: sk.MixtureSampler([1.0, 2.0, 3.0]).weights,
    "labels": lambda: sk.PKSampler(1, labels=np.array([0, 1, 1])).labels,
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_what_a_sampler_was_given_cannot_be_changed_behind_its_back(given):
    with pytest.raises(ValueError, match="read-only"):
        given()[0] = 5


# Orders are equal where their recipes are.

CORPUS = sk.Layout.tree({"web": sk.Layout([5, 7]), "code": 6, "n": sk.Layout.tree({"a": 4, "b": 5})})
SKIP = sk.Edit(at=3, skip=2)
WEIGHTS = sk.Edit(at=6, weights={"web": 1, "code": 3})
WITHOUT = sk.Edit(at=3, without=[1, 2])


def test_edits_tell_orders_of_ledgers_apart():
    orders = [
        sk.Ledger(sk.MixtureSampler({"web": None, "code": None}), edits).order(CORPUS)
        for edits in ([], [SKIP], [WEIGHTS], [SKIP, WEIGHTS], [WITHOUT], [WITHOUT, WEIGHTS])
    ]
    assert all(one != other for n, one in enumerate(orders) for other in orders[:n])
