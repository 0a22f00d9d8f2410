"""Compares the drop-in with the original: python -m tests.parity.compare_partially_shuffle FOLDER.

FOLDER holds the two files of https://github.com/microsoft/PartiallyShuffleDistributedSampler, which import
psutil. Exits with 0 where all that must be equal is, with 1 where something differs, and with 0 and the
reason where the original cannot be imported. What the original loses or repeats is counted beside it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import sys
import tempfile
from collections import Counter
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


class Job:
    """One of the two classes on all ranks of a case, in one process."""

    def __init__(self, kind: type, case: Case, dataset: Dataset, *, shuffle: bool = True) -> None:
        total = sum(case.sizes)
        self.dataset = dataset
        self.samplers = [
            kind(
                dataset,
                dataset.file_reader("npz"),
                case.ranks,
                rank,
                shuffle,
                case.buffer,
                total,
                case.batch_size,
            )
            for rank in range(case.ranks)
        ]

    def epoch(self, epoch: int, step: int | None = None) -> list[list[Any]]:
        """Gives the items of each rank in an epoch, from a step on."""
        items = []
        for sampler in self.samplers:
            sampler.set_epoch(epoch)
            if step is not None:
                sampler.find_ckpt_position(step)
            # The original prints.
            with contextlib.redirect_stdout(io.StringIO()):
                items.append([*sampler])
        return items


def is_same(one: list[Any], other: list[Any]) -> bool:
    """Whether two items are equal: the files, and the arrays of each, with their types."""
    return (
        type(one) is type(other)
        and one[1:] == other[1:]
        and [list(arrays) for arrays in one[0]] == [list(arrays) for arrays in other[0]]
        and all(
            mine[key].dtype == theirs[key].dtype and np.array_equal(mine[key], theirs[key])
            for mine, theirs in zip(one[0], other[0], strict=True)
            for key in mine
        )
    )


def sizes_of(rank: list[Any]) -> list[int]:
    """How many samples each item of a rank has."""
    return [len(ids_of(item)) for item in rank]


def without_single(rank: list[Any]) -> list[Any]:
    """The items of a rank, but for a last one of one sample, which the original leaves out."""
    return rank[:-1] if rank and sizes_of(rank)[-1] == 1 else rank


def flaws(ranks: list[list[Any]], total: int) -> tuple[int, int]:
    """How many samples do not come, and how many times more than once they come."""
    counts = Counter(id for rank in ranks for item in rank for id in ids_of(item))
    return total - len(counts), sum(counts.values()) - len(counts)


@dataclass(frozen=True)
class Outcome:
    """What one class reads on a case.

    Args:
        epochs: the items of each rank in each of the first epochs, one after another.
        flaws: how many samples each epoch loses and repeats.
        resumed: likewise, epoch 1 with a resume in the middle.
        is_kept: whether a new process reads the last epoch as the old one did.
        files_read: in all these epochs.
    """

    epochs: list[list[list[Any]]]
    flaws: list[tuple[int, int]]
    resumed: tuple[int, int]
    is_kept: bool
    files_read: int

    @classmethod
    def of(cls, kind: type, case: Case, dataset: Dataset) -> Outcome:
        """Lets a class read."""
        job, total = Job(kind, case, dataset), sum(case.sizes)
        dataset.read.clear()
        epochs = [job.epoch(epoch) for epoch in range(EPOCHS)]
        files_read = len(dataset.read)
        whole = Job(kind, case, dataset).epoch(1)
        step = len(whole[0]) // 2
        rest = Job(kind, case, dataset).epoch(1, step)
        stitched = [before[:step] + after for before, after in zip(whole, rest, strict=True)]
        again = Job(kind, case, dataset).epoch(EPOCHS - 1)
        return cls(
            epochs,
            [flaws(ranks, total) for ranks in epochs],
            flaws(stitched, total),
            all(map(are_same, epochs[-1], again)),
            files_read,
        )

    def __str__(self) -> str:
        return (
            f"lost and repeated in epochs {self.flaws}, with a resume {self.resumed}; a new process reads "
            f"{'the same' if self.is_kept else 'another'} epoch 2; {self.files_read} files read"
        )


def are_same(one: list[Any], other: list[Any]) -> bool:
    """Whether two ranks read the same items."""
    return len(one) == len(other) and all(map(is_same, one, other))


def compare(version: int, original: type, case: Case, dataset: Dataset) -> list[str]:
    """Compares on one case; prints what the two lose and repeat, gives what must not differ and does."""
    wrong = []
    jobs = [Job(kind, case, dataset).samplers for kind in (original, VERSIONS[version])]
    if [(len(one), one.total_size) for one in jobs[0]] != [(len(one), one.total_size) for one in jobs[1]]:
        wrong.append("another length")
    theirs, ours = (Outcome.of(kind, case, dataset) for kind in (original, VERSIONS[version]))
    print(f"  theirs: {theirs}\n  ours:   {ours}")
    for epoch, ranks in enumerate(zip(theirs.epochs, ours.epochs, strict=True)):
        if [sizes_of(rank) for rank in ranks[0]] != [sizes_of(without_single(rank)) for rank in ranks[1]]:
            wrong.append(f"other sizes of items in epoch {epoch}")
    # The second version shuffles always. With shuffling orders differ: theirs comes from Python's random.
    plain = [Job(kind, case, dataset, shuffle=False).epoch(1) for kind in (original, VERSIONS[1])]
    if version == 1 and not all(map(are_same, plain[0], map(without_single, plain[1]))):
        wrong.append("other items without shuffling")
    pads = -sum(case.sizes) % case.ranks
    if {*ours.flaws, ours.resumed} != {(0, pads)} or not ours.is_kept:
        wrong.append("ours loses or repeats")
    return wrong


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
            files = f"{len(case.sizes)} files, {sum(case.sizes)} samples, {case.ranks} ranks"
            print(f"V{version}, {files}, batches of {case.batch_size}, buffer of {case.buffer}")
            with tempfile.TemporaryDirectory() as place:
                dataset = make_dataset(Path(place), case.sizes)
                wrong += [f"V{version} {case}: {what}" for what in compare(version, original, case, dataset)]
    print("\n".join(["DIFFERENT:", *wrong]) if wrong else "the same in all that must be equal")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
