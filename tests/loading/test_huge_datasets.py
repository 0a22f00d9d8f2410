"""More samples than 2^32, in files of more than 2^32, and more weights than torch can draw from."""

from __future__ import annotations

import json

import numpy as np
import pytest

import samplerkit as sk
from tests.numbers import Numbers

HUGE = 2**40
SIZES = [2**33 + 1, 5, 2**32 + 7, 2**40]


@pytest.mark.parametrize(
    ("recipe", "layout"),
    [
        (sk.SequentialSampler(), sk.Layout(HUGE)),
        (sk.RandomSampler(seed=3), sk.Layout(HUGE)),
        (sk.RandomSampler(seed=3), sk.Layout(2**62)),
        (sk.DistributedSampler(shuffle="partial", seed=3, lanes=1), sk.Layout(SIZES)),
        (sk.DistributedSampler(num_samples=2**63 - 1, seed=3), sk.Layout(HUGE)),
    ],
    ids=["sequential", "global", "largest", "files", "as many as there are"],
)
def test_a_rank_receives_the_right_ids_far_beyond_32_bits(recipe, layout):
    """Its first batch after a resume, from some steps of another number of ranks."""
    step = (len(layout) // 3 * 2) // 1024
    saved = sk.Loader(layout, recipe, batch_size=256, world=sk.World(4, 0)).state_dict(step=step)
    with sk.Loader(Numbers(layout), recipe, batch_size=4, num_workers=1, world=sk.World(8, 3)) as loader:
        loader.load_state_dict(json.loads(json.dumps(saved)))
        received, position = next(iter(loader)).tolist(), saved["position"]
    assert position == 1024 * step > 2**32
    order = recipe.undealt_order(layout)
    assert received == order[position + 3 : position + 3 + 8 * 4 : 8].tolist()
    assert max(received) > 2**32
    # The control: ids that went through 32 bits anywhere would be others.
    assert received != [sample % 2**32 for sample in received]


@pytest.mark.parametrize("replacement", [True, False])
def test_weights_beyond_the_2_to_the_24_of_torch_multinomial_are_drawn_from(replacement):
    size = 2**24 + 5
    weights = np.zeros(size)
    heavy = [2**24 - 1, 2**24 + 2, 2**24 + 4]
    weights[heavy] = 1
    sampler = sk.WeightedRandomSampler(weights, 12 if replacement else 3, replacement, seed=3)
    ids = sampler.order(size)[:].tolist()
    assert set(ids) == set(heavy)
    assert replacement or sorted(ids) == heavy
