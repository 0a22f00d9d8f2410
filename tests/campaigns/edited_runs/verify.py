"""Counts the ledgers of an edited run. It knows the numbers of the job, and nothing of the package.

Each source is read in its own order, lane by lane: what lane l reads of it is l, l + LANES, l + 2 LANES and
so on. So what was read of a lane and source in the first epoch is one run of numbers from 0 on, with one gap
where draws were skipped. The second epoch goes on behind it. From where samples leave, a lane does not read
them in the pass under way, and the passes behind it are over the samples that remain.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

ENDS = {"web": 4000, "code": 6500, "books": 8000}
LANES, GLOBAL_BATCH, LENGTH = 4, 24, 2400
CHANGED_AT, SKIPPED_AT, SKIPPED = 20 * GLOBAL_BATCH, 45 * GLOBAL_BATCH, 20 * GLOBAL_BATCH
THINNED_AT, GROWN_AT, SHRUNK_AT = LENGTH + 480, LENGTH + 960, LENGTH + 1920


STARTS = {"web": 0, "code": ENDS["web"], "books": ENDS["code"]}


def has_left(sample: int) -> bool:
    return sample < ENDS["code"] and sample % 3 == 0


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


def of_a_source(name: str, lane: int, begun: int, is_thinned: bool) -> Iterator[int]:
    """What a lane reads of a source from its turn of this number on, in the first pass and the next ones."""
    everything = range(STARTS[name], ENDS[name])
    left = [sample for sample in everything if not has_left(sample)]
    for at in count(begun * LANES + lane, LANES):
        if at >= len(everything):
            yield left[(at - len(everything)) % len(left)]
        elif not (is_thinned and has_left(everything[at])):
            yield everything[at]


def lane_of(sample: int, begun: dict[tuple[str, int], int]) -> tuple[str, int]:
    """The source and lane that a sample was read of; one from before `begun` turns is of a new pass."""
    name = source_of(sample)
    place = sample - STARTS[name]
    if place // LANES >= min(turn for (one, _), turn in begun.items() if one == name):
        return name, place % LANES
    before = sum(not has_left(one) for one in range(STARTS[name], sample))
    return name, (ENDS[name] - STARTS[name] + before) % LANES


def verify_second(read: dict[int, list[int]]) -> dict[str, object]:
    """Counts the second epoch: what each lane reads of each source behind what it read in the first one."""
    begun: dict[tuple[str, int], int] = {}
    for sample in (sample for at, ids in read.items() if at < LENGTH for sample in ids):
        turn, lane = divmod(sample - STARTS[source_of(sample)], LANES)
        begun[source_of(sample), lane] = max(turn + 1, begun.get((source_of(sample), lane), 0))
    lost = repeated = anew = 0
    for begin, end in ((LENGTH, THINNED_AT), (THINNED_AT, 2 * LENGTH)):
        seen: dict[tuple[str, int], Counter[int]] = defaultdict(Counter)
        for sample in (sample for at, ids in read.items() if begin <= at < end for sample in ids):
            seen[lane_of(sample, begun)][sample] += 1
        for (name, lane), samples in seen.items():
            following = of_a_source(name, lane, begun[name, lane], is_thinned=begin == THINNED_AT)
            wanted = Counter(islice(following, samples.total()))
            lost += (wanted - samples).total()
            repeated += (samples - wanted).total()
            anew += (min(samples) - STARTS[name]) // LANES < begun[name, lane]
            begun[name, lane] = (max(samples) - STARTS[name]) // LANES + 1
    behind = [sample for at, ids in read.items() if at >= THINNED_AT for sample in ids]
    bounds = ((LENGTH, GROWN_AT), (GROWN_AT, SHRUNK_AT), (SHRUNK_AT, 2 * LENGTH))
    return {
        "delivered": sum(len(ids) for at, ids in read.items() if at >= LENGTH),
        "lost": lost,
        "repeated": repeated,
        "read after they left": sum(map(has_left, behind)),
        "sizes": [
            dict(Counter(len(ids) for at, ids in read.items() if low <= at < high)) for low, high in bounds
        ],
        "lanes in a new pass": anew,
    }


def verify(folder: Path, runs: list[str]) -> dict[str, object]:
    whole = steps(folder, runs)
    read = {at: ids for at, ids in whole.items() if at < LENGTH}
    samples = [sample for at in sorted(read) for sample in read[at]]
    turns = defaultdict(list)
    for sample in samples:
        name = source_of(sample)
        turn, lane = divmod(sample - STARTS[name], LANES)
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
        "second": verify_second(whole) if max(whole) >= LENGTH else None,
    }


if __name__ == "__main__":
    print(json.dumps(verify(Path(sys.argv[1]), sys.argv[2:])))
