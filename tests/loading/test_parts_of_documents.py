"""A document that is cut is read in parts where its dataset gives parts, and whole where it does not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

import samplerkit as sk
from tests.loading.documents import SIZES, Documents, Parts, document, loaders, tokens_of


def test_a_split_document_is_read_once_a_pack_only_where_the_dataset_gives_no_parts():
    whole, parts = Documents(), Parts()
    for dataset in (whole, parts):
        for _ in sk.Loader(dataset, sk.RandomSampler(seed=3), batches=sk.PackBatches(64)):
            pass
    times = Counter(whole.read)
    assert times == {id: -(-int(size) // 64) for id, size in enumerate(SIZES.tolist()) if size}
    assert parts.read == []


def test_a_dataset_that_gives_too_few_parts_is_named():
    class Short(Parts):
        def __getsegments__(self, segments: np.ndarray) -> list[torch.Tensor]:
            return super().__getsegments__(segments)[1:]

    with pytest.raises(sk.DatasetError, match="__getsegments__: must give one part for each of"):
        next(iter(sk.Loader(Short(), sk.RandomSampler(seed=3), batches=sk.PackBatches(64))))


def test_samples_without_a_sequence_cannot_be_cut():
    class Numbers(Documents):
        def __getitem__(self, id: int) -> Any:
            return {"number": id}

    with pytest.raises(sk.DatasetError, match=r"hold no sequence.*__getsegments__"):
        for _ in sk.Loader(Numbers(), sk.RandomSampler(seed=3), batches=sk.PackBatches(16)):
            pass


def test_parts_are_drawn_as_their_document_is():
    """Random transforms of a split document are those of one draw, whichever pack its parts stand in."""

    class Noisy(Documents):
        def __getitem__(self, id: int) -> Any:
            return document(id) * 0 + int(sk.draw_rng().integers(1, 1 << 40))

    drawn: dict[int, set[int]] = {}
    loader = sk.Loader(Noisy(), sk.RandomSampler(seed=3), batches=sk.PackBatches(64))
    for step, batch in enumerate(loader):
        for number, id in enumerate(loader.ids(step).tolist(), 1):
            drawn.setdefault(id, set()).update(batch["input_ids"][batch["segment_ids"] == number].tolist())
    assert {len(found) for found in drawn.values()} == {1}
    assert len({*map(frozenset, drawn.values())}) == len(drawn)


class Noted(Parts):
    """Notes what it is asked for, and draws once for each part."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__(SIZES[first:end])
        self.first, self.asked = first, 0

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, id: int, place: int | None = None) -> Any:
        return super().__getitem__(self.first + id) * 1000 + int(sk.draw_rng(place).integers(0, 1000))

    def __getsegments__(self, segments: np.ndarray) -> list[torch.Tensor]:
        self.asked += len(segments)
        return [
            self.__getitem__(id, place)[start : start + length]
            for place, (id, start, length) in enumerate(segments.tolist())
        ]


class WholeOnly(Noted):
    __getsegments__ = None


@pytest.mark.parametrize("seed_draws", [False, True])
def test_a_tree_gives_the_parts_of_its_datasets_and_reads_no_document_whole(seed_draws):
    def read(dataset: Any) -> list[list[int]]:
        return [
            tokens_of(batch)
            for batch in loaders(dataset, sk.PackBatches(16, packs=2), 1, seed_draws=seed_draws)[0]
        ]

    parts = [Noted(0, 9), Noted(9, 20), Noted(20, SIZES.size)]
    tree = sk.TreeDataset({"a": parts[0], "rest": sk.TreeDataset({"b": parts[1], "c": parts[2]})})
    alone = Noted(0, SIZES.size)
    assert read(tree) == read(alone)
    assert sum(part.asked for part in parts) == alone.asked > SIZES.size
    # One that cannot has all of them read whole.
    mixed = sk.TreeDataset({"a": parts[0], "b": WholeOnly(9, SIZES.size)})
    before = parts[0].asked
    assert read(mixed) == read(alone)
    assert parts[0].asked == before


def test_a_part_of_a_tree_that_gives_too_few_parts_is_named():
    class Short(Noted):
        def __getsegments__(self, segments: np.ndarray) -> list[torch.Tensor]:
            return super().__getsegments__(segments)[1:]

    tree = sk.TreeDataset({"good": Noted(0, 9), "bad": Short(9, SIZES.size)})
    with pytest.raises(sk.DatasetError, match=r"part 'bad': gives other than \d+ parts for as many"):
        for _ in loaders(tree, sk.PackBatches(64), 1)[0]:
            pass
