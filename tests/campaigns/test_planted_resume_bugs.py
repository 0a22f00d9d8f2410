"""Whether the tests would notice: bugs in what is resumed, drawn and agreed upon, planted one at a time.

Run it with `pytest -m campaign tests/campaigns/test_planted_resume_bugs.py`.
"""

from __future__ import annotations

import pytest

from tests.campaigns.planting import Bug, notices

pytestmark = pytest.mark.campaign

STATES, BRIDGE = "tests/loading/test_exactly_once.py", "tests/loading/test_torch_sampler.py"
AGREEMENT, DRAWS = "tests/loading/test_agreement.py", "tests/loading/test_draws.py"
UNEVEN, CURSOR = "tests/loading/test_uneven_ranks.py", "tests/loading/test_cursor_machine.py"

BUGS = [
    Bug(
        "the position counts one rank's samples",
        "Delivery.position_after",
        "self.first(steps)",
        "self.start + steps * self.batch_size",
        STATES,
    ),
    Bug(
        "the end of an epoch is not seen",
        "Delivery.is_over_after",
        "not self.is_of_the_job(steps)",
        "not self.is_of_the_job(steps - 1)",
        STATES,
    ),
    Bug(
        "an epoch ends with the batches of this rank",
        "Readings.reached",
        "delivery.is_over_after(steps)",
        "0 < steps >= self(epoch, start).steps",
        UNEVEN,
    ),
    Bug(
        "any step has a state",
        "Loader.state_dict",
        "not (step == 0 or delivery.is_of_the_job(step - 1))",
        "step < 0",
        UNEVEN,
    ),
    Bug(
        "an epoch of no batches runs ahead",
        "Loader.iterate_on",
        "self._run.require_agreement(reading, self.tail, self._agreement_seconds)",
        "self._run.require_agreement(reading, self.tail, self._agreement_seconds)\n"
        "if not reading.steps:\n"
        "    opened = self._source.open(reading, make_stage, run_ahead=run_ahead)",
        "tests/loading/test_run_ahead.py",
    ),
    Bug(
        "ragged ranks get one sample too many",
        "Delivery.samples",
        "self.seat(shard) < rest",
        "self.seat(shard) <= rest",
        STATES,
    ),
    Bug(
        "drop rounds up",
        "Delivery.samples",
        "self.first(self.job_steps) - self.start",
        "self.first(self.job_steps + 1) - self.start",
        STATES,
    ),
    Bug(
        "the first position of a step is off by one",
        "Delivery.dealt",
        "first, seat, covered = self.first(step), self.seat(shard), self.stage_of(step).size",
        "first, seat, covered = self.first(step) + (step > 1), self.seat(shard), self.stage_of(step).size",
        STATES,
    ),
    Bug(
        "lanes are dealt from the wrong end",
        "Delivery._in_lane_order",
        "ranks - ends[lane] + counts[lane]",
        "ranks - ends[lane] + counts[0]",
        STATES,
    ),
    Bug(
        "the saved constants are ignored",
        "Run.restore",
        "RunConstants(state.lanes, state.limit)",
        "self.recipe.run_constants(self.world)",
        STATES,
    ),
    Bug(
        "an epoch that stays is passed over",
        "Cursor._beyond",
        "Iteration(at.epoch, is_finished=True)",
        "Iteration(at.epoch + 1)",
        CURSOR,
    ),
    Bug(
        "a finished epoch that stays has no end in its state",
        "Cursor.place",
        "is_over or at.is_finished",
        "is_over",
        CURSOR,
    ),
    Bug(
        "what is left early counts from its start",
        "Cursor.end",
        "self._move(iteration if beyond is None else beyond)",
        "self._move(Iteration(iteration.epoch, iteration.start) if beyond is None else beyond)",
        CURSOR,
    ),
    Bug(
        "an epoch that is set in a loop holds at once",
        "Cursor.set_epoch",
        "self._waits and at.is_open",
        "False",
        CURSOR,
    ),
    Bug(
        "a device loader counts what is loaded",
        "Steps.reached",
        "start + taken",
        "taken",
        CURSOR,
    ),
    Bug(
        "an iteration that was made for another epoch counts",
        "Cursor.begin",
        "made_for is None or made_for == upcoming",
        "True",
        "tests/compat/test_torch.py::test_an_iteration_that_was_made_for_another_epoch_counts_for_nobody",
    ),
    Bug(
        "labels that changed are let in",
        "Run._described_as",
        "describe_dataset(dataset, blocks) + looks",
        "describe_dataset(dataset, blocks)",
        "tests/loading/test_changed_datasets.py",
    ),
    Bug(
        "a dataset is told what comes next with each batch",
        "RequestedDataset.begin",
        "last.step < request.step",
        "last.step > request.step",
        "tests/loading/test_expect.py",
    ),
    Bug(
        "a draw is that of its sample",
        "RequestedDataset._draws",
        "request.positions",
        "request.ids",
        DRAWS,
    ),
    Bug(
        "draws are counted in their batch",
        "Asked.requests",
        "Request(reading.epoch, reading.start, step, ids, draws, told, segments, edits)",
        "Request(reading.epoch, reading.start, step, ids, range(len(ids)), told, segments, edits)",
        DRAWS,
    ),
    Bug(
        "all epochs have the same draws",
        "Draw.digest",
        'struct.pack("<QQQ", self.seed, self.epoch, self.position)',
        'struct.pack("<QQQ", self.seed, 0, self.position)',
        DRAWS,
    ),
    Bug(
        "samples are read by the seed of the one before",
        "Draws.enter",
        "self._begin(self.draw(place))",
        "self._begin(self.draw(max(0, place - 1)))",
        DRAWS,
    ),
    Bug(
        "the generators of the loop stay seeded",
        "kept_generators",
        "random.setstate(before[1])",
        "pass",
        DRAWS,
    ),
    Bug(
        "ranks are never compared",
        "Agreement._wait",
        "self._refuse(others, turn, identity)",
        "pass",
        AGREEMENT,
    ),
    Bug(
        "the bridge forgets the other ranks",
        "_reached",
        "start + ids * run.world.num_shards",
        "start + ids",
        BRIDGE,
    ),
    Bug(
        "the bridge is over with the ids of this rank",
        "_reached",
        "0 < position >= len(run.undealt(epoch))",
        "0 < ids >= len(run.undealt(epoch)) // run.world.num_shards",
        BRIDGE,
    ),
    Bug(
        "the bridge passes over an epoch that is set again",
        "Cursor.set_epoch",
        "epoch != at.epoch or at.is_finished or self._is_over",
        "epoch != at.epoch or at.is_finished",
        BRIDGE,
    ),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_noticed(bug):
    assert notices(bug)
