"""Counts the ledgers of an edited run. It knows the numbers of the job, and nothing of the package.

Each source is read in its own order, lane by lane: what lane l reads of it is l, l + LANES, l + 2 LANES and
so on. So what was read of a lane and source is one run of numbers from 0 on, with one gap where draws were
skipped.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

ENDS = {"web": 4000, "code": 6500, "books": 8000}
LANES, GLOBAL_BATCH, LENGTH = 4, 24, 2400
CHANGED_AT, SKIPPED_AT, SKIPPED = 20 * GLOBAL_BATCH, 45 * GLOBAL_BATCH, 20 * GLOBAL_BATCH


def source_of(sample: int) -> str:
    return next(name for name, end in ENDS.items() if sample < end)


def steps(folder: Path, runs: list[str]) -> dict[int, list[int]]:
    """The samples of all ranks by the position of their step; what a later run read again counts alone."""
    found: dict[int, list[int]] = {}
    for run in runs:
        of_run = defaultdict(list)
        for path in sorted(folder.glob(f"{run}-*.jsonl")):
            for line in path.read_text().splitlines():
                told = json.loads(line)
                of_run[told["from"]] += told["ids"]
        found = {at: ids for at, ids in found.items() if at < min(of_run)} | of_run
    return found


def verify(folder: Path, runs: list[str]) -> dict[str, object]:
    read = steps(folder, runs)
    samples = [sample for at in sorted(read) for sample in read[at]]
    starts = {"web": 0, "code": ENDS["web"], "books": ENDS["code"]}
    turns = defaultdict(list)
    for sample in samples:
        name = source_of(sample)
        turn, lane = divmod(sample - starts[name], LANES)
        turns[name, lane].append(turn)
    gaps = lost = 0
    for seen in turns.values():
        missing = sorted(set(range(max(seen))) - set(seen))
        gaps += len(missing)
        # More than one run of missing numbers: something else than the skip is gone.
        lost += len(missing) - (missing[-1] - missing[0] + 1 if missing else 0) != 0
    counts = [
        Counter(source_of(sample) for at in read if first <= at < end for sample in read[at])
        for first, end in ((0, CHANGED_AT), (CHANGED_AT, SKIPPED_AT), (SKIPPED_AT, LENGTH))
    ]
    return {
        "steps": len(read),
        "delivered": len(samples),
        "repeated": len(samples) - len(set(samples)),
        "skipped": gaps,
        "runs with other gaps": lost,
        "counts": [dict(sorted(count.items())) for count in counts],
    }


if __name__ == "__main__":
    print(json.dumps(verify(Path(sys.argv[1]), sys.argv[2:])))
