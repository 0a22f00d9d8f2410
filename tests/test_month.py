"""The simulated month of tests/benchmarks/month.py, on a small job: nothing lost, nothing repeated."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest

from samplerkit.loading.run.delivery import Delivery
from samplerkit.loading.state.state import State
from tests.benchmarks.month import layout_of, sampler_of
from tests.benchmarks.scale_month import Job, loader_of, lost_and_repeated, read_window, simulate

SAMPLES, FAILURES = 1_000_000, 60


def job_of(mode):
    return Job(
        layout=layout_of(SAMPLES, 1000),
        recipe=partial(sampler_of, mode),
        batch=4,
        ranks=(64, 63, 56, 48, 32, 7),
        failures=FAILURES,
        steps=(20, 600),
        checkpoint=10,
    )


def moved(state, steps):
    """A checkpoint that says some positions more or less than were read, with a right checksum."""
    read = State.from_dict(state)
    if not 1000 < read.position < SAMPLES - 1000:
        return state
    return dataclasses.replace(read, position=read.position + steps).to_dict()


@pytest.mark.parametrize("mode", ["global", "partial", "files"])
def test_a_month_of_failures_and_changing_ranks_loses_and_repeats_nothing(mode):
    month = simulate(job_of(mode), seed=1, windows=12)
    epochs = {stretch.epoch for stretch in month.stretches}
    assert epochs == set(range(len(epochs)))
    assert len(epochs) >= 2
    assert len({stretch.ranks for stretch in month.stretches}) == 6
    assert len(month.resumes) == FAILURES
    assert month.windows == 12
    assert lost_and_repeated(month.stretches, SAMPLES) == (0, 0)
    # 1,000,000 is a multiple of 64 and 32 and of few other numbers: some epoch ends with pads.
    assert all(0 <= stretch.pads < stretch.ranks for stretch in month.stretches)


@pytest.mark.parametrize(("steps", "counted"), [(5, 0), (-5, 1)], ids=["ahead", "behind"])
def test_a_checkpoint_that_is_off_by_some_positions_is_counted(steps, counted):
    month = simulate(job_of("global"), seed=1, windows=0, saved=partial(moved, steps=steps))
    found = lost_and_repeated(month.stretches, SAMPLES)
    assert found[counted] > 0
    assert found[counted] % 5 == 0
    assert found[1 - counted] == 0


def test_a_deal_that_is_wrong_for_one_rank_is_noticed_in_a_window(monkeypatch):
    reading = loader_of(job_of("partial"), 7, 3)._reading
    assert len(read_window(reading, 11)) == 28
    right = Delivery.dealt
    monkeypatch.setattr(
        Delivery, "dealt", lambda self, shard, step: np.asarray(right(self, shard, step)) + (shard == 6)
    )
    with pytest.raises(AssertionError, match="positions"):
        read_window(reading, 11)
