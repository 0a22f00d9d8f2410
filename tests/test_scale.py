"""The requests of one rank do not grow with the number of ranks: the counts of docs/scale.md, on a few."""

from __future__ import annotations

import math

import numpy as np
import pytest

from samplerkit.loading.agreement import Agreement
from tests.benchmarks.scale import (
    RECIPES,
    SECONDS,
    SITUATIONS,
    expected_requests,
    layout_of,
    memory,
    object_requests,
    object_store,
    store_requests,
    three,
)

FEW, MANY, FILES = 8, 10_000, 1000


def grows_slowly(few, many):
    """Whether figures of one rank grow with the number of ranks no faster than its logarithm."""
    return (np.asarray(many) <= np.asarray(few) * math.log(MANY) / math.log(FEW)).all()


def requests_of_store(ranks, late, dead):
    outcomes = store_requests(ranks, late, dead)
    ranks_read = [outcomes[rank] for rank in three(ranks)]
    return [max(one.requests for one in ranks_read), max(one.store.bytes for one in ranks_read)]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_store_requests_of_a_rank_match_arithmetic_and_do_not_grow(situation):
    late, dead = SITUATIONS[situation]
    assert grows_slowly(*(requests_of_store(ranks, late, dead) for ranks in (FEW, MANY)))
    for ranks in (FEW, MANY):
        expected = expected_requests(ranks, SECONDS if dead else late)
        outcomes = store_requests(ranks, late, dead)
        assert {outcomes[rank].requests for rank in three(ranks)[:2]} <= {*expected}


def test_a_rank_that_reads_the_members_of_its_group_is_noticed(monkeypatch):
    right = Agreement._complete
    monkeypatch.setattr(Agreement, "_complete", lambda self, mine, _: right(self, mine, False))
    assert not grows_slowly(*(requests_of_store(ranks, 3.0, 0) for ranks in (FEW, MANY)))


def test_the_object_store_requests_of_a_rank_do_not_grow():
    with object_store(FILES) as server:
        requests = {
            ranks: [object_requests(server, FILES, ranks, rank) for rank in three(ranks)]
            for ranks in (FEW, MANY)
        }
    for few, many in zip(requests[FEW], requests[MANY], strict=True):
        assert grows_slowly([sum(few.requests), sum(few.bytes)], [sum(many.requests), sum(many.bytes)])


@pytest.mark.parametrize("name", RECIPES)
def test_the_memory_of_a_rank_grows_only_by_a_table_of_lanes(name):
    layout = layout_of(FILES)
    memory(layout, name, FEW, 0)  # what is made once in a process
    few, many = (memory(layout, name, ranks, ranks - 1) for ranks in (FEW, MANY))
    lanes = {"GLOBAL": 0, "FILES": 0, "PARTIAL": 40}.get(name, 600)
    assert grows_slowly(few, np.array(many) - lanes * MANY / 2**20)
