"""Documents in packs: what a batch holds; parts where their dataset gives parts; lengths that are wrong."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import samplerkit as sk
from tests.loading.documents import EVERY_TOKEN, SIZES, Documents, Parts, document, tokens_of


def test_a_batch_keeps_documents_apart():
    lengths = [5, 3, 4, 2]
    dataset = [list(range(10 * id, 10 * id + length)) for id, length in enumerate(lengths)]
    recipe = sk.PackBatches(10, lengths=lengths, packs=2, length_multiple=2, window=4)
    batch = next(iter(sk.Loader(dataset, sk.SequentialSampler(), batches=recipe)))
    assert {key: value.tolist() if key != "max_seqlen" else value for key, value in batch.items()} == {
        "input_ids": [[0, 1, 2, 3, 4, 0, 10, 11, 12, 0], [20, 21, 22, 23, 30, 31, 0, 0, 0, 0]],
        "position_ids": [[0, 1, 2, 3, 4, 0, 0, 1, 2, 0], [0, 1, 2, 3, 0, 1, 0, 0, 0, 0]],
        "segment_ids": [[1, 1, 1, 1, 1, 0, 2, 2, 2, 0], [1, 1, 1, 1, 2, 2, 0, 0, 0, 0]],
        "cu_seqlens": [0, 5, 6, 9, 10, 14, 16, 20],
        "max_seqlen": 5,
    }
    assert batch["cu_seqlens"].dtype == batch["segment_ids"].dtype == torch.int32
    assert batch["input_ids"].dtype == batch["position_ids"].dtype == torch.int64


def test_fields_as_long_as_the_tokens_are_packed_with_them():
    def labelled(id: int) -> Any:
        tokens = document(id).numpy().astype(np.uint16)
        labels, boxes = -tokens.astype(np.int64), np.tile(tokens, (3, 1)).T
        more = {"short": torch.from_numpy(tokens.astype(np.int32)), "flags": torch.ones(tokens.size) > 0}
        return {"text": tokens, "labels": labels, "id": id, "pair": np.zeros(2), "boxes": boxes, **more}

    recipe = sk.PackBatches(64, packs=2)
    collate = sk.PackCollate("text", value={"labels": -100})
    loader = sk.Loader(Documents(give=labelled), sk.RandomSampler(seed=3), batches=recipe, collate_fn=collate)
    for step, batch in enumerate(loader):
        real = batch["segment_ids"] > 0
        tokens = batch["input_ids"]
        assert (batch["labels"][~real] == -100).all()
        assert (batch["labels"][real] == -tokens[real]).all()
        assert (batch["boxes"] == tokens[..., None].expand(-1, -1, 3)).all()
        assert batch["labels"].shape == tokens.shape == (batch["position_ids"].shape)
        assert batch["short"].dtype == torch.int64
        assert torch.equal(batch["short"], tokens)
        assert torch.equal(batch["flags"], real)
        assert batch["id"].tolist() == loader.ids(step).tolist()
        assert batch["pair"].shape == (len(batch["id"]), 2)


def test_a_split_document_is_read_once_a_pack_only_where_the_dataset_gives_no_parts():
    whole, parts = Documents(), Parts()
    for dataset in (whole, parts):
        for _ in sk.Loader(dataset, sk.RandomSampler(seed=3), batches=sk.PackBatches(64)):
            pass
    times = Counter(whole.read)
    assert times == {id: -(-int(size) // 64) for id, size in enumerate(SIZES.tolist()) if size}
    assert parts.read == []


class Recorded(Parts):
    """Counts the requested parts, and draws once for each."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__(SIZES[first:end])
        self.first, self.requested = first, 0

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, id: int, place: int | None = None) -> Any:
        return super().__getitem__(self.first + id) * 1000 + int(sk.draw_rng(place).integers(0, 1000))

    def __getsegments__(self, segments: np.ndarray) -> list[torch.Tensor]:
        self.requested += len(segments)
        return [
            self.__getitem__(id, place)[start : start + length]
            for place, (id, start, length) in enumerate(segments.tolist())
        ]


class WholeOnly(Recorded):
    __getsegments__ = None


@pytest.mark.parametrize("seed_draws", [False, True])
def test_a_tree_gives_the_parts_of_its_datasets_and_reads_no_document_whole(seed_draws):
    def read(dataset: Any) -> list[list[int]]:
        options = {"batches": sk.PackBatches(16, packs=2), "seed_draws": seed_draws}
        return [tokens_of(batch) for batch in sk.Loader(dataset, sk.RandomSampler(seed=3), **options)]

    parts = [Recorded(0, 9), Recorded(9, 20), Recorded(20, SIZES.size)]
    tree = sk.TreeDataset({"a": parts[0], "rest": sk.TreeDataset({"b": parts[1], "c": parts[2]})})
    alone = Recorded(0, SIZES.size)
    assert read(tree) == read(alone)
    assert sum(part.requested for part in parts) == alone.requested > SIZES.size
    # With one dataset that gives no parts, all documents are read as a whole.
    mixed = sk.TreeDataset({"a": parts[0], "b": WholeOnly(9, SIZES.size)})
    before = parts[0].requested
    assert read(mixed) == read(alone)
    assert parts[0].requested == before


def damaged(id: int) -> torch.Tensor:
    """Documents of which two cannot be read, one of several packs."""
    if id in {3, 39}:
        raise OSError("is damaged")
    return document(id)


class DamagedParts(Parts):
    """Gives no part of these."""

    def __getsegments__(self, segments: np.ndarray) -> list[torch.Tensor]:
        return [damaged(id)[start : start + length] for id, start, length in segments.tolist()]


@pytest.mark.parametrize("dataset", [Documents(give=damaged), DamagedParts()], ids=["whole", "parts"])
def test_if_a_document_is_skipped_the_others_keep_all_their_tokens(dataset):
    options = {"batches": sk.PackBatches(64, packs=2), "bad_samples": "skip"}
    loader = sk.Loader(dataset, sk.RandomSampler(seed=3), **options)
    lost = Counter(torch.cat([document(3), document(39)]).tolist())
    assert Counter(token for batch in loader for token in tokens_of(batch)) == EVERY_TOKEN - lost
    assert {skip.id for skip in loader.skipped} == {3, 39}


class Short(Recorded):
    """Gives too few parts."""

    def __getsegments__(self, segments: np.ndarray) -> list[torch.Tensor]:
        return super().__getsegments__(segments)[1:]


ONE_OF_70 = np.eye(SIZES.size, dtype=np.int64)[9] * 70
SHORT_IN_A_TREE = sk.TreeDataset({"good": Recorded(0, 9), "bad": Short(9, SIZES.size)})


@pytest.mark.parametrize(
    ("dataset", "recipe", "message"),
    [
        (
            Documents(ONE_OF_70, lambda number: torch.arange(150)),
            sk.PackBatches(64),
            "longer than their given lengths.*9: '150, not 70'",
        ),
        (
            Documents(give=lambda number: document(number) if number != 5 else ["some", "words"]),
            sk.PackBatches(64, long="drop"),
            "sample 5: must be a sequence of numbers.*PackCollate",
        ),
        (
            Documents(give=lambda number: {"number": number}),
            sk.PackBatches(16),
            "hold no sequence.*__getsegments__",
        ),
        (Short(0, SIZES.size), sk.PackBatches(64), "__getsegments__: must give one part for each of"),
        (SHORT_IN_A_TREE, sk.PackBatches(64), r"part 'bad': must return \d+ parts for as many"),
    ],
)
def test_documents_that_cannot_be_packed_are_named(dataset, recipe, message):
    with pytest.raises(sk.DatasetError, match=message):
        for _ in sk.Loader(dataset, sk.RandomSampler(seed=3), batches=recipe):
            pass


def test_wrong_lengths_are_an_error_that_names_the_documents_if_a_pack_exceeds_its_limit():
    wrong = SIZES.copy()
    wrong[[3, 20]] = 1
    loader = sk.Loader(Documents(wrong), sk.RandomSampler(seed=3), batches=sk.PackBatches(64))
    with pytest.raises(sk.DatasetError, match="above its limit of 64; samples, by id") as error:
        for _ in loader:
            pass
    assert set(error.value.value) <= {3, 20}
    assert f"{SIZES[int(next(iter(error.value.value)))]}, not 1" in str(error.value)


def test_no_token_is_lost_if_wrong_lengths_stay_within_the_limit():
    wrong = np.minimum(SIZES + 2, 300) * (SIZES > 0)
    seen: Counter[int] = Counter()
    for batch in sk.Loader(Documents(wrong), sk.RandomSampler(seed=3), batches=sk.PackBatches(400)):
        seen.update(tokens_of(batch))
    assert seen == EVERY_TOKEN
    for length in (90, 110):
        recipe = sk.PackBatches(64, lengths=[length])
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


def test_packs_of_lists_without_a_token_hold_integers_too():
    loader = sk.Loader([[], []], sk.SequentialSampler(), batches=sk.PackBatches(4, lengths=[2, 2]))
    assert next(iter(loader))["input_ids"].dtype == torch.int64


class Absent(list):
    """What a dataset has of a batch whose samples are all missing: another one."""

    missing = ((0, "a.tar", "is gone"),)
    substitute = 3


class AllAbsent:
    def __len__(self):
        return 2

    def __getitems__(self, ids):
        return self.read_present(ids)

    def read_present(self, ids):
        return Absent([np.arange(9)])


def test_a_pack_whose_documents_are_all_missing_is_cut_from_a_substitute():
    recipe = sk.PackBatches(8, lengths=[5, 4], window=1)
    loader = sk.Loader(AllAbsent(), sk.SequentialSampler(), batches=recipe)
    tokens = [batch["input_ids"].tolist() for batch in loader]
    assert tokens == [[[0, 1, 2, 3, 4, 0, 0, 0]], [[0, 1, 2, 3, 0, 0, 0, 0]]]
    assert [skipped.id for skipped in loader.skipped] == [0, 1]
