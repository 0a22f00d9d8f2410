"""The whole campaign over recipes for batches: `python -m tests.campaigns.batch_runs RUNS [FIRST]`."""

from __future__ import annotations

import sys

from tests.campaigns.batch_runs.runs import runs_at_random

count, first = int(sys.argv[1]), int([*sys.argv, "0"][2])
for begin in range(first, first + count, 500):
    runs = runs_at_random(range(begin, min(begin + 500, first + count)))
    print(f"{runs.kinds.total()} runs from {begin} on, {runs.steps:,} steps, {len(runs.wrong)} wrong")
    print(*runs.wrong, sep="\n", flush=True)
