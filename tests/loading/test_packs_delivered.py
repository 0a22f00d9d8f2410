"""Packs through loaders: every token once on any ranks, parts of documents, batches of tensors, and lies."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import samplerkit as sk
from samplerkit.inspect.time_machine import at, when
from tests.loading.worker_kinds import beside

SIZES = np.clip(np.random.default_rng(0).lognormal(3, 1, 120), 0, 300).astype(np.int64)
SIZES[7] = 0


def document(id: int) -> torch.Tensor:
    """The tokens of a document: each of them is found in no other one."""
    return torch.arange(1000 * id + 1, 1000 * id + 1 + int(SIZES[id]))


EVERY_TOKEN = Counter(token for id in range(SIZES.size) for token in document(id).tolist())


class Documents:
    """Documents that are read whole."""

    def __init__(self, lengths: Any = SIZES) -> None:
        self.lengths = lengths
        self.read: list[int] = []

    def __len__(self) -> int:
        return SIZES.size

    def __getitem__(self, id: int) -> Any:
        self.read.append(id)
        return document(id)


class Parts(Documents):
    """Documents that give the parts of them that are asked for."""

    def __getsegments__(self, segments: np.ndarray) -> list[torch.Tensor]:
        assert segments.dtype == np.int64
        assert segments.shape[1:] == (3,)
        return [document(id)[start : start + length] for id, start, length in segments.tolist()]


def loaders(dataset: Any, recipe: Any, ranks: int, **options: Any) -> list[sk.Loader]:
    sampler = sk.RandomSampler(seed=3)
    return [
        sk.Loader(dataset, sampler, batches=recipe, world=sk.World(ranks, rank), **options)
        for rank in range(ranks)
    ]


def tokens_of(batch: dict[str, Any]) -> list[int]:
    return batch["input_ids"][batch["segment_ids"] > 0].tolist()


@pytest.mark.parametrize("tail", ["pad", "ragged", "split"])
@pytest.mark.parametrize(
    "recipe",
    [
        sk.PackBatches(64),
        sk.PackBatches(64, window=30),
        sk.PackBatches(64, packs=3, length_multiple=8),
        sk.PackBatches(64, packs=3, window=40),
    ],
    ids=["whole set", "windows", "several packs", "several packs in windows"],
)
def test_a_run_that_goes_on_on_other_ranks_reads_every_token_once(recipe, tail):
    seen: Counter[int] = Counter()
    dataset = Parts() if tail == "pad" else Documents()
    first = loaders(dataset, recipe, 3, tail=tail)
    running = [iter(loader) for loader in first]
    for _ in range(4):
        for batches in running:
            seen.update(tokens_of(next(batches)))
    state = first[0].state_dict()
    assert len(str(state["sections"]["batches"])) < 300
    steps = set()
    for loader in loaders(dataset, recipe, 2, tail=tail):
        loader.load_state_dict(state)
        for step, batch in enumerate(loader):
            assert (batch["segment_ids"] > 0).any(dim=1).all()
            pads = loader.pads(step)
            assert pads.all() == pads.any()
            if not pads.any():
                seen.update(tokens_of(batch))
        steps.add(loader.step)
    assert seen == EVERY_TOKEN
    assert len(steps) == 1 or tail == "ragged"


def test_a_batch_holds_what_the_plan_says_and_the_loader_tells():
    ranks = loaders(Parts(), sk.PackBatches(64, packs=2), 2)
    held = []
    for rank, loader in enumerate(ranks):
        for step, batch in enumerate(loader):
            if loader.pads(step).any():
                continue
            packs = loader.plan[2 * step + rank]
            assert loader.ids(step).tolist() == packs.ids.tolist()
            assert batch["input_ids"].shape == (packs.rows[-1] + 1, 64)
            expected = [
                document(id)[start : start + length]
                for id, start, length in zip(packs.ids, packs.starts, packs.lengths, strict=True)
            ]
            assert tokens_of(batch) == torch.cat(expected).tolist()
            held.append((step, len(tokens_of(batch))))
            read = at(ranks[0], 0, step, rank)
            assert read.ids.tolist() == packs.ids.tolist()
            assert read.batch is not None
            assert read.batch.tokens == len(tokens_of(batch))
            assert read.batch.shape == (packs.rows[-1] + 1, 64)
    fresh = loaders(Parts(), sk.PackBatches(64, packs=2), 2)[0]
    for step in range(3):
        assert fresh.tokens(step) == sum(tokens for other, tokens in held if other == step)
    longest = int(np.argmax(SIZES))
    times = when(ranks[0], longest, 0)[0].occurrences
    assert len(times) > 1
    for time in times:
        assert longest in at(ranks[0], 0, time.step, time.rank).ids


def test_a_split_document_is_read_once_a_pack_only_where_the_dataset_gives_no_parts():
    whole, parts = Documents(), Parts()
    for dataset in (whole, parts):
        for _ in sk.Loader(dataset, sk.RandomSampler(seed=3), batches=sk.PackBatches(64)):
            pass
    times = Counter(whole.read)
    assert times == {id: -(-int(size) // 64) for id, size in enumerate(SIZES.tolist()) if size}
    assert parts.read == []


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


def test_attention_by_the_bounds_of_a_batch_is_that_over_each_document_alone():
    recipe = sk.PackBatches(64, lengths=SIZES, packs=2)
    batch = next(iter(sk.Loader(Parts(), sk.RandomSampler(seed=3), batches=recipe)))
    features = torch.randn(128, 4, generator=torch.Generator().manual_seed(0))
    apart = torch.cat(
        [
            torch.nn.functional.scaled_dot_product_attention(part[None], part[None], part[None])[0]
            for part in torch.tensor_split(features, batch["cu_seqlens"][1:-1].long())
        ]
    )
    rows = features.reshape(2, 64, 4)
    mask = batch["segment_ids"][:, :, None] == batch["segment_ids"][:, None, :]
    together = torch.nn.functional.scaled_dot_product_attention(rows, rows, rows, attn_mask=mask)
    real = batch["segment_ids"].reshape(-1) > 0
    torch.testing.assert_close(together.reshape(128, 4)[real], apart[real])


@pytest.mark.parametrize("workers", [0, 2, "2 threads"])
def test_fields_as_long_as_the_tokens_are_packed_beside_them(workers):
    class Labelled(Documents):
        def __getitem__(self, id: int) -> Any:
            tokens = document(id).numpy().astype(np.uint16)
            return {"text": tokens, "labels": -tokens.astype(np.int64), "id": id, "pair": np.zeros(2)}

    recipe = sk.PackBatches(64, packs=2)
    collate = sk.PackCollate("text", value={"labels": -100})
    loader = sk.Loader(
        Labelled(), sk.RandomSampler(seed=3), batches=recipe, collate_fn=collate, **beside(workers)
    )
    for step, batch in enumerate(loader):
        real = batch["segment_ids"] > 0
        tokens = batch["input_ids"]
        assert (batch["labels"][~real] == -100).all()
        assert (batch["labels"][real] == -tokens[real]).all()
        assert batch["labels"].shape == tokens.shape == (batch["position_ids"].shape)
        assert batch["id"].tolist() == loader.ids(step).tolist()
        assert batch["pair"].shape == (len(batch["id"]), 2)


def test_lengths_that_lie_are_an_error_that_names_the_documents_where_a_pack_is_above_its_limit():
    lied = SIZES.copy()
    lied[[3, 20]] = 1
    loader = sk.Loader(Documents(lied), sk.RandomSampler(seed=3), batches=sk.PackBatches(64))
    with pytest.raises(sk.DatasetError, match="above its limit of 64; samples, by id") as error:
        for _ in loader:
            pass
    assert set(error.value.value) <= {3, 20}
    assert f"{SIZES[int(next(iter(error.value.value)))]}, not 1" in str(error.value)


def test_a_later_part_that_is_longer_than_was_said_is_named_by_the_token_that_it_begins_at():
    class Longer(Documents):
        def __getitem__(self, id: int) -> Any:
            return torch.arange(150)

    loader = sk.Loader(Longer(np.eye(SIZES.size, dtype=np.int64)[9] * 70), batches=sk.PackBatches(64))
    with pytest.raises(sk.DatasetError, match=r"longer than was said.*9: '86, not 6, from token 64 on'"):
        for _ in loader:
            pass


def test_a_document_without_numbers_is_named_by_its_id():
    class Words(Documents):
        def __getitem__(self, id: int) -> Any:
            return ["some", "words"] if id == 5 else document(id)

    loader = sk.Loader(Words(), sk.RandomSampler(seed=3), batches=sk.PackBatches(64, long="drop"))
    with pytest.raises(sk.DatasetError, match=r"sample 5: must be a sequence of numbers.*PackCollate"):
        for _ in loader:
            pass


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


def test_a_document_that_cannot_be_read_is_left_out_of_its_pack():
    class Damaged(Documents):
        def __getitem__(self, id: int) -> Any:
            if id == 11:
                raise OSError("gone")
            return super().__getitem__(id)

    recipe = sk.PackBatches(400)
    loader = sk.Loader(Damaged(), sk.RandomSampler(seed=3), batches=recipe, bad_samples="skip")
    seen: Counter[int] = Counter()
    for step, batch in enumerate(loader):
        seen.update(tokens_of(batch))
        assert len(loader.ids(step)) == int(batch["segment_ids"].max())
    assert [skipped.id for skipped in loader.skipped] == [11]
    assert seen == EVERY_TOKEN - Counter(document(11).tolist())


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


def test_what_a_collate_draws_differs_between_the_packs_of_one_document():
    def noisy(samples: list[Any]) -> float:
        return float(torch.rand(len(samples))[0])

    recipe = sk.PackBatches(8, lengths=[80])
    loader = sk.Loader(
        [torch.arange(80)], sk.RandomSampler(), batches=recipe, collate_fn=noisy, seed_draws=True
    )
    drawn = [*loader]
    assert len({*drawn}) == len(drawn) == 10
    loader.set_epoch(0)
    assert [*loader] == drawn


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


def test_a_state_of_other_packs_or_other_lengths_is_refused():
    def loader(seq_len: int = 64, lengths: Any = SIZES) -> sk.Loader:
        return sk.Loader(
            Documents(lengths),
            sk.RandomSampler(seed=3),
            batches=sk.PackBatches(seq_len),
            world=sk.World(1, 0),
        )

    state = loader().state_dict(step=3)
    loader().load_state_dict(state)
    with pytest.raises(sk.StateError, match=r"recipe.*seq_len=32.*seq_len=64"):
        loader(32).load_state_dict(state)
    with pytest.raises(sk.StateError, match="lengths"):
        loader(lengths=SIZES + 1).load_state_dict(state)


@pytest.mark.parametrize(
    ("make", "error", "problem"),
    [
        (lambda: sk.PackCollate(3), sk.ArgumentTypeError, "field"),
        (lambda: sk.PackCollate(value="zero"), sk.ArgumentTypeError, "value"),
        (lambda: sk.PackCollate(value={"text": None}), sk.ArgumentTypeError, "one by field, got None"),
        (lambda: sk.PackCollate(plan=3), sk.ArgumentTypeError, "plan"),
        (lambda: sk.PackCollate()([[1]]), sk.ArgumentValueError, "how long a pack is.*batches=PackBatches"),
        (
            lambda: sk.PackCollate(plan=sk.TokenBatches(8, lengths=[1]).plan(sk.RandomSampler(), 1)),
            sk.ArgumentValueError,
            "no packs.*PadCollate",
        ),
        (
            lambda: sk.PackCollate().measured_by(
                sk.TokenBatches(8, lengths=[1]).plan(sk.RandomSampler(), 1).measure
            ),
            sk.ArgumentValueError,
            "no packs.*PackBatches",
        ),
    ],
)
def test_what_no_packs_can_be_made_of_is_refused(make, error, problem):
    with pytest.raises(error, match=problem):
        make()


@pytest.mark.parametrize(
    ("samples", "problem"),
    [
        ([torch.ones(2, 3), torch.ones(2, 4)], r"place 1 .* shape \('length', 3\), got \(2, 4\)"),
        ([{"text": [1]}, {"text": "b"}], "place 1 of a batch, field text: must be a sequence of numbers"),
        ([{"a": [1, 2], "b": [3]}], "hold 2 sequences.*PackCollate"),
        ([{"number": 3}], "hold 0 sequences"),
        ([{"text": [1]}, {"text": [1], "id": 2}], "another structure"),
        ([{"text": [1], "cu_seqlens": 3}], "field cu_seqlens"),
        ([[1, 2], 3], "must be a sequence"),
        ([[1] * 40, [2] * 40], "a pack of 80 tokens is above its limit of 64; the parts of it"),
        ([{"text": [1], "object": object()}], "cannot be made a batch by torch"),
    ],
)
def test_samples_of_which_no_packs_can_be_made_are_an_error(samples, problem):
    plan = sk.PackBatches(64, lengths=[1]).plan(sk.RandomSampler(), 1)
    with pytest.raises(sk.DatasetError, match=problem):
        sk.PackCollate(plan=plan)(samples)


@pytest.mark.parametrize(
    ("sample", "problem"),
    [
        ({"words": [1]}, r"hold no sequence text, got \['words'\]"),
        ({"text": 3, "words": [1]}, "hold no sequence text.*PackCollate"),
        ({"text": [1], "input_ids": [1]}, "field input_ids: has the name.*call it otherwise"),
    ],
)
def test_a_field_that_is_named_holds_the_tokens_and_leaves_the_names_of_packs_free(sample, problem):
    plan = sk.PackBatches(64, lengths=[1]).plan(sk.RandomSampler(), 1)
    with pytest.raises(sk.DatasetError, match=problem):
        sk.PackCollate("text", plan=plan)([sample])


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


class Some(Parts):
    """Some of the documents."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__(SIZES[first:end])
        self.first = first

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, id: int) -> Any:
        return document(self.first + id)

    def __getsegments__(self, segments: np.ndarray) -> list[torch.Tensor]:
        return super().__getsegments__(segments + np.array([self.first, 0, 0]))


MIXED = sk.MixtureSampler({"a": None, "b": None}, weights={"a": 1, "b": 1}, num_samples=150, seed=5, lanes=1)


@pytest.mark.parametrize(
    ("make", "sampler", "edits"),
    [
        (Parts, sk.RandomSampler(seed=3), [sk.Edit(at=30, skip=12), sk.Edit(at=60, without=range(40, 60))]),
        (Documents, sk.RandomSampler(seed=3), [sk.Edit(at=60, skip=7)]),
        (
            lambda: sk.TreeDataset({"a": Some(0, 50), "b": Some(50, SIZES.size)}),
            MIXED,
            [sk.Edit(at=30, weights={"a": 1, "b": 4}), sk.Edit(at=90, weights={"a": 3, "b": 1})],
        ),
    ],
    ids=["skips, and ids that leave", "whole documents", "weights of a mixture"],
)
def test_packs_of_an_edited_run_hold_each_drawn_document_once_on_whatever_ranks(make, sampler, edits):
    """The second edit is made in mid-run: the run that goes on knows it, and the one before did not."""
    recipe, seen, state = sk.PackBatches(64, window=30), Counter(), None
    drawn = sk.Ledger(sampler, edits).order(make())[:].tolist()
    for ranks, steps in ((3, 2), (1, 3), (2, 4), (3, 999)):
        known = edits if state is not None else edits[:1]
        going = [
            sk.Loader(
                make(),
                sk.Ledger(sampler, known),
                batches=recipe,
                world=sk.World(ranks, rank),
                tail="ragged",
            )
            for rank in range(ranks)
        ]
        for loader in going if state else ():
            loader.load_state_dict(json.loads(json.dumps(state)))
        running = [iter(loader) for loader in going]
        for _ in range(steps):
            batches = [batch for each in running if (batch := next(each, None)) is not None]
            for batch in batches:
                seen.update(tokens_of(batch))
            if not batches:
                break
        state = going[0].state_dict()
    assert seen == Counter(token for id in drawn for token in document(id).tolist())
    plain = sampler.order(make())[:].tolist()
    assert Counter(drawn) != Counter(plain)
