"""A batch of packs: its tensors keep documents apart, and what no packs can be made of is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import samplerkit as sk
from tests.loading.documents import Documents, document


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


def test_fields_as_long_as_the_tokens_are_packed_beside_them():
    class Labelled(Documents):
        def __getitem__(self, id: int) -> Any:
            tokens = document(id).numpy().astype(np.uint16)
            return {
                "text": tokens,
                "labels": -tokens.astype(np.int64),
                "id": id,
                "pair": np.zeros(2),
                "boxes": np.tile(tokens, (3, 1)).T,
            }

    recipe = sk.PackBatches(64, packs=2)
    collate = sk.PackCollate("text", value={"labels": -100})
    loader = sk.Loader(Labelled(), sk.RandomSampler(seed=3), batches=recipe, collate_fn=collate)
    for step, batch in enumerate(loader):
        real = batch["segment_ids"] > 0
        tokens = batch["input_ids"]
        assert (batch["labels"][~real] == -100).all()
        assert (batch["labels"][real] == -tokens[real]).all()
        assert (batch["boxes"] == tokens[..., None].expand(-1, -1, 3)).all()
        assert batch["labels"].shape == tokens.shape == (batch["position_ids"].shape)
        assert batch["id"].tolist() == loader.ids(step).tolist()
        assert batch["pair"].shape == (len(batch["id"]), 2)
