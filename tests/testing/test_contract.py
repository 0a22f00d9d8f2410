"""Our own samplers keep the contract that we ship, and a sampler that breaks it is found."""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.testing import SamplerContract
from tests.order import golden_vectors

RECORDED = {
    case["chain"][0]["sampler"]: case
    for case in sorted(golden_vectors.recorded()["orders"], key=lambda case: -len(sk.Layout(case["layout"])))
    if len(case["chain"]) == 1
}
"""Of each sampler the order of the smallest dataset among the golden vectors: none is missing here."""


@pytest.mark.parametrize("name", RECORDED)
class TestRecorded(SamplerContract):
    """Each sampler that has golden vectors."""

    @pytest.fixture(autouse=True)
    def _of_this_name(self, name):
        case = RECORDED[name]
        self.datasets = (sk.Layout(case["layout"]),)
        self.make = partial(golden_vectors.built, case)


def _edited():
    weights = {"web": 3, "code": 1}
    mixture = sk.MixtureSampler(
        {"web": sk.RandomSampler(shuffle="files", seed=3), "code": None}, 29, weights=weights
    )
    return sk.Ledger(mixture, [sk.Edit(at=9, skip=3), sk.Edit(at=14, weights={"web": 1, "code": 1})])


class TestEdited(SamplerContract):
    """A mixture over the parts of a tree, with edits."""

    datasets = (sk.Layout.tree({"web": sk.Layout([7, 0, 9]), "code": 4}),)
    make = staticmethod(_edited)


class ByProcessState(sk.Sampler):
    """Broken: draws from the process-wide generator."""

    def draw(self, layout, context):
        ids = list(range(len(layout)))
        random.shuffle(ids)
        return ids


class ByCall(sk.Sampler):
    """Broken: another order each time."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def draw(self, layout, context):
        self.calls += 1
        return np.roll(np.arange(len(layout)), self.calls)


class ByLanes(sk.Sampler):
    """Broken: the rank's world changes the order, and a resume does not keep it."""

    def __init__(self):
        super().__init__()
        self.random = random.Random(random.randrange(10**9))

    def draw(self, layout, context):
        return np.roll(np.arange(len(layout)), self.random.randrange(10**6))


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (ByProcessState, "test_equal_samplers_give_equal_orders"),
        (ByProcessState, "test_global_random_state_is_neither_read_nor_changed"),
        (ByCall, "test_equal_samplers_give_equal_orders"),
        (ByLanes, "test_all_shards_are_dealt_from_one_order"),
        (ByLanes, "test_a_resumed_loader_reads_each_position_once"),
    ],
)
def test_a_sampler_that_breaks_a_law_is_found(broken, law):
    contract = SamplerContract()
    contract.make = broken
    with pytest.raises(AssertionError):
        getattr(contract, law)()
