"""Chains are values: pickled and copied they stay what they were, what was given stays; they compare."""

from __future__ import annotations

import numpy as np
import pytest

import samplerkit as sk

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
