"""Measures one peer, in the process and the environment of that peer: cells in, JSON lines out.

Each peer's script calls `main` with an object that offers what the peer can do. Standard library only.
"""

import gc
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from typing import Any

from tests.benchmarks.peers.cases import BATCH, RESIZES, SHARDS
from tests.benchmarks.peers.memory import PeakGrowth

WARM_UP = 10_000
RATE_SECONDS = 1.0
REPEAT_SECONDS, REPEATS = 4.0, 5
ROWS_RUNS = 3

Iteration = tuple[Iterable[list[int]], Callable[[], Any] | None]
"""The ids of the batches of a rank, and what gives its state; the state is the steps read if nothing does."""


class Peer:
    """What a peer's script offers.

    Attributes:
        packages: whose versions are reported.
        variants: the ways in which the rows in memory can be read.
        rules: the ways in which an epoch can be taken up.
        lacks: by cell, why the peer has nothing that does what it asks for, or what there is in its place.
    """

    packages: tuple[str, ...]
    variants: Sequence[str]
    rules: Sequence[str]
    lacks: Mapping[str, str] = {}

    def batches(self, size: int) -> Iterator[Any]:
        """Makes everything from nothing, and iterates over the ids of batches."""
        raise NotImplementedError

    def seek(self, size: int) -> Callable[[], Any]:
        """Prepares an epoch; the work is to give the ids of the batch in its middle."""
        raise NotImplementedError

    def resume(self, size: int) -> Callable[[], Any]:
        """Prepares a state in mid-epoch; the work is to load it into new objects and give the next batch."""
        raise NotImplementedError

    def rows(self, count: int, workers: int, variant: str) -> Callable[[], Iterable[Any]]:
        """Prepares rows; the work is one epoch of batches of them."""
        raise NotImplementedError

    def iterate(self, rule: str, size: int, ranks: int, rank: int, batch: int, state: Any) -> Iteration:
        """Starts an epoch on one rank, from a state if there is one; returns batches and a state function."""
        raise NotImplementedError

    def read(
        self, rule: str, size: int, ranks: int, batch: int, states: list[Any] | None, steps: int | None
    ) -> tuple[list[int], list[Any]]:
        """Reads with all ranks, from states on, for some steps or to the end; gives ids, and their states."""
        received: list[int] = []
        after = []
        for rank in range(ranks):
            batches, saved = self.iterate(rule, size, ranks, rank, batch, states and states[rank])
            for ids in islice(batches, steps):
                received += ids
            after.append(steps if saved is None else json.dumps(saved()))
        return received, after


def emit(**values: Any) -> None:
    """Prints a measured cell."""
    print(json.dumps(values), flush=True)


def loaded(make: Callable[[], Any], state: Any) -> Callable[[], Any]:
    """Loads a state into a new loader, and gives its next batch."""

    def work() -> Any:
        loader = make()
        loader.load_state_dict(state)
        return next(iter(loader))

    return work


def timed(work: Callable[[], Any]) -> tuple[float, int]:
    """Gives the median seconds of a work, and of how many runs: fewer where one takes long."""
    taken: list[float] = []
    while len(taken) < REPEATS and sum(taken) < REPEAT_SECONDS:
        gc.collect()
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken), len(taken)


def epoch_of(begin: Callable[[], Iterator[Any]], total: int, count: Callable[[Any], int]) -> dict[str, float]:
    """Reads an epoch from its start to its end, or for a second after its first batch.

    Args:
        begin: makes the batches.
        total: how many ids or rows an epoch has.
        count: returns their number in a batch.

    Returns:
        The seconds to the first batch, and ids or rows a second over the whole epoch, its start included;
        what was not read of it is taken to come as fast as what was.
    """
    start = time.perf_counter()
    batches = begin()
    remaining = max(0, total - count(next(batches)))
    first = time.perf_counter() - start
    rest = 0
    start = time.perf_counter()
    for batch in batches:
        rest += count(batch)
        if time.perf_counter() - start > RATE_SECONDS:
            break
    seconds = time.perf_counter() - start
    return {"seconds": first, "per_second": total / (first + (seconds * remaining / rest if rest else 0))}


def measure_epoch(peer: Peer, size: int) -> dict[str, float]:
    """Measures an epoch from nothing: its first batch, its speed, and how much the peak of memory grew."""
    epoch_of(lambda: peer.batches(WARM_UP), WARM_UP // SHARDS, len)

    def epoch() -> dict[str, float]:
        return epoch_of(lambda: peer.batches(size), size // SHARDS, len)

    gc.collect()
    growth = PeakGrowth()
    runs = [epoch()]
    grown = growth.mib()
    while len(runs) < REPEATS and len(runs) * (runs[0]["seconds"] + RATE_SECONDS) < REPEAT_SECONDS:
        gc.collect()
        runs.append(epoch())
    medians = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    return {**medians, "mib": grown, "runs": len(runs)}


def measure_work(work: Callable[[], Any]) -> dict[str, float]:
    """Measures a prepared work."""
    seconds, runs = timed(work)
    return {"seconds": seconds, "runs": runs}


CELLS: dict[str, Callable[[Peer, int], dict[str, float]]] = {
    "epoch": measure_epoch,
    "seek": lambda peer, size: measure_work(peer.seek(size)),
    "resume": lambda peer, size: measure_work(peer.resume(size)),
}


def curve(peer: Peer, size: str, cells: str) -> None:
    """Measures cells at one size."""
    for cell in cells.split(","):
        lacks = peer.lacks.get(cell)
        result = {"none": lacks} if lacks else CELLS[cell](peer, int(size))
        emit(cell=cell, size=int(size), **result)


def end_to_end(peer: Peer, count: str, workers: str) -> None:
    """Measures epochs of rows in memory."""
    for variant in peer.variants:
        work = peer.rows(int(count), int(workers), variant)

        def epoch(work: Callable[[], Iterable[Any]] = work) -> dict[str, float]:
            return epoch_of(lambda: iter(work()), int(count), lambda _: BATCH)

        epoch()
        rates = [epoch()["per_second"] for _ in range(ROWS_RUNS)]
        emit(cell="rows", workers=int(workers), variant=variant, per_second=statistics.median(rates))


def ranks(peer: Peer) -> None:
    """Counts what each change of the number of ranks loses and repeats."""
    for rule in peer.rules:
        for case in RESIZES:
            received, states = peer.read(rule, case.size, case.ranks, case.batch, None, case.steps)
            if len(received) != case.num_read:
                raise ValueError(f"{len(received)} samples came before, {case.num_read} should have")
            rest, _ = peer.read(rule, case.size, case.new_ranks, case.new_batch, states, None)
            lost, repeated = lost_and_repeated(case.size, received + rest)
            emit(cell="ranks", rule=rule, case=case.name, lost=lost, repeated=repeated)


def main(peer: Peer) -> None:
    """Measures the part that the command line names."""
    work, *arguments = sys.argv[1:]
    if work == "versions":
        emit(cell="versions", versions={name: import_module(name).__version__ for name in peer.packages})
    else:
        {"curve": curve, "rows": end_to_end, "ranks": ranks}[work](peer, *arguments)


def lost_and_repeated(size: int, received: Iterable[int]) -> tuple[int, int]:
    """Counts the samples of an epoch that never came, and the arrivals beyond the first of each.

    Args:
        size: the number of samples; their ids are 0 to size - 1.
        received: the ids that the training loops of all ranks received, before and after.

    Raises:
        ValueError: an id is of no sample.
    """
    arrivals = Counter(received)
    strangers = [id for id in arrivals if not 0 <= id < size]
    if strangers:
        raise ValueError(f"ids outside of {size} samples: {strangers[:5]}")
    return size - len(arrivals), arrivals.total() - len(arrivals)
