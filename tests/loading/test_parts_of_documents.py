"""Documents in packs: what a batch holds; parts where their dataset gives parts; lengths that are wrong."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import samplerkit as sk
from tests.loading.documents import EVERY_TOKEN, SIZES, Documents, Parts, document, tokens_of


def test_a_split_document_is_read_once_a_pack_only_where_the_dataset_gives_no_parts():
    whole, parts = Documents(), Parts()
    for dataset in (whole, parts):
        for _ in sk.Loader(dataset, sk.RandomSampler(seed=3), batches=sk.PackBatches(64)):
            pass
    times = Counter(whole.read)
    assert times == {id: -(-int(size) // 64) for id, size in enumerate(SIZES.tolist()) if size}
    assert parts.read == []


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
        options = {"batches": sk.PackBatches(16, packs=2), "seed_draws": seed_draws}
        return [tokens_of(batch) for batch in sk.Loader(dataset, sk.RandomSampler(seed=3), **options)]

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


class Longer(Documents):
    def __getitem__(self, id: int) -> Any:
        return torch.arange(150)


class Words(Documents):
    def __getitem__(self, id: int) -> Any:
        return ["some", "words"] if id == 5 else document(id)


class NoSequence(Documents):
    def __getitem__(self, id: int) -> Any:
        return {"number": id}


class Short(Noted):
    """Gives too few parts."""

    def __getsegments__(self, segments: np.ndarray) -> list[torch.Tensor]:
        return super().__getsegments__(segments)[1:]


ONE_OF_70 = np.eye(SIZES.size, dtype=np.int64)[9] * 70
SHORT_IN_A_TREE = sk.TreeDataset({"good": Noted(0, 9), "bad": Short(9, SIZES.size)})


@pytest.mark.parametrize(
    ("dataset", "recipe", "message"),
    [
        (
            Longer(ONE_OF_70),
            sk.PackBatches(64),
            "longer than their given lengths.*9: '86, not 6, from token 64 on'",
        ),
        (Words(), sk.PackBatches(64, long="drop"), "sample 5: must be a sequence of numbers.*PackCollate"),
        (NoSequence(), sk.PackBatches(16), "hold no sequence.*__getsegments__"),
        (Short(0, SIZES.size), sk.PackBatches(64), "__getsegments__: must give one part for each of"),
        (SHORT_IN_A_TREE, sk.PackBatches(64), r"part 'bad': gives other than \d+ parts for as many"),
    ],
)
def test_documents_that_cannot_be_packed_are_named(dataset, recipe, message):
    with pytest.raises(sk.DatasetError, match=message):
        for _ in sk.Loader(dataset, sk.RandomSampler(seed=3), batches=recipe):
            pass


def test_lengths_that_lie_are_an_error_that_names_the_documents_where_a_pack_is_above_its_limit():
    lied = SIZES.copy()
    lied[[3, 20]] = 1
    loader = sk.Loader(Documents(lied), sk.RandomSampler(seed=3), batches=sk.PackBatches(64))
    with pytest.raises(sk.DatasetError, match="above its limit of 64; samples, by id") as error:
        for _ in loader:
            pass
    assert set(error.value.value) <= {3, 20}
    assert f"{SIZES[int(next(iter(error.value.value)))]}, not 1" in str(error.value)


def test_no_token_is_lost_where_lengths_lie_within_the_limit():
    said = np.minimum(SIZES + 2, 300) * (SIZES > 0)
    seen: Counter[int] = Counter()
    for batch in sk.Loader(Documents(said), sk.RandomSampler(seed=3), batches=sk.PackBatches(400)):
        seen.update(tokens_of(batch))
    assert seen == EVERY_TOKEN
    for said_of_one in (90, 110):
        recipe = sk.PackBatches(64, lengths=[said_of_one])
        parts = [tokens_of(batch) for batch in sk.Loader([list(range(100))], batches=recipe)]
        assert sorted(token for part in parts for token in part) == list(range(100))


def test_a_plain_dataloader_takes_packs_of_whole_documents_and_no_others():
    lengths = [int(size) for size in SIZES]

    def plain(**arguments: Any) -> DataLoader[Any]:
        recipe = sk.PackBatches(64, lengths=lengths, **arguments)
        sampler = sk.TorchSampler(sk.RandomSampler(seed=3), Documents(), sk.World(1, 0))
        collate = sk.PackCollate(plan=recipe.plan(sk.RandomSampler(seed=3), len(lengths)))
        batches = sk.TorchBatchSampler(sampler, batches=recipe)
        return DataLoader(Documents(), batch_sampler=batches, collate_fn=collate)

    seen: Counter[int] = Counter()
    for batch in plain(long="drop"):
        seen.update(tokens_of(batch))
    assert seen == Counter(
        token for id in range(SIZES.size) if SIZES[id] <= 64 for token in document(id).tolist()
    )
    for refused in ({}, {"long": "truncate"}, {"long": "drop", "packs": 2}):
        with pytest.raises(sk.NotSupportedError, match=r"parts of documents.*samplerkit\.Loader.*long="):
            plain(**refused)
