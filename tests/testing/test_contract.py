"""Our own samplers keep the contract that we ship, and a sampler that breaks it is found."""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.testing import SamplerContract
from tests.order import golden_vectors

MAKERS = {
    "sequential": lambda: sk.SequentialSampler(0, 9),
    "random": lambda: sk.RandomSampler(seed=3),
    "partial": lambda: sk.RandomSampler(shuffle="partial", partial_size=4, seed=3),
    "replacement": lambda: sk.RandomSampler(replacement=True, seed=3),
    "subset": lambda: sk.SubsetSampler([0, 0]),
    "subset_random": lambda: sk.SubsetRandomSampler([0, 0, 0]),
    "weighted": lambda: sk.WeightedRandomSampler([2.0], num_samples=7),
    "iter": lambda: sk.IterSampler([0, 0, 0]),
    "distributed": lambda: sk.DistributedSampler(2, 1),
}


@pytest.mark.parametrize("name", MAKERS)
class TestOurs(SamplerContract):
    """Each of our samplers."""

    @pytest.fixture(autouse=True)
    def _of_this_name(self, name):
        self.make = MAKERS[name]


RECORDED = {
    case["chain"][0]["sampler"]: case
    for case in sorted(golden_vectors.recorded()["orders"], key=lambda case: -len(sk.Layout(case["layout"])))
    if len(case["chain"]) == 1
}
"""Of each sampler the order of the smallest dataset among the golden vectors: none is left out here."""


@pytest.mark.parametrize("name", RECORDED)
class TestRecorded(SamplerContract):
    """Each sampler that has golden vectors."""

    @pytest.fixture(autouse=True)
    def _of_this_name(self, name):
        case = RECORDED[name]
        self.datasets = (sk.Layout(case["layout"]),)
        self.make = partial(golden_vectors.built, case)


def _inner(**said):
    return sk.MixtureSampler({"a": sk.RandomSampler(shuffle="files", seed=1), "b": None}, seed=2, **said)


TREES = {
    "by_sizes": lambda: sk.MixtureSampler({"web": None, "code": None, "more": None}, stop="once"),
    "run_on": lambda: sk.MixtureSampler(
        {"web": sk.RandomSampler(shuffle="files", seed=3), "code": None}, 29, weights={"web": 3, "code": 1}
    ),
    "nested": lambda: sk.MixtureSampler(
        {"web": None, "more": _inner(weights={"a": 2, "b": 1})}, 31, weights={"web": 1, "more": 1}, lanes=2
    ),
    "restart": lambda: sk.MixtureSampler(
        {"code": sk.SubsetSampler([3, 1, 1]), "more": _inner()},
        weights={"code": 2, "more": 5},
        passes="restart",
        stop="all",
    ),
    "edited": lambda: sk.Ledger(
        TREES["run_on"](), [sk.Edit(at=9, skip=3), sk.Edit(at=14, weights={"web": 1, "code": 1})]
    ),
}


@pytest.mark.parametrize("name", TREES)
class TestTrees(SamplerContract):
    """Mixtures over the parts of a tree, nested ones and edited ones too."""

    datasets = (
        sk.Layout.tree(
            {"web": sk.Layout([7, 0, 9]), "code": 4, "more": sk.Layout.tree({"a": sk.Layout([3, 2]), "b": 6})}
        ),
    )

    @pytest.fixture(autouse=True)
    def _of_this_name(self, name):
        self.make = TREES[name]


ZOO = {
    "a repeat, cut": (sk.Layout([7, 0, 9, 4]), lambda: sk.RepeatSampler(3, 31)),
    "shuffled factors": (
        6,
        lambda: over(sk.RepeatFactorSampler([1, 0, 2.4, 0.3, 1.1, 3]), sk.RandomSampler()),
    ),
    "windows": (sk.Layout([7, 0, 9, 4]), lambda: sk.WindowSampler(3, 2)),
    "windows by files": (
        sk.Layout([7, 0, 9, 4]),
        lambda: over(sk.WindowSampler(3), sk.RandomSampler(shuffle="partial", partial_size=4)),
    ),
    "files": (
        sk.Layout([7, 0, 9, 4]),
        lambda: over(sk.FoldSampler(3, 1, by_files=True), sk.WindowSampler(2)),
    ),
    "the rest": (23, lambda: sk.FoldSampler(4, 1)),
    "a fold": (23, lambda: sk.FoldSampler(4, 1, held_out=True)),
    "by labels": (6, lambda: sk.FoldSampler(2, 1, labels=[0, 1, 0, 1, 1, 0])),
    "by groups": (6, lambda: sk.FoldSampler(2, 0, groups=[0, 1, 0, 2, 3, 3])),
}
"""Samplers that repeat and part, which need a dataset of their own."""


def over(child, parent):
    parent.add_child(child)
    return parent


@pytest.mark.parametrize("name", ZOO)
class TestRepeatsAndParts(SamplerContract):
    """What repeats samples, and what parts them."""

    @pytest.fixture(autouse=True)
    def _of_this_name(self, name):
        dataset, self.make = ZOO[name]
        self.datasets = (dataset,)


class ByProcessState(sk.Sampler):
    """Broken: draws from the process-wide generator."""

    def draw(self, layout, context):
        ids = list(range(len(layout)))
        random.shuffle(ids)
        return ids


class ByCall(sk.Sampler):
    """Broken: another order each time it is asked."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def draw(self, layout, context):
        self.calls += 1
        return np.roll(np.arange(len(layout)), self.calls)


class ByLanes(sk.Sampler):
    """Broken: the rank's world is in the order in a way that a resume does not keep."""

    def __init__(self):
        super().__init__()
        self.made = random.Random(random.randrange(10**9))

    def draw(self, layout, context):
        return np.roll(np.arange(len(layout)), self.made.randrange(10**6))


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (ByProcessState, "test_the_order_is_the_same_whenever_and_by_whomever_it_is_asked_for"),
        (ByProcessState, "test_no_process_wide_random_state_is_read_or_touched"),
        (ByCall, "test_the_order_is_the_same_whenever_and_by_whomever_it_is_asked_for"),
        (ByLanes, "test_each_shard_is_the_dealt_view_of_one_order"),
        (ByLanes, "test_a_resumed_loader_loses_and_repeats_nothing"),
    ],
)
def test_a_sampler_that_breaks_a_law_is_found(broken, law):
    contract = SamplerContract()
    contract.make = broken
    with pytest.raises(AssertionError):
        getattr(contract, law)()
