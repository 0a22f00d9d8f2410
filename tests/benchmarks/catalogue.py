"""A catalogue of a million files: its bytes, and the seconds and the memory of who makes it and who opens it.

Run as `python -m tests.benchmarks.catalogue [--files 1000000]`. Files are simulated: names, sizes, versions
and samples, as a look at each would give them. Seconds are those of the processor; memory is what the process
has at its peak more than before, when all was imported. Each step is a process of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import samplerkit as sk
from samplerkit.storage.catalogue.catalogue_file import read_catalogue, write_catalogue
from samplerkit.storage.catalogue.file_catalogue import FileCatalogue, KnownFile
from samplerkit.storage.catalogue.making import join_parts
from tests.benchmarks.peers.memory import PeakGrowth
from tests.benchmarks.report import print_header, print_row
from tests.benchmarks.timing import forked

PART = 1024
COLUMNS = (("id", "int64"), ("tokens", "list<element: int32>"))


def row(kind: str, number: int) -> KnownFile:
    """What is known of a file: in a bucket, with an ETag; of a file with a reader, on a disk."""
    seed = hashlib.blake2b(number.to_bytes(8, "little"), digest_size=16)
    dice = int.from_bytes(seed.digest()[:8], "little")
    size, samples = 100_000_000 + dice % 50_000_000, 9000 + dice % 2000
    if kind == "files":
        return KnownFile(
            f"/data/train/{number:07}.npz", size, str(1_790_000_000_000_000_000 + dice % 10**17), (samples,)
        )
    path = f"s3://bucket/corpus/train/shard-{number:07}.{'tar' if kind == 'tar' else 'parquet'}"
    tag = f'etag "{seed.hexdigest()}"'
    if kind == "tar":
        return KnownFile(path, size, tag, (samples,))
    groups = (samples // 2, samples - samples // 2)
    return KnownFile(path, size, tag, groups, COLUMNS, 2000 + dice % 1000, seed.digest())


def written(kind: str, folder: str, files: int) -> None:
    """Writes the parts, as tasks of an engine would."""
    for start in range(0, files, PART):
        rows = [row(kind, number) for number in range(start, min(files, start + PART))]
        write_catalogue(FileCatalogue.of(kind, rows), f"{folder}/parts/{start}.skcat")  # type: ignore[arg-type]


def join(_: str, folder: str, files: int) -> None:
    join_parts([f"{folder}/parts/{start}.skcat" for start in range(0, files, PART)], f"{folder}/all.skcat")


def read(_: str, folder: str, files: int) -> None:
    found = read_catalogue(f"{folder}/all.skcat")
    assert found is not None
    assert found.num_files == files


def opened(kind: str, folder: str, files: int) -> Any:
    """Opens the dataset, and tells how many samples it has: what a job does before the first step."""
    make: dict[str, Callable[[str], Any]] = {
        "tar": sk.TarDataset,
        "parquet": sk.ParquetDataset,
        "files": lambda path: sk.FileDataset(path, "npz"),
    }
    dataset = make[kind](f"{folder}/all.skcat")
    assert len(dataset) > 9000 * files
    return dataset


def named(kind: str, folder: str, files: int) -> Any:
    """The same without a catalogue: a list of names, and a file of lengths."""
    names = [row(kind, number).path for number in range(files)]
    lengths = Path(folder, "lengths.json")
    if not lengths.exists():
        lengths.write_text(json.dumps({"lengths": dict.fromkeys(names, 9000)}))
        return None
    return len(sk.TarDataset(names, lengths=lengths))


STEPS = {"written": written, "join": join, "read": read, "opened": opened, "named": named}


def measured(step: str, kind: str, folder: str, files: int) -> tuple[float, float]:
    """Runs a step in a process of its own; gives its seconds and its MiB."""

    def work() -> tuple[float, float]:
        growth, begun = PeakGrowth(), time.process_time()
        kept = STEPS[step](kind, folder, files)
        found = time.process_time() - begun, growth.mib()
        del kept
        return found

    return forked(work)


def tell(step: str, kind: str, folder: str, files: int, name: str) -> None:
    """Measures a step, and prints a row of a table; the name is that of what is read."""
    seconds, mebibytes = measured(step, kind, folder, files)
    size = Path(folder, name).stat().st_size
    print_row(kind, step, f"{size / 1e6:.1f}", f"{seconds:.2f}", f"{mebibytes:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000)
    given = parser.parse_args()
    _ = sk.TarDataset, sk.ParquetDataset, sk.FileDataset  # imported, and not measured
    print_header("files", "step", "MB", "s", "MiB")
    for kind in ("tar", "parquet", "files"):
        with TemporaryDirectory() as folder:
            Path(folder, "parts").mkdir()
            measured("written", kind, folder, given.files)
            for step in ("join", "read", "opened"):
                tell(step, kind, folder, given.files, "all.skcat")
            if kind == "tar":
                measured("named", kind, folder, given.files)
                tell("named", kind, folder, given.files, "lengths.json")


if __name__ == "__main__":
    main()
