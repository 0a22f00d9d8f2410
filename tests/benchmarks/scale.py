"""The requests of a job of many ranks to its store and to the object store, and the memory of a rank.

Run it with `python -m tests.benchmarks.scale` (a minute; `--quick` without a million files). It prints
Markdown, as in docs/scale.md. The code of rank 0, of one in the middle and of the last is the real one; the
store and the object store are stand-ins that count. Next to each figure is the one by arithmetic.
"""

import argparse
import logging
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import samplerkit as sk
from samplerkit.storage.catalogue.catalogue_file import write_catalogue
from samplerkit.storage.catalogue.file_catalogue import FileCatalogue, joined
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from tests.benchmarks.timing import print_header, print_row
from tests.loading.simulated_ranks import ORDER, Outcome, simulate
from tests.storage.remote.server import Handler, Resource, Server, served

RANKS, FILES = (8, 1000, 10_000), (1000, 1_000_000)
EACH, BATCH, STEPS = 64, 16, 12
"""Samples of a file; samples a rank and step; steps that are read."""

SECONDS = 10.0
"""How long ranks wait for one another."""

SITUATIONS = {
    "the start, one rank 3 s late": (3.0, 0),
    "an epoch's border": (0.05, 0),
    "a rank is dead": (0.0, 1),
}
"""When the last rank comes, and how many never come."""


def three(ranks: int) -> tuple[int, int, int]:
    """The first rank, one in the middle, and the last."""
    return 0, ranks // 2, ranks - 1


def store_requests(ranks: int, late: float, dead: int) -> dict[int, Outcome]:
    """Counts what three ranks ask of the store of a job that begins an epoch."""
    first, middle, last = three(ranks)
    begins = {first: (0.0, ORDER), middle: (0.0, ORDER), last: (late, ORDER)}
    return simulate(ranks, begins, ORDER, dead=dead)


def expected_requests(ranks: int, seconds: float) -> tuple[int, int]:
    """The requests of a rank that waits so long, if it does not list its group, and if it does.

    Two to join, one look at the list, and a poll after each of the pauses, which grow. Who waits for more
    than a second lists its group, by five requests more, of which two take it off again; the others look at
    the list with each later poll. Who comes last makes two to let the others continue, and one poll.
    """
    pause, now, all_polls, late_polls = max(0.01, ranks / 50_000), 0.0, 1, 0
    while now < seconds:
        now, pause = now + min(pause, SECONDS - now), min(1.0, pause * 1.5)
        is_over = now >= seconds
        all_polls, late_polls = all_polls + 1, late_polls + (now >= 1.0 and (not is_over or now >= SECONDS))
    plain = 3 + all_polls
    # Where all give up, each lists the group that another one has just taken off, and takes it off again.
    return plain + late_polls + 4 * (now >= SECONDS), plain + 5 * (late_polls > 0)


class ManyFiles(dict[str, Resource]):
    """The resources of a server on which every file has the same content."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._one = Resource(data, '"one"')

    def get(self, path: str, default: Any = None) -> Any:
        """The catalogue, or the content of all files."""
        return dict.get(self, path) or self._one


class CountingHandler(Handler):
    """Counts the bytes of bodies too."""

    def body(self, data: bytes) -> None:
        if self.command != "HEAD":
            self.state.sent += len(data)  # type: ignore[attr-defined]
        super().body(data)


@contextmanager
def object_store(files: int) -> Iterator[Server]:
    """An object store of files of one length, and their catalogue."""
    with tempfile.TemporaryDirectory() as place, served(handler=CountingHandler) as server:
        path = Path(place, "one.npy")
        np.save(path, np.arange(EACH))
        data = path.read_bytes()
        server.resources = ManyFiles(data)
        with closing(RemoteStorage(RemoteOptions(cache=place))) as storage:
            tag = storage.version(f"{server.url}/train/any.npy").tag
        rows = [
            FileCatalogue.of_file("files", f"{server.url}/train/{number:07}.npy", len(data), tag, [EACH])
            for number in range(files)
        ]
        write_catalogue(joined(rows), f"{place}/all.skcat")
        server.put("/all.skcat", Path(place, "all.skcat").read_bytes())
        server.sent = 0  # type: ignore[attr-defined]
        yield server


@dataclass
class RequestCounts:
    """The requests of one rank to the object store, and the bytes received, up to a moment.

    Args:
        requests: at opening, for the first batch, in the other steps, and at a resume on other ranks.
        bytes: at the same four.
        on_disk: bytes in the cache of the machine before the resume.
    """

    requests: list[int]
    bytes: list[int]
    on_disk: int = 0


def object_requests(server: Server, files: int, ranks: int, rank: int) -> RequestCounts:
    """Counts the requests of a rank with an empty cache: to open all, to read steps, and to resume."""
    server.requests.clear()
    server.sent = 0  # type: ignore[attr-defined]
    counts = RequestCounts([], [])

    def note() -> None:
        counts.requests.append(len(server.requests) - sum(counts.requests))
        counts.bytes.append(server.sent - sum(counts.bytes))  # type: ignore[attr-defined]

    with tempfile.TemporaryDirectory() as cache:
        dataset = opened(server, cache)
        loader = sk.Loader(dataset, sampler(), batch_size=BATCH, world=sk.World(ranks, rank))
        assert len(dataset) == files * EACH
        note()
        batches = iter(loader)
        next(batches)
        note()
        # At 10,000 ranks an epoch of 1,000 files has fewer steps.
        for _ in zip(range(STEPS - 1), batches, strict=False):
            pass
        note()
        state = loader.state_dict(step=min(2, loader.steps_left))
        loader.close()
        dataset.close()
        counts.on_disk = sum(file.stat().st_size for file in Path(cache).rglob("*") if file.is_file())
    with tempfile.TemporaryDirectory() as cache, opened(server, cache) as dataset:
        others = max(1, ranks * 3 // 4)
        resumed = sk.Loader(
            dataset, sampler(), batch_size=BATCH, world=sk.World(others, min(rank, others - 1))
        )
        resumed.load_state_dict(state)
        next(iter(resumed), None)
        resumed.close()
        note()
    return counts


def opened(server: Server, cache: str) -> sk.FileDataset:
    """The dataset of the catalogue; nothing is read ahead, so that what is counted is what is needed."""
    remote = {"cache": cache, "max_cache_bytes": 1 << 30}
    return sk.FileDataset(f"{server.url}/all.skcat", "npy", remote=remote, read_ahead=0)


def sampler() -> sk.Sampler:
    """The recipe: files in another order in each epoch, each rank its own."""
    return sk.DistributedSampler(shuffle="files", seed=7)


RECIPES: dict[str, Callable[[], sk.Sampler]] = {
    "GLOBAL": lambda: sk.DistributedSampler(shuffle="global", seed=7),
    "FILES": sampler,
    "PARTIAL": lambda: sk.DistributedSampler(shuffle="partial", seed=7),
    "three sources by weights": lambda: sk.MixtureSampler(
        dict.fromkeys("abc"), weights={"a": 5, "b": 3, "c": 2}, seed=7
    ),
}


def layout_of(files: int) -> sk.Layout:
    """Three sources of files of 1,000 samples."""
    parts = [files // 2, files // 4, files - files // 2 - files // 4]
    return sk.Layout.tree(
        {name: sk.Layout(np.full(part, 1000)) for name, part in zip("abc", parts, strict=True)}
    )


def memory(layout: sk.Layout, name: str, ranks: int, rank: int) -> tuple[float, float]:
    """Measures MiB at the peak beyond the layout: of a start and three steps, and of a resume."""
    peaks, state = [], None
    for count in (ranks, max(1, ranks * 3 // 4)):
        tracemalloc.start()
        world = sk.World(count, min(rank, count - 1))
        loader = sk.Loader(layout, RECIPES[name](), batch_size=BATCH, world=world)
        if state is not None:
            loader.load_state_dict(state)
        for step in range(min(3, loader.steps_left)):
            loader.ids(step)
        peaks.append(tracemalloc.get_traced_memory()[1] / 2**20)
        tracemalloc.stop()
        state = loader.state_dict(step=min(2, loader.steps_left))
    return peaks[0], peaks[1]


def report_store() -> None:
    """Prints the requests to the store."""
    of_ranks = "rank 0", "middle", "last"
    print_header("requests of one rank to the store", "ranks", *of_ranks, "by arithmetic", "bytes")
    for title, (late, dead) in SITUATIONS.items():
        for ranks in RANKS:
            outcomes = store_requests(ranks, late, dead)
            counts = [outcomes[rank] for rank in three(ranks)]
            expected = {*expected_requests(ranks, SECONDS if dead else late)} | ({5} - {5 * bool(dead)})
            expected_text = ", ".join(map(str, sorted(expected)))
            most = max(one.store.bytes for one in counts)
            print_row(title, f"{ranks:,}", *(one.requests for one in counts), expected_text, f"{most:,}")


def report_objects(files: int) -> None:
    """Prints the requests to the object store."""
    with object_store(files) as server:
        size = len(server.resources["/all.skcat"].data)
        print(f"\n{files:,} files of {EACH} samples, a catalogue of {size:,} bytes:\n")
        moments = "opened", "first batch", "others", "a resume"
        print_header("ranks", "rank", *moments, "bytes", "on disk", "by arithmetic")
        for ranks in RANKS:
            for rank in three(ranks):
                counts = object_requests(server, files, ranks, rank)
                steps = min(STEPS, -(-files * EACH // (ranks * BATCH)))
                most = -(-steps * BATCH // EACH) + 1
                expected_text = f"2; up to {most} files in {steps} steps; 2 and up to 2 files"
                sizes = f"{sum(counts.bytes):,}", f"{counts.on_disk:,}"
                print_row(f"{ranks:,}", f"{rank:,}", *counts.requests, *sizes, expected_text)


def report_memory(files: int) -> None:
    """Prints what a rank holds at the peak."""
    layout = layout_of(files)
    print(f"\nMiB of a rank at the peak, beyond the layout, {files:,} files: a start, a resume\n")
    print_header("", *(f"{ranks:,} ranks" for ranks in RANKS))
    for name in RECIPES:
        memory(layout, name, 8, 0)
        cells = []
        for ranks in RANKS:
            of_ranks = np.max([memory(layout, name, ranks, rank) for rank in three(ranks)], axis=0)
            cells.append(", ".join(f"{one:.2f}" for one in of_ranks))
        print_row(name, *cells)


def main() -> None:
    """Prints all tables."""
    logging.getLogger("samplerkit").setLevel(logging.ERROR)  # ranks that give up say so
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without a million files")
    files = FILES[:1] if parser.parse_args().quick else FILES
    report_store()
    for count in files:
        report_objects(count)
    for count in files:
        report_memory(count)


if __name__ == "__main__":
    sys.exit(main())
