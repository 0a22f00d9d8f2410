"""Benchmark of tar shards against webdataset and tarfile, in one run: indexing and reading.

Run it with `python -m tests.benchmarks.tar`; `--quick` takes a tenth of the samples. It prints Markdown.
Ratios are what counts: machines are shared, and times do not carry over. All reading is from the page cache.
"""

import argparse
import tarfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import webdataset
from torch.utils.data import DataLoader

import samplerkit as sk
from samplerkit.order.typing import Ids
from samplerkit.storage.files.stored import Stored
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.index.find_or_make import Cache, make_index
from samplerkit.storage.tar.writer import TarWriter
from tests.benchmarks.peers.torch_rows import as_fetched
from tests.benchmarks.timing import in_turns, medians, print_header, print_row, timed, versions

SHARDS, BATCH, REPEATS = 8, 256, 5


def rate(work: Callable[[], int]) -> float:
    """The things a second of a work."""
    number, used = timed(work)
    return number / used.clock


def report(title: str, unit: str, works: dict[str, Callable[[], int]]) -> None:
    """Prints the median items a second of each work, and the ratio to the first one."""
    rates = medians(in_turns({name: partial(rate, work) for name, work in works.items()}, REPEATS))
    base, least = next(iter(rates.items()))
    print(f"\n### {title}\n")
    print_header("who", unit, f"times {base}")
    for name, value in rates.items():
        print_row(name, f"{value:,.0f}" if value >= 100 else f"{value:.2f}", f"{value / least:.2f}")


def count(samples: Iterable[Any]) -> int:
    return sum(1 for _ in samples)


def write(folder: Path, samples: int, size: int, kind: str) -> list[str]:
    """Writes shards of samples of two members, of `size` bytes together, and the same samples as files."""
    random = np.random.default_rng(0)
    paths = [str(folder / f"{kind}-{number:02}.tar") for number in range(SHARDS)]
    (folder / kind).mkdir()
    for number, path in enumerate(paths):
        with webdataset.TarWriter(path, mtime=0, encoder=False) as writer:
            for sample in range(number, samples, SHARDS):
                image = random.bytes(size - 8 + sample % 16)
                writer.write(
                    {
                        "__key__": f"n{number:04}/image_{sample:08}",
                        "jpg": image,
                        "cls": b"%d" % (sample % 1000),
                    }
                )
                if kind == "small":
                    (folder / kind / f"{sample}.jpg").write_bytes(image)
                    (folder / kind / f"{sample}.cls").write_bytes(b"%d" % (sample % 1000))
    return paths


def report_indexing(paths: list[str], folder: Path) -> None:
    ours = [str(Path(path).with_suffix(".ours.tar")) for path in paths]
    for path, other in zip(paths, ours, strict=True):
        with TarWriter(other.replace(".ours.tar", ".%d.tar"), index=False) as writer:
            for sample in TarDataset(path, cache=folder / "cache"):
                writer.write(sample)
        Path(writer.paths[0]).rename(other)

    def walk(names: list[str]) -> int:
        total = 0
        for name in names:
            with tarfile.open(name) as archive:
                total += sum(1 for _ in archive)
        return total

    def index(names: list[str]) -> int:
        cache = Cache.of(folder / "cache")
        return sum(make_index(Stored.of(name), cache, checksums=False).num_members for name in names)

    for whose, names in (("webdataset's writer (with pax headers)", paths), ("samplerkit's writer", ours)):
        works = {"tarfile": partial(walk, names), "samplerkit": partial(index, names)}
        report(f"Indexing shards of {whose}", "members/s", works)


def read_files(folder: Path, ids: Ids) -> int:
    """Reads the samples that are single files."""
    for id in ids.tolist():
        for extension in ("jpg", "cls"):
            (folder / "small" / f"{id}.{extension}").read_bytes()
    return ids.size


def report_shuffled(paths: list[str], samples: int, folder: Path) -> None:
    dataset = TarDataset(paths, cache=folder / "cache")
    order = sk.RandomSampler(seed=7).order(dataset)
    order_of_window = sk.RandomSampler(shuffle=sk.Shuffle.PARTIAL, partial_size=1000, seed=7).order(dataset)

    def theirs() -> int:
        return count(webdataset.WebDataset(paths, shardshuffle=False).shuffle(1000))

    def ours(chosen: sk.Order) -> int:
        return sum(len(dataset.__getitems__(chosen[at : at + BATCH])) for at in range(0, samples, BATCH))

    report(
        "Shuffled reading, no workers",
        "samples/s",
        {
            "webdataset, shuffle(1000)": theirs,
            "samplerkit, GLOBAL": lambda: ours(order),
            "samplerkit, PARTIAL of 1000": lambda: ours(order_of_window),
            "samplerkit, one sample at a time": lambda: count(dataset[id] for id in order[:].tolist()),
            "single files, GLOBAL": lambda: read_files(folder, order[:]),
        },
    )

    def their_loader() -> int:
        source = webdataset.WebDataset(paths, shardshuffle=False).shuffle(1000)
        return sum(len(batch) for batch in DataLoader(source, BATCH, num_workers=2, collate_fn=as_fetched))

    def our_loader() -> int:
        loader = sk.Loader(
            dataset, sk.RandomSampler(seed=7), batch_size=BATCH, num_workers=2, collate_fn=as_fetched
        )
        return sum(len(batch) for batch in loader)

    works = {"webdataset, shuffle(1000)": their_loader, "samplerkit, GLOBAL": our_loader}
    report("Shuffled reading through a DataLoader, two workers", "samples/s", works)


def report_sequential(paths: list[str], folder: Path) -> None:
    dataset = TarDataset(paths, cache=folder / "cache")
    total = sum(Path(path).stat().st_size for path in paths)

    def plain() -> int:
        for path in paths:
            with Path(path).open("rb") as file:
                while file.read(1 << 20):
                    pass
        return total >> 20

    def ours(mode: sk.Shuffle) -> int:
        order = sk.DistributedSampler(1, 0, shuffle=mode, seed=7).order(dataset)
        count(dataset.in_order(order))
        return total >> 20

    works: dict[str, Callable[[], int]] = {"plain read of 1 MiB each": plain}
    for mode in (sk.Shuffle.FALSE, sk.Shuffle.FILES, sk.Shuffle.PARTIAL, sk.Shuffle.GLOBAL):
        works[f"samplerkit, {mode.value.upper()}"] = lambda mode=mode: ours(mode)  # type: ignore[misc]
    works["webdataset"] = lambda: count(webdataset.WebDataset(paths, shardshuffle=False)) and total >> 20
    report("Samples of 100 KB", "MiB/s", works)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the samples")
    options = parser.parse_args()
    samples = 8_000 if options.quick else 80_000
    torch.set_num_threads(1)
    print(versions("numpy", "torch", "webdataset", "samplerkit"))
    print(
        f"\n{samples:,} samples of 1.5 KB and {samples // 40:,} of 100 KB, 2 members each, in {SHARDS} "
        f"shards; batches of {BATCH}; from the page cache."
    )
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        small = write(folder, samples, 1500, "small")
        large = write(folder, samples // 40, 100_000, "large")
        report_indexing(small, folder)
        report_shuffled(small, samples, folder)
        report_sequential(large, folder)


if __name__ == "__main__":
    main()
