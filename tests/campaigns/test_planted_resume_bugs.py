"""Whether the tests would notice: bugs in what is resumed, drawn and agreed upon, planted one at a time.

Run it with `pytest -m campaign tests/campaigns/test_planted_resume_bugs.py`.
"""

from __future__ import annotations

import pytest

from tests.campaigns.planting import Bug, notices

pytestmark = pytest.mark.campaign

STATES, BRIDGE = "tests/loading/test_exactly_once.py", "tests/loading/test_torch_sampler.py"
REQUESTS = "tests/loading/test_agreement_requests.py"
AGREEMENT, DRAWS = "tests/loading/test_agreement.py", "tests/loading/test_draws.py"
UNEVEN, CURSOR = "tests/loading/test_uneven_ranks.py", "tests/loading/test_cursor_machine.py"

HISTORY = "tests/loading/test_history.py"

BUGS = [
    Bug(
        "a rank that ends a step before the job has not read its last step",
        "Cursor.end",
        "self.past(iteration.taken + lacks_a_step)",
        "self.past(iteration.taken)",
        f"{HISTORY} tests/loading/test_uneven_ranks.py",
    ),
    Bug(
        "what the tail drops was read",
        "CurrentRun.stretch",
        '-delivery.global_batch if self.tail == "drop" else -1',
        "-1",
        HISTORY,
    ),
    Bug(
        "what was read twice was read once",
        "EpochsRead.joined",
        "self.end == later.begin",
        "self.end >= later.begin",
        HISTORY,
    ),
    Bug(
        "what another order has read is asked of this one",
        "Run.restored",
        "state = Past.of(state).forgotten().in_state(state)",
        "pass",
        HISTORY,
    ),
    Bug(
        "an edit may change what was read before the run went back",
        "CurrentRun.restore",
        "one.epoch + one.epochs > state.epoch + 1",
        "False",
        HISTORY,
    ),
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
        "CurrentRun.reached",
        "delivery.is_over_after(steps)",
        "0 < steps >= self.reading(epoch, start).steps",
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
        "self._current.require_agreement(iteration)",
        "self._current.require_agreement(iteration)\nif not reading.steps:\n"
        "    opened = self._source.open(reading, make_stage, run_ahead=run_ahead)",
        "tests/loading/test_run_ahead.py",
    ),
    Bug(
        "ragged ranks get one sample too many",
        "Delivery.dealt",
        "seat < larger",
        "seat <= larger",
        STATES,
    ),
    Bug(
        "drop rounds up",
        "Delivery.is_of_the_job",
        "self.stage_of(step).size - 1",
        "self.stage_of(step).size - 2",
        UNEVEN,
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
        "lane += edges[part]",
        "lane += edges[0]",
        STATES,
    ),
    Bug(
        "the saved constants are ignored",
        "Run.restored",
        "RunConstants(state.lanes, state.limit)",
        "self.recipe.run_constants(self.world)",
        STATES,
    ),
    Bug(
        "an epoch that stays is passed over",
        "Cursor._beyond",
        "end.epoch if self._advances else at.epoch",
        "end.epoch",
        CURSOR,
    ),
    Bug(
        "a finished epoch that stays has no end in its state",
        "Cursor.place",
        "return at.stands_at",
        "pass",
        CURSOR,
    ),
    Bug(
        "what is left early counts from its start",
        "Cursor.end",
        "self._move(iteration)",
        "self._move(Iteration(iteration.epoch, iteration.start))",
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
        "StepProgress.reached",
        "start + taken",
        "taken",
        CURSOR,
    ),
    Bug(
        "an iteration that was made for another epoch counts",
        "Cursor.begin",
        "iteration.reads_as(upcoming)",
        "True",
        "tests/compat/test_torch.py::test_an_iteration_that_was_made_for_another_epoch_counts_for_nobody",
    ),
    Bug(
        "labels that changed are let in",
        "Run._described_as",
        "described + describe_looks(self.recipe, dataset)",
        "described",
        "tests/loading/test_changed_datasets.py",
    ),
    Bug(
        "a dataset is told what comes next with each batch",
        "Request.follows",
        "last.step < self.step",
        "last.step > self.step",
        "tests/loading/test_expect.py",
    ),
    Bug(
        "a draw is that of its sample",
        "SampleReader.draws",
        "request.positions",
        "request.ids",
        DRAWS,
    ),
    Bug(
        "draws are counted in their batch",
        "requests_of",
        "Request(reading.epoch, reading.start, step, ids, draws, columns, segments, current.edits)",
        "Request(reading.epoch, reading.start, step, ids, range(len(ids)), known, segments, current.edits)",
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
        'random.setstate(before["random"])',
        "pass",
        DRAWS,
    ),
    Bug(
        "ranks are never compared",
        "Agreement._require_agreeing",
        "not groups",
        "True",
        AGREEMENT,
    ),
    Bug(
        "groups that wait are not listed",
        "Agreement._look",
        "not lists",
        "True",
        REQUESTS,
    ),
    Bug(
        "ranks poll without pauses that grow",
        "Agreement.require",
        "pause = min(_LONGEST_PAUSE, pause * _GROWTH)",
        "pass",
        REQUESTS,
    ),
    Bug(
        "a group that was given up is still listed",
        "Agreement._unlist",
        "groups.remove(mine)",
        "break",
        REQUESTS,
    ),
    Bug(
        "who finds a disagreement ends before the others know",
        "Agreement._let_all_know",
        "self._clock.sleep(2 * _LONGEST_PAUSE)",
        "pass",
        REQUESTS,
    ),
    Bug(
        "nobody looks whether all shards are read",
        "Agreement._complete",
        "problem = '' if reads_all else unread_shards(self._members(mine))",
        "problem = ''",
        REQUESTS,
    ),
    Bug(
        "a sampler for torch compares nothing",
        "TorchSampler._begun",
        "self._current.require_agreement(self._cursor.upcoming)",
        "pass",
        "tests/loading/test_unread_shards.py",
    ),
    Bug(
        "the bridge counts two samples a step",
        "TorchSampler._count",
        "CurrentRun(run, 1, tail, self._seconds)",
        "CurrentRun(run, 2, tail, self._seconds)",
        BRIDGE,
    ),
    Bug(
        "the bridge passes over an epoch that is set again",
        "Cursor.set_epoch",
        "epoch == at.epoch and not is_over and (at.is_spent or epoch != at.ended)",
        "epoch == at.epoch and (at.is_spent or epoch != at.ended)",
        BRIDGE,
    ),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_noticed(bug):
    assert notices(bug)
