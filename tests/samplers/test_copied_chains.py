"""Chains are pickled and copied, and stay what they were."""

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


def test_a_copy_shares_its_child_and_a_deep_copy_has_its_own():
    made = chain(sk.RandomSampler(seed=1), sk.SubsetSampler([5, 1, 3]))
    assert copy.copy(made).get_child() is made.get_child()
    deep = copy.deepcopy(made)
    assert deep.get_child() is not made.get_child()
    assert deep.get_child().indices.tolist() == [5, 1, 3]
