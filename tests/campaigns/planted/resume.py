"""Bugs in what is resumed, drawn and agreed upon."""

from tests.campaigns.planting import Bug

STATES = "tests/loading/test_exactly_once.py"
AGREEMENT, DRAWS = "tests/loading/test_agreement.py", "tests/loading/test_draws.py"
CURSOR = "tests/loading/test_cursor_machine.py"

JOBS = "tests/campaigns/test_random_ledgers.py::test_the_first_of_the_random_jobs_lose_and_repeat_nothing"

BUGS = [
    Bug(
        "what was read twice was read once",
        "EpochsRead.joined",
        "self.end == later.begin",
        "self.end >= later.begin",
        JOBS,
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
        "not self.job_has(steps)",
        "not self.job_has(steps - 1)",
        STATES,
    ),
    Bug(
        "an epoch ends with the batches of this rank",
        "RunCursor.reached",
        "delivery.is_over_after(taken)",
        "0 < taken >= self.run.reading(epoch, start).steps",
        JOBS,
    ),
    Bug("ragged ranks get one sample too many", "Delivery.dealt", "slot < larger", "slot <= larger", STATES),
    Bug(
        "the first position of a step is off by one",
        "Delivery.dealt",
        "first, slot, covered = self.first(step), self.slot(shard), self.stage_of(step).size",
        "first, slot, covered = self.first(step) + (step > 1), self.slot(shard), self.stage_of(step).size",
        STATES,
    ),
    Bug(
        "an epoch that stays is passed over",
        "Cursor._following",
        "end.epoch if self._advances else now.epoch",
        "end.epoch",
        CURSOR,
    ),
    Bug("a device loader counts what is loaded", "_reached", "start + taken", "taken", CURSOR),
    Bug(
        "draws are counted in their batch",
        "requests_of",
        "Request(epoch, start, step, ids, draws, columns, segments, cursor.edits)",
        "Request(epoch, start, step, ids, range(len(ids)), columns, segments, cursor.edits)",
        DRAWS,
    ),
    Bug(
        "all epochs have the same draws",
        "Draw.digest",
        'struct.pack("<QQQ", self.seed, self.epoch, self.position)',
        'struct.pack("<QQQ", self.seed, 0, self.position)',
        DRAWS,
    ),
    Bug("ranks are never compared", "Agreement._require_agreeing", "not groups", "True", AGREEMENT),
    Bug("groups that wait are not listed", "Agreement._check_listed", "not lists", "True", AGREEMENT),
    Bug(
        "ranks poll without pauses that grow",
        "Agreement.require",
        "pause = min(_LONGEST_PAUSE, pause * _GROWTH)",
        "pass",
        AGREEMENT,
    ),
    Bug(
        "nobody looks whether all shards are read",
        "Agreement._complete",
        "problem = '' if reads_all else unread_shards(self._members(own))",
        "problem = ''",
        AGREEMENT,
    ),
    Bug(
        "a sampler for torch compares nothing",
        "TorchSampler._begin",
        "self._cursor.require_agreement(self._cursor.upcoming)",
        "pass",
        "tests/loading/test_ranks_of_a_job.py",
    ),
    Bug(
        "the bridge passes over an epoch that is set again",
        "Cursor.set_epoch",
        "epoch == now.epoch and not is_over and (now.is_spent or epoch != now.ended)",
        "epoch == now.epoch and (now.is_spent or epoch != now.ended)",
        CURSOR,
    ),
]
