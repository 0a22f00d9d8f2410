"""A month of 4,096 ranks over 10^12 samples in 10^6 files, with a failure every hour, simulated.

Run it with `python -m tests.benchmarks.month` (a few minutes; `--quick` a tenth of the failures). It prints
Markdown, as it stands in docs/performance.md: lost and repeated samples, and the time spent on resuming. What
a rank holds in memory is counted by scale.py.

An incarnation begins from a checkpoint on some number of ranks and ends in a failure. Its loaders are real,
and so are their orders and states, which go through JSON; what the other ranks read is evaluated from the
same values.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import numpy as np

import samplerkit as sk
from samplerkit.loading.run.delivery import Reading
from tests.benchmarks.report import print_header, print_row

SAMPLES, FILES, RANKS, BATCH = 10**12, 10**6, 4096, 32
STEPS_AN_HOUR = 14_400
"""Four steps a second."""
AFTERWARDS = (4096, 4088, 4032, 3840, 3584, 2048)
HOURS = 30 * 24
MODES = ("global", "partial")
WINDOWS = 12

LOOKED_UP = 256
"""How many ids of a step are looked up in the order's inverse, about."""

OTHER_RANKS = 2
"""How many other ranks load the same state, and must give the same one later."""


@dataclass(frozen=True)
class Job:
    """What is trained, and how it fails.

    Args:
        layout: the dataset.
        recipe: makes the sampler, anew in each incarnation.
        batch: samples a rank and step.
        ranks: the numbers of ranks among which each incarnation finds one; the first has the first.
        failures: how many incarnations there are.
        steps: how many steps an incarnation takes before it fails: at least and at most.
        checkpoint: every how many steps the state is saved.
    """

    layout: sk.Layout
    recipe: Callable[[], sk.Sampler]
    batch: int
    ranks: tuple[int, ...]
    failures: int
    steps: tuple[int, int]
    checkpoint: int


@dataclass(frozen=True)
class Stretch:
    """What one incarnation read of one epoch and kept: positions [start, end) on some number of ranks.

    Args:
        epoch: the epoch.
        start: the first position.
        end: the position of the checkpoint, or the end of the epoch.
        ranks: the number of ranks.
        pads: how many samples were repeated to fill the last batches of the epoch.
    """

    epoch: int
    start: int
    end: int
    ranks: int
    pads: int


@dataclass(frozen=True)
class Month:
    """What came of a job.

    Args:
        stretches: what was kept, in the order of time.
        resumes: seconds from a saved state to the ids of the first batch, of each incarnation and one rank.
        again: samples that were read after the last checkpoint, and so again after the failure.
        state_bytes: the size of the largest state.
        windows: how many steps were read on all their ranks.
        window_ids: how many ids these held.
    """

    stretches: list[Stretch]
    resumes: list[float]
    again: int
    state_bytes: int
    windows: int
    window_ids: int


def lost_and_repeated(stretches: Iterable[Stretch], total: int) -> tuple[int, int]:
    """Counts positions that no stretch covers, and those beyond the first covering, over all epochs.

    The last epoch is unfinished: what lies behind its last stretch is not lost.

    Args:
        stretches: what was kept.
        total: N, the number of positions of an epoch.
    """
    by_epoch: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for stretch in stretches:
        by_epoch[stretch.epoch].append((stretch.start, stretch.end))
    lost = repeated = 0
    for epoch, intervals in by_epoch.items():
        reached = 0
        for start, end in sorted(intervals):
            lost += max(0, start - reached)
            repeated += max(0, min(reached, end) - start)
            reached = max(reached, end)
        if epoch != max(by_epoch):
            lost += total - reached
    return lost, repeated


def loader_of(job: Job, ranks: int, rank: int) -> sk.Loader:
    """Makes the loader of one rank, as its process does."""
    return sk.Loader(job.layout, job.recipe(), batch_size=job.batch, world=sk.World(ranks, rank))


def read_window(reading: Reading, step: int) -> np.ndarray[Any, Any]:
    """Gives the ids that all ranks read in a step.

    Raises:
        AssertionError: the ranks' positions are not the step's, each once, or the order does not find the
            positions of these ids again.
    """
    delivery, order = reading.delivery, reading.units.order
    ranks = [dataclasses.replace(reading, shard=rank) for rank in range(delivery.num_shards)]
    parts = [rank.draws(step) for rank in ranks]
    positions = np.concatenate(parts)
    first = delivery.start + step * delivery.global_batch
    expected = np.arange(first, min(first + delivery.global_batch, delivery.total))
    assert np.array_equal(np.sort(positions[positions < delivery.total]), expected), "positions"
    ids = order.ids_at(positions % delivery.total)
    for rank, place in ((ranks[0], 0), (ranks[-1], positions.size - parts[-1].size)):
        of_rank = rank.ids(step)
        assert np.array_equal(of_rank, ids[place : place + of_rank.size]), "ids of a rank"
    for place in np.flatnonzero(positions < delivery.total)[:: max(1, ids.size // LOOKED_UP)].tolist():
        assert order.positions_of(int(ids[place])).tolist() == [positions[place]], "inverse"
    return ids[positions < delivery.total]


def simulate(job: Job, seed: int, windows: int) -> Month:
    """Lives through a month.

    Args:
        job: what is trained.
        seed: of the failures.
        windows: in how many incarnations to read a step on all ranks, and to compare the states of others.

    Raises:
        AssertionError: ranks disagree, a window is not read once, or two windows share an id.
    """
    random = Random(seed)
    looked_at = set(random.sample(range(job.failures), min(windows, job.failures)))
    stretches: list[Stretch] = []
    resumes: list[float] = []
    ids_of: dict[int, list[np.ndarray[Any, Any]]] = defaultdict(list)
    again = state_bytes = 0
    state: str | None = None
    for number in range(job.failures):
        ranks = job.ranks[0] if number == 0 else random.choice(job.ranks)
        start = time.perf_counter()
        loader = loader_of(job, ranks, random.randrange(ranks))
        if state is not None:
            loader.load_state_dict(json.loads(state))
        loader.ids(0)
        resumes.append(time.perf_counter() - start)
        steps = random.randint(*job.steps)
        kept = steps // job.checkpoint * job.checkpoint
        again += (steps - kept) * ranks * job.batch
        if number in looked_at:
            window = random.randrange(min(kept, loader.steps_left))
            ids_of[loader.epoch].append(read_window(loader._reading, window))
        while kept:
            some = min(kept, loader.steps_left)
            after = loader.state_dict(step=some)
            delivery = loader._reading.delivery
            end = delivery.position_after(some)
            delivered = delivery.samples(0) * ranks if some == loader.steps_left else end - delivery.start
            stretches.append(
                Stretch(loader.epoch, delivery.start, end, ranks, delivered - (end - delivery.start))
            )
            others = random.sample(range(ranks), OTHER_RANKS) if number in looked_at else []
            for rank in others:
                other = loader_of(job, ranks, rank)
                if state is not None:
                    other.load_state_dict(json.loads(state))
                assert other.state_dict(step=some) == after, f"rank {rank} disagrees"
            state = json.dumps(after)
            state_bytes = max(state_bytes, len(state))
            kept -= some
            if kept:
                loader.load_state_dict(json.loads(state))
    for windows_of_epoch in ids_of.values():
        ids = np.concatenate(windows_of_epoch)
        assert np.unique(ids).size == ids.size, "two windows share an id"
    read = [ids.size for found in ids_of.values() for ids in found]
    return Month(stretches, resumes, again, state_bytes, len(read), sum(read))


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
        ranks=AFTERWARDS,
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
        f"one of {', '.join(f'{ranks:,}' for ranks in AFTERWARDS)} ranks, from a checkpoint of "
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
