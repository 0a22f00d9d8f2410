"""What ranks read of mixtures: no source unseen, no batch more uneven than independent draws."""

from __future__ import annotations

import pytest

from tests.benchmarks.rank_shares import NINE, looked_at

BATCHES = 3000
NOISE = 0.12
"""Four times the spread of a variance of so many batches."""

CELLS = [
    ("[3, 1]", 4),
    ("[.7, .2, .1]", 10),
    ("[sqrt 2, 1, pi]", 6),
    ("ten by Zipf", 16),
    ("64 equal ones", 2),
]


@pytest.mark.parametrize(("title", "ranks"), CELLS)
def test_every_rank_reads_every_source_as_evenly_as_independent_draws(title, ranks):
    found = looked_at(NINE[title], ranks, BATCHES)
    for name in ("one lane", "a lane a rank"):
        assert found[name].unseen == 0
        # The campaign `python -m tests.benchmarks.rank_shares` holds all cells against 1.1.
        assert found[name].variance <= 1 + NOISE
    assert found["a lane a rank"].rms <= 3
