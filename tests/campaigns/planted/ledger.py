"""Bugs in skips, weights, states and what edits are legal."""

from tests.campaigns.planting import Bug

BATCHES = "tests/loading/test_batch_states.py"
REMOVED = "tests/samplers/test_removed_ids.py"
CAPS = "tests/samplers/test_repeats_and_parts.py"
RUNS = "tests/loading/test_edits.py"

BUGS = [
    Bug(
        "a lane loses the rows of another one",
        "RemovedPositions.in_stream",
        "self.of_lane(number).rows(rows[at])",
        "self.of_lane(0).rows(rows[at])",
        REMOVED,
    ),
    Bug(
        "a skip is counted as if nothing had been skipped before",
        "RemovedPositions.of_lane",
        "first + np.cumsum(taken) - taken",
        "first",
        REMOVED,
    ),
    Bug(
        "weights change at the row of that number, whatever was skipped before",
        "RemovedPositions.drawn_before",
        "self.of_lane(lane).drawn(before) if self else before",
        "before",
        REMOVED,
    ),
    Bug(
        "ids leave the next pass only, and not the rest of this one",
        "Passes.without",
        "positions[~drawn.has(positions)]",
        "positions[:0]",
        REMOVED,
    ),
    Bug(
        "ids leave what was drawn too",
        "Passes.without",
        "positions[~drawn.has(positions)]",
        "positions",
        REMOVED,
    ),
    Bug(
        "rows that ids leave are not looked for again when weights change",
        "_with_changes",
        "source = _reweighted(source, segments, removed)\n"
        "removed = replace(removed, positions=source.removed)",
        "source = _reweighted(source, segments, removed)",
        REMOVED,
    ),
    Bug(
        "the rest of a woven pass is not cut into lanes again",
        "WithoutIds.__post_init__",
        "rows = np.sort(self._woven.ids_at(order.locate(self.ids)[1]))",
        "rows = np.sort(order.locate(self.ids)[1])",
        REMOVED,
    ),
    Bug(
        "a step that has begun ends by the size behind it",
        "Delivery.stages",
        "max(0, -(-(at - last.begin) // last.size))",
        "max(0, (at - last.begin) // last.size)",
        RUNS,
    ),
    Bug(
        "samples are looked for as if all steps had one size",
        "occurrences_of",
        "numbers[stage] + (dealt - begins[stage]) // sizes[stage]",
        "(dealt - delivery.start) // sizes[0]",
        RUNS,
    ),
    Bug("ranks that do not divide a step are let in", "require_divided", "size % ranks", "False", RUNS),
    Bug(
        "a window that has begun may be edited",
        "EpochBatches.run_position",
        "window + (position > before)",
        "window",
        BATCHES,
    ),
    Bug(
        "batches continue by the order before the edit",
        "BatchUnit.of_epoch",
        "self.plans.get(run.constants, make).read_by(run.sampler)",
        "self.plans.get(run.constants, make)",
        BATCHES,
    ),
    Bug("what workers fetch is edited", "RunCursor.make_edit", "edit.at < first", "edit.at < 0", RUNS),
    Bug(
        "requests continue by the order before the edit",
        "RunCursor.steps",
        "reading = run.reading(reading.epoch, reading.delivery.start)",
        "pass",
        RUNS,
    ),
    Bug(
        "a state behind other edits is let in",
        "EditHistory._require_past",
        "agreed == past == current",
        "past == current",
        RUNS,
    ),
    Bug(
        "a cap looks at the first lane only",
        "_cap_position",
        "np.arange(begin, begin + mix.lanes)",
        "np.arange(begin, begin + 1)",
        CAPS,
    ),
    Bug(
        "an edit behind a cap gives the source its weight again",
        "_with_stop",
        "change.weights is None",
        "change.weights is None or change.at > at",
        CAPS,
    ),
    Bug(
        "an edit at the position of a state is past",
        "Ledger.past",
        "bisect.bisect_left",
        "bisect.bisect_right",
        RUNS,
    ),
]
