"""The table of the page on shuffle modes: each yes is an order, each no a typed error."""

import re
from pathlib import Path

import pytest
import torch
from torch.utils.data import ConcatDataset, TensorDataset

import samplerkit as sk
from tests.chains import under
from tests.docs.raised import Stream
from tests.numbers import Numbers
from tests.storage.files.folders import write_npz

PAGE = (Path(__file__).parents[2] / "docs" / "shuffle-modes.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("## Which dataset supports which")[2].partition('\n\n"No"')[0]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE.splitlines() if "| " in line]
MODES = ROWS[0][1:]
SIZE = 30
FILES = sk.Layout([10, 20])


def file_dataset(folder):
    return sk.FileDataset(write_npz(folder, [SIZE // 2] * 2), "npz")


def tar_dataset(folder):
    with sk.TarWriter(str(folder / "%d.tar"), samples_per_shard=SIZE // 2) as writer:
        for number in range(SIZE):
            writer.write({"__key__": f"{number:03}", "cls": 0})
    return sk.TarDataset(str(folder / "*.tar"), cache=folder / "cache")


def part():
    return TensorDataset(torch.arange(SIZE // 2))


def in_order(dataset, sampler):
    return sk.Loader(dataset, sampler, batch_size=4, world=sk.World(1, 0)).order


CASES = {
    "a number of samples; `Layout(1000)`": (lambda _: SIZE, lambda size, sampler: sampler.order(size)),
    "anything with `__len__` and `__getitem__`": (lambda _: [*range(SIZE)], in_order),
    "the same with an attribute `layout` that has files": (lambda _: Numbers(FILES), in_order),
    "`Layout([5000, 7000, 300])`": (lambda _: FILES, in_order),
    "`FileDataset`": (file_dataset, in_order),
    "`TarDataset`": (tar_dataset, in_order),
    "torch's `ConcatDataset`: its parts are the files": (lambda _: ConcatDataset([part(), part()]), in_order),
    "a child of another sampler": (
        lambda _: FILES,
        lambda files, sampler: under(sk.SequentialSampler(), sampler).order(files),
    ),
    "a parent of another sampler": (
        lambda _: FILES,
        lambda files, sampler: under(sampler, sk.SequentialSampler()).order(files),
    ),
    "torch's `IterableDataset`": (lambda _: Stream(), in_order),
}


def test_the_table_has_all_modes_and_all_cases():
    assert [mode.value.upper() for mode in sk.Shuffle] == MODES
    assert [row[0] for row in ROWS[1:]] == list(CASES)


@pytest.mark.parametrize("row", ROWS[1:], ids=lambda row: re.sub(r"\W+", "-", row[0]).strip("-"))
def test_a_row_says_what_happens(row, tmp_path):
    make, order_of = CASES[row[0]]
    dataset = make(tmp_path)
    for mode, answer in zip(MODES, row[1:], strict=True):
        sampler = sk.DistributedSampler(1, 0, shuffle=mode.lower())
        if answer == "yes":
            assert sorted(order_of(dataset, sampler)) == list(range(SIZE)), mode
        else:
            assert answer == "no"
            with pytest.raises(sk.SamplerkitError):
                order_of(dataset, sampler)
