"""The doctor finds each planted mistake, with its hint, and is silent on healthy set-ups."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
import torch
from torch.utils.data import (
    DataLoader,
)

import samplerkit as sk
from samplerkit.inspect import check
from samplerkit.inspect.doctor.findings import KINDS
from tests.inspect.healthy_setups import HEALTHY
from tests.inspect.planted_setups import ALONG_WITH, PLANTED
from tests.inspect.setups import FOUR, ROWS, Dealt, FromNumpy, bridged, of_files, of_torch, ours


@pytest.mark.parametrize(("code", "make"), PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_mistake_is_found_and_nothing_else(code, make):
    findings = check(make(), world=FOUR)
    assert code in {finding.code for finding in findings}
    assert {finding.code for finding in findings} - {code} <= ALONG_WITH.get(code, set())
    for finding in findings:
        assert finding.code in KINDS
        assert finding.severity in {"error", "warning"}
        assert len(finding.what) > 20
        assert len(finding.hint) > 10
        assert "\n" not in str(finding)


def test_at_least_one_mistake_is_planted_for_every_code_but_the_one_that_needs_a_function():
    assert {code for code, _ in PLANTED.values()} == set(KINDS) - {"ranks-disagree"}


@pytest.mark.parametrize(("world", "make"), HEALTHY.values(), ids=HEALTHY.keys())
def test_a_healthy_set_up_has_no_findings(world, make):
    assert check(make(), world=world) == ()


def test_before_training_the_epoch_that_is_told_is_the_right_one():
    fresh = DataLoader(ROWS, sampler=of_torch(epoch=0))
    assert check(fresh, world=FOUR, epoch=0) == ()
    (finding,) = check(fresh, world=FOUR, epoch=5)
    assert (finding.code, finding.severity) == ("epoch-frozen", "error")
    assert "stands at epoch 0, and training at 5" in finding.what


def test_the_figures_and_the_mend_of_the_trap_of_partial_size():
    (finding,) = check(of_files([1437] * 8, shuffle="partial", partial_size=1437))
    assert "1437" in finding.what
    assert "partial_size=2156" in finding.hint


def test_saving_the_state_of_the_bridge_is_said_before_anything_is_lost():
    loader = bridged(sk.RandomSampler(), num_workers=2)
    assert check(loader, world=FOUR) == ()
    (finding,) = check(loader, world=FOUR, saves_state=True)
    assert finding.code == "resume-inexact"
    assert "4 batches ahead" in finding.what
    assert check(bridged(sk.RandomSampler()), world=FOUR, saves_state=True) == ()


def made_by_the_clock():
    return ours(sk.RandomSampler(seed=time.time_ns() % 2**40))


def made_from_the_process():
    return DataLoader(ROWS, sampler=of_torch(seed=random.randrange(2**20)))


def test_a_function_that_makes_another_order_each_time_is_found():
    for make in (made_by_the_clock, made_from_the_process):
        (finding,) = check(make, world=FOUR)
        assert finding.code == "ranks-disagree"
        assert "the seed" in finding.what
    assert check(lambda: ours(sk.RandomSampler(seed=7))) == ()


def test_a_config_is_checked_too():
    layout = {"kind": "layout", "sizes": [500] * 8}
    sampler = {"kind": "distributed", "shuffle": "partial", "partial_size": 500}
    config = sk.load_config({"dataset": layout, "sampler": sampler})
    assert [finding.code for finding in check(config, world=sk.World(4, 0))] == ["partial-size-in-file"]


def test_checking_leaves_the_random_states_and_the_sampler_as_they_were():
    sampler = FromNumpy()
    loader = DataLoader(range(100), sampler=Dealt(sampler, 4, 1))
    legacy = np.random.mtrand._rand  # what np.random.permutation draws from
    before = torch.get_rng_state(), legacy.get_state()[1].copy(), random.getstate()
    check(loader, world=FOUR)
    check(made_from_the_process, world=FOUR)
    random.setstate(before[2])  # the function itself has drawn once
    check(loader, world=FOUR)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(legacy.get_state()[1], before[1])
    assert random.getstate() == before[2]


def test_what_is_no_loader_is_an_error():
    with pytest.raises(sk.ArgumentTypeError, match="must be a samplerkit Loader"):
        check([1, 2, 3])
    with pytest.raises(sk.ArgumentTypeError, match="must be a World"):
        check(ours(sk.RandomSampler()), world=4)
