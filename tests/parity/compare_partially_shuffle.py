"""Compares the drop-in with the original: python -m tests.parity.compare_partially_shuffle FOLDER.

FOLDER holds the two files of https://github.com/microsoft/PartiallyShuffleDistributedSampler, which import
psutil. Exits with 0 where all that must be equal is, with 1 where something differs, and with 0 and the
reason where the original cannot be imported.
"""

import contextlib
import importlib.util
import io
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch.utils.data

from tests.compat.partially_shuffle.folders import VERSIONS, Dataset, ids_of, make_dataset

MODULES = {1: "DistributedSamplerViaLocallyShuffle", 2: "DistributedSamplerViaLocallyShuffleV2"}
EPOCHS = 3


class TakesADataset(torch.utils.data.Sampler):
    """What torch's Sampler was when the original was written: its constructor took an argument."""

    def __init__(self, data_source: Any) -> None:
        self.data_source = data_source


def imported(folder: Path, version: int) -> Any:
    """Imports a version of the original."""
    place = importlib.util.spec_from_file_location(MODULES[version], folder / f"{MODULES[version]}.py")
    module = importlib.util.module_from_spec(place)
    torchs = torch.utils.data.Sampler
    torch.utils.data.Sampler = TakesADataset
    try:
        place.loader.exec_module(module)
    finally:
        torch.utils.data.Sampler = torchs
    # It collects garbage after each item, which takes most of its time and changes nothing.
    module.gc = SimpleNamespace(collect=lambda: None)
    return getattr(module, MODULES[1])


@dataclass(frozen=True)
class Case:
    """Files and a job.

    Args:
        sizes: samples in each file.
        ranks: the number of ranks.
        batch_size: samples in an item.
        buffer: samples that are shuffled among themselves.
    """

    sizes: tuple[int, ...]
    ranks: int
    batch_size: int
    buffer: int


CASES = [
    Case((25,) * 64, 1, 16, 60),
    Case((25,) * 64, 4, 16, 60),
    Case((31, 7, 12, 40, 1, 26) * 6, 3, 10, 30),
    Case((31, 7, 12, 40, 1, 26) * 6, 4, 8, 30),
    Case((9, 8), 2, 4, 5),
    Case((30, 31, 4), 4, 16, 17),
]


def items_of(
    kind: type, case: Case, dataset: Dataset, epoch: int, *, shuffle: bool = True
) -> list[list[Any]]:
    """The lengths and the items that each rank gets from a class in an epoch of a case."""
    ranks = []
    for rank in range(case.ranks):
        reader, total = dataset.file_reader("npz"), sum(case.sizes)
        sampler = kind(dataset, reader, case.ranks, rank, shuffle, case.buffer, total, case.batch_size)
        sampler.set_epoch(epoch)
        lengths = len(sampler), sampler.total_size
        # The original prints.
        with contextlib.redirect_stdout(io.StringIO()):
            ranks.append([lengths, *sampler])
    return ranks


def is_same(item: list[Any], other: list[Any]) -> bool:
    """Whether two items are equal: the files, and the arrays of each, with their types."""
    return (
        type(item) is type(other)
        and item[1:] == other[1:]
        and [list(arrays) for arrays in item[0]] == [list(arrays) for arrays in other[0]]
        and all(
            own[key].dtype == theirs[key].dtype and np.array_equal(own[key], theirs[key])
            for own, theirs in zip(item[0], other[0], strict=True)
            for key in own
        )
    )


def sizes_of(rank: list[Any]) -> list[Any]:
    """The lengths of a rank, and how many samples each of its items has."""
    return [rank[0], *(len(ids_of(item)) for item in rank[1:])]


def without_single(rank: list[Any]) -> list[Any]:
    """The items of a rank, except a last one of one sample, which the original leaves out."""
    return rank[:-1] if sizes_of(rank)[-1] == 1 else rank


def compare(version: int, original: type, case: Case, dataset: Dataset) -> Iterator[str]:
    """Yields the differences on a case that must not be."""
    for epoch in range(EPOCHS):
        theirs, ours = (items_of(kind, case, dataset, epoch) for kind in (original, VERSIONS[version]))
        if [sizes_of(rank) for rank in theirs] != [sizes_of(without_single(rank)) for rank in ours]:
            yield f"other lengths or sizes of items in epoch {epoch}"
    # The second version shuffles always. With shuffling orders differ: theirs comes from Python's random.
    if version == 1:
        theirs, ours = (
            items_of(kind, case, dataset, 1, shuffle=False) for kind in (original, VERSIONS[version])
        )
        for rank, other in zip(theirs, map(without_single, ours), strict=True):
            if len(rank) != len(other) or not all(map(is_same, rank[1:], other[1:])):
                yield "other items without shuffling"


def main(folder: str) -> int:
    """Compares both versions on all cases."""
    wrong = []
    for version in VERSIONS:
        try:
            original = imported(Path(folder), version)
        except (ImportError, FileNotFoundError) as error:
            print(f"skipped: the original cannot be imported: {error}")
            return 0
        for case in CASES:
            with tempfile.TemporaryDirectory() as place:
                dataset = make_dataset(Path(place), case.sizes)
                wrong += [f"V{version} {case}: {text}" for text in compare(version, original, case, dataset)]
    print("\n".join(["DIFFERENT:", *wrong]) if wrong else "the same in all that must be equal")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
