"""Up to which gap two parts of a remote file are read faster by one request than by two.

Run it with `python -m tests.benchmarks.remote_gaps`, with nginx installed. Pairs of parts of 16 KiB are read
both ways by turns, 64 of them at a time by 16 threads, so that both ways meet the same noise. It prints
Markdown.
"""

from __future__ import annotations

import random
import statistics
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from samplerkit.storage.remote import access
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage, Span
from tests.benchmarks.remote import nginx
from tests.benchmarks.remote_clients import BATCH, OBJECT, OBJECTS
from tests.benchmarks.report import print_header, print_row
from tests.benchmarks.timing import timed

PART = 16 << 10
GAPS = [size << 10 for size in (0, 4, 16, 64, 256)]
TURNS = 60


def pairs(base: str, gap: int) -> list[Span]:
    """The parts of a batch, two of each place."""
    places = [(random.randrange(OBJECTS), random.randrange(OBJECT - 2 * PART - gap)) for _ in range(BATCH)]
    return [Span(f"{base}/{n}.bin", at + add, PART) for n, at in places for add in (0, PART + gap)]


def measured(storage: RemoteStorage, base: str, gap: int) -> tuple[float, float]:
    """The medians of what two requests take, in what one takes: wall clock, and processor time."""
    ratios = []
    for _ in range(TURNS):
        wanted, used = pairs(base, gap), []
        for near in (gap, -1):
            access.NEAR = near
            used.append(timed(partial(storage.read, wanted))[1])
        ratios.append([two / one for one, two in zip(*used, strict=True)])
    wall, own = zip(*ratios, strict=True)
    return statistics.median(wall), statistics.median(own)


def main() -> None:
    """Measures each gap by each way."""
    with TemporaryDirectory() as name, nginx(Path(name)) as url:
        bucket = Path(name, "bucket")
        bucket.mkdir()
        for number in range(OBJECTS):
            (bucket / f"{number}.bin").write_bytes(random.randbytes(OBJECT))
        print_header("gap", "time", "processor time")
        storage = RemoteStorage(RemoteOptions())
        for gap in GAPS:
            ratios = measured(storage, f"{url}/bucket", gap)
            print_row(f"{gap >> 10} KiB", *(f"{ratio:.2f}" for ratio in ratios))


if __name__ == "__main__":
    main()
