"""The whole campaign over threads: `python -m tests.campaigns.thread_runs`, some minutes of two cores."""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.campaigns.thread_runs.endings import ended_at_random
from tests.campaigns.thread_runs.kills import killed_again_and_again

WARM_UP = 60
"""Endings after which torch has begun the threads that it keeps."""


def held() -> tuple[int, int, int]:
    """The threads, the descriptors and the bytes in memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    here = (len(list(Path(f"/proc/self/{what}").iterdir())) for what in ("task", "fd"))
    return (*here, pages * resource.getpagesize())  # type: ignore[return-value]


def settled(looks: int = 20, wanted: int = 0) -> tuple[int, int, int]:
    """The same with the fewest threads of so many looks: one that was joined may leave a little later."""
    fewest = held()
    for _ in range(looks):
        if fewest[0] > wanted:
            time.sleep(0.05)
            fewest = min(fewest, held())
    return fewest


def main() -> None:
    """Runs all, and prints what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endings", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=200)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        batches, lost, repeated = killed_again_and_again(Path(folder), asked.kills, seed=1)
    print(f"{asked.kills} kills: {batches} batches, {lost} samples lost, {repeated} repeated", flush=True)
    for seed in range(WARM_UP):
        ended_at_random(10**6 + seed)
    ends, wrong, before = Counter[str](), list[str](), settled()
    for seed in range(asked.endings):
        end, found = ended_at_random(seed)
        ends[end] += 1
        wrong += found
    grown = [now - then for now, then in zip(settled(400, wanted=before[0]), before, strict=True)]
    print(f"{asked.endings} endings, {dict(ends)}: wrong {wrong or 0}")
    print(f"grown by them: threads {grown[0]}, descriptors {grown[1]}, bytes {grown[2]}", flush=True)
    if wrong or lost or repeated:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
