"""Bugs in what is resumed, drawn and agreed upon."""

from __future__ import annotations

from tests.campaigns.planting import Bug

STATES = "tests/loading/test_exactly_once.py"
AGREEMENT, DRAWS = "tests/loading/test_agreement.py", "tests/loading/test_draws.py"
UNEVEN, CURSOR = "tests/loading/test_uneven_ranks.py", "tests/loading/test_cursor_machine.py"

HISTORY = "tests/loading/test_history.py"
JOBS = "tests/campaigns/test_random_ledgers.py::test_the_first_of_the_random_jobs_lose_and_repeat_nothing"

BUGS = [
    Bug(
        "a rank that ends a step before the job has not read its last step",
        "Cursor.end",
        "self.past(iteration.taken + lacks_a_step)",
        "self.past(iteration.taken)",
        UNEVEN,
    ),
    Bug(
        "what the tail drops was read",
        "RunCursor.stretch",
        "-delivery.global_batch if drops else -1",
        "-1",
        JOBS,
    ),
    Bug(
        "what was read twice was read once",
        "EpochsRead.joined",
        "self.end == later.begin",
        "self.end >= later.begin",
        JOBS,
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
        "RunCursor.restore",
        "one.is_beyond(place)",
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
        "RunCursor.reached",
        "delivery.is_over_after(taken)",
        "0 < taken >= self.run.reading(epoch, start).steps",
        UNEVEN,
    ),
    Bug(
        "any step has a state",
        "Loader.state_dict",
        "reading.is_spent or not reading.delivery.is_of_the_job(step - 1)",
        "step < 0",
        UNEVEN,
    ),
    Bug(
        "ragged ranks get one sample too many",
        "Delivery.dealt",
        "seat < larger",
        "seat <= larger",
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
        "lane += edges[part]",
        "lane += edges[0]",
        STATES,
    ),
    Bug(
        "the saved constants are ignored",
        "Run.restored",
        "RunConstants(state.lanes, state.limit)",
        "self.recipe.chain.constants(self.world)",
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
        "_reached",
        "start + taken",
        "taken",
        CURSOR,
    ),
    Bug(
        "a draw is that of its sample",
        "SampleReader.draws",
        "request.draws",
        "request.ids",
        DRAWS,
    ),
    Bug(
        "draws are counted in their batch",
        "requests_of",
        "Request(reading.epoch, reading.start, step, ids, draws, columns, segments, cursor.edits)",
        "Request(reading.epoch, reading.start, step, ids, range(len(ids)), known, segments, cursor.edits)",
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
        "self.begin(self.draw(place))",
        "self.begin(self.draw(max(0, place - 1)))",
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
        AGREEMENT,
    ),
    Bug(
        "ranks poll without pauses that grow",
        "Agreement.require",
        "pause = min(_LONGEST_PAUSE, pause * _GROWTH)",
        "pass",
        AGREEMENT,
    ),
    Bug(
        "a group that was given up is still listed",
        "Agreement._unlist",
        "groups.remove(mine)",
        "break",
        AGREEMENT,
    ),
    Bug(
        "nobody looks whether all shards are read",
        "Agreement._complete",
        "problem = '' if reads_all else unread_shards(self._members(mine))",
        "problem = ''",
        AGREEMENT,
    ),
    Bug(
        "a sampler for torch compares nothing",
        "TorchSampler._begun",
        "self._cursor.require_agreement(self._cursor.upcoming)",
        "pass",
        "tests/loading/test_ranks_of_a_job.py",
    ),
    Bug(
        "the bridge passes over an epoch that is set again",
        "Cursor.set_epoch",
        "epoch == at.epoch and not is_over and (at.is_spent or epoch != at.ended)",
        "epoch == at.epoch and (at.is_spent or epoch != at.ended)",
        CURSOR,
    ),
]
