"""Packs through loaders: every token once on any ranks, also where the run is edited."""

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
from tests.loading.documents import EVERY_TOKEN, SIZES, Documents, Parts, document, loaders, tokens_of


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
    with pytest.raises(sk.StateError, match=r"recipe.*saved .*seq_len=64.*here .*seq_len=32"):
        loader(32).load_state_dict(state)
    with pytest.raises(sk.StateError, match="lengths"):
        loader(lengths=SIZES + 1).load_state_dict(state)


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
