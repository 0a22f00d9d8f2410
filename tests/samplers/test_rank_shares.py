"""What ranks read of mixtures: no source unseen, no batch more uneven than independent draws."""

from __future__ import annotations

import numpy as np
import pytest

import samplerkit as sk
from tests.order.test_source_draws import WEIGHTS

BATCH, BATCHES = 32, 3000
DUE = 20
"""Reads of a source that are due to a rank, from which on it counts as unseen when there are none."""

NOISE = 0.12
"""Four times the spread of a variance of so many batches."""

CELLS = [
    ("[3, 1]", 4),
    ("[.7, .2, .1]", 10),
    ("[sqrt 2, 1, pi]", 6),
    ("ten by Zipf", 16),
    ("64 equal ones", 2),
    ("[.9, .09, .01]", 256),
]


@pytest.mark.parametrize("has_lanes", [False, True], ids=["one lane", "a lane a rank"])
@pytest.mark.parametrize(("title", "ranks"), CELLS)
def test_every_rank_reads_every_source_as_evenly_as_independent_draws(title, ranks, has_lanes):
    weights, batches = WEIGHTS[title], BATCHES // ranks
    names = [f"s{number}" for number in range(len(weights))]
    size = BATCHES * BATCH
    tree = sk.Layout.tree(dict.fromkeys(names, size))
    mixture = sk.MixtureSampler(
        dict.fromkeys(names, sk.SequentialSampler()),
        batches * BATCH * ranks,
        weights=dict(zip(names, weights, strict=True)),
        lanes=ranks if has_lanes else 1,
    )
    sources = mixture.order(tree)[:] // size
    # Positions are dealt to ranks like cards.
    dealt = sources.reshape(-1, BATCH, ranks)
    for number, share in enumerate((np.array(weights) / sum(weights)).tolist()):
        counts = np.count_nonzero(dealt == number, axis=1)
        if share * BATCH * batches >= DUE:
            assert counts.sum(axis=0).all()
        variance = np.mean((counts - BATCH * share) ** 2)
        assert variance / (BATCH * share * (1 - share)) <= 1 + NOISE
        # By how much a rank's count is off its share, in samples, after each of its batches.
        off = np.cumsum(counts, axis=0) - BATCH * share * np.arange(1, batches + 1)[:, None]
        if has_lanes:
            assert np.sqrt(np.mean(off**2)) <= 3
