"""A month of 4,096 ranks over 10^12 samples in 10^6 files, with a failure every hour, simulated.

Run it with `python -m tests.benchmarks.month` (a few minutes; `--quick` a tenth of the failures). It prints
Markdown, as it stands in docs/performance.md: lost and repeated samples, and the time spent on resuming. What
a rank holds in memory is counted by scale.py. Loaders, orders and states are real; see scale_month.py.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from typing import Any

import numpy as np

import samplerkit as sk
from tests.benchmarks.report import print_header, print_row
from tests.benchmarks.scale_month import Job, Month, lost_and_repeated, simulate

SAMPLES, FILES, RANKS, BATCH = 10**12, 10**6, 4096, 32
STEPS_AN_HOUR = 14_400
"""Four steps a second."""
OTHER_RANKS = (4096, 4088, 4032, 3840, 3584, 2048)
HOURS = 30 * 24
MODES = ("global", "partial")
WINDOWS = 12


def layout_of(samples: int, files: int) -> sk.Layout:
    """Makes files whose sizes differ by up to half of their mean."""
    mean = samples // files
    sizes = np.random.default_rng(0).integers(mean // 2, mean + mean // 2, files)
    missing = samples - int(sizes.sum())
    sizes += missing // files
    sizes[: missing % files] += 1
    return sk.Layout(sizes)


def sampler_of(mode: str) -> sk.Sampler:
    """Makes the recipe of a mode."""
    return sk.DistributedSampler(shuffle=mode, seed=7)


def job_of(layout: sk.Layout, mode: str, failures: int) -> Job:
    """Gives the job: a checkpoint each 600 steps, a failure after half an hour to an hour and a half."""
    return Job(
        layout=layout,
        recipe=partial(sampler_of, mode),
        batch=BATCH,
        ranks=OTHER_RANKS,
        failures=failures,
        steps=(STEPS_AN_HOUR // 2, STEPS_AN_HOUR * 3 // 2),
        checkpoint=600,
    )


def report_month(layout: sk.Layout, failures: int) -> None:
    """Simulates the month in each mode, and prints what came of it."""
    print(
        f"{len(layout):,} samples in {layout.num_files:,} files of {int(layout.sizes.min()):,} to "
        f"{int(layout.sizes.max()):,}; {failures} failures, each after {STEPS_AN_HOUR // 2:,} to "
        f"{STEPS_AN_HOUR * 3 // 2:,} steps of {BATCH} samples a rank; after each the job continues with "
        f"one of {', '.join(f'{ranks:,}' for ranks in OTHER_RANKS)} ranks, from a checkpoint of "
        "every 600 steps.\n"
    )
    months: dict[str, Month] = {}
    for mode in MODES:
        months[mode] = simulate(job_of(layout, mode, failures), seed=1, windows=WINDOWS)
    rows: list[tuple[str, Any]] = [
        ("samples kept", lambda month: f"{sum(s.end - s.start for s in month.stretches):,}"),
        ("of epochs", lambda month: f"{1 + max(s.epoch for s in month.stretches)}"),
        ("lost", lambda month: f"{lost_and_repeated(month.stretches, len(layout))[0]:,}"),
        ("repeated", lambda month: f"{lost_and_repeated(month.stretches, len(layout))[1]:,}"),
        ("pads at the end of an epoch", lambda month: f"{sum(s.pads for s in month.stretches):,}"),
        ("read after the last checkpoint, and so again", lambda month: f"{month.again:,}"),
        ("steps read on all their ranks", lambda month: f"{month.windows}, {month.window_ids:,} ids"),
        ("state", lambda month: f"{month.state_bytes} bytes"),
        ("a resume, median", lambda month: f"{statistics.median(month.resumes) * 1e3:.0f} ms"),
        ("the slowest", lambda month: f"{max(month.resumes) * 1e3:.0f} ms"),
        ("all resumes together, a rank", lambda month: f"{sum(month.resumes):.0f} s"),
        ("of the month", lambda month: f"{sum(month.resumes) / (failures * 3600):.1e}"),
    ]
    print_header("", *(mode.upper() for mode in months))
    for title, shown in rows:
        print_row(title, *map(shown, months.values()))


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the failures")
    options = parser.parse_args()
    report_month(layout_of(SAMPLES, FILES), HOURS // 10 if options.quick else HOURS)


if __name__ == "__main__":
    main()
