"""Adversarial schedules of copies, events and memory: what the loop reads is right, and memory is bounded."""

import pytest

from tests.loading.device.stream_simulator import Schedule

SCHEDULES = 300  # each known bad design shows within 150
DEPTHS = (1, 2, 4)

KNOWN_BAD = {
    "no wait, as in the published design": {"waits": False, "records": False, "fences": False},
    "no wait, but all else": {"waits": False},
    "wait only": {"records": False, "fences": False},
    "wait and a window, but no record_stream": {"records": False},
    "keep the last four": {"records": False, "fences": False, "keeps_last": 4},
    "sources that are forgotten at once": {"forgets_sources": True},
}
"""Ways in which others go wrong, or we would."""


def outcomes(count, **options):
    return [
        (depth, Schedule(seed, depth, **options).run())
        for seed, depth in ((seed, DEPTHS[seed % len(DEPTHS)]) for seed in range(count))
    ]


def test_no_schedule_reads_invalid_memory_and_memory_is_bounded_by_the_window():
    runs = outcomes(SCHEDULES)
    assert {outcome.taken for _, outcome in runs} == {12}
    assert sum(outcome.device.wrong for _, outcome in runs) == 0
    assert sum(outcome.device.reads for _, outcome in runs) > 12_000
    for depth, outcome in runs:
        assert outcome.device.reserved <= (depth + 2) * Schedule.TENSORS
    # The bound is met: the test would see one batch more.
    for depth in DEPTHS:
        assert max(run.device.reserved for d, run in runs if d == depth) > (depth + 1) * Schedule.TENSORS


@pytest.mark.parametrize("loop_streams", [(1, 2), (1, 1, 1, 2)])
def test_a_loop_may_keep_batches_for_longer_and_change_its_stream(loop_streams):
    runs = outcomes(150, holds=True, loop_streams=loop_streams)
    assert sum(outcome.device.wrong for _, outcome in runs) == 0


def test_memory_does_not_grow_with_the_length_of_the_run():
    assert (
        max(Schedule(seed, 2, batches=100).run().device.reserved for seed in range(40))
        <= 4 * Schedule.TENSORS
    )


@pytest.mark.parametrize("options", KNOWN_BAD.values(), ids=KNOWN_BAD.keys())
def test_a_known_bad_design_reads_invalid_memory(options):
    wrong = [outcome.device.wrong for _, outcome in outcomes(150, **options)]
    print(f"wrong in {sum(map(bool, wrong))} of {len(wrong)} schedules")
    assert sum(wrong) > 0
