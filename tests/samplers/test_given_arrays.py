"""What a sampler was given stays as it was: an order that is asked for again is the same."""

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
