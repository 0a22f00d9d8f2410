"""Documents of token files in packs: each token once, and nothing read but the parts that a pack holds."""

from collections import Counter

import numpy as np
import pytest

import samplerkit as sk

SIZES = [int(size) for size in np.clip(np.random.default_rng(0).lognormal(3, 1, 60), 1, 150)]
DOCUMENTS = [[number + 1] * size for number, size in enumerate(SIZES)]


@pytest.mark.parametrize("window", [None, 20])
def test_documents_of_a_token_file_are_packed_and_resumed_on_other_ranks(tmp_path, window):
    with sk.TokenWriter(tmp_path / "pair", "uint16") as writer:
        for document in DOCUMENTS:
            writer.write(document)
    documents = sk.TokenDataset(tmp_path / "pair", 32).as_documents()
    recipe = sk.PackBatches(32, packs=2, window=window)
    seen: Counter[int] = Counter()

    def loaders(ranks: int) -> list[sk.Loader]:
        sampler = sk.RandomSampler(seed=3)
        return [
            sk.Loader(documents, sampler, batches=recipe, world=sk.World(ranks, rank), tail="split")
            for rank in range(ranks)
        ]

    def count(loader: sk.Loader, step: int, batch: dict) -> None:
        assert batch["input_ids"].shape[1] == 32
        if not loader.pads(step).any():
            seen.update(batch["input_ids"][batch["segment_ids"] > 0].tolist())

    first = loaders(3)
    running = [iter(loader) for loader in first]
    for step in range(4):
        for loader, batches in zip(first, running, strict=True):
            count(loader, step, next(batches))
    for loader in loaders(2):
        loader.load_state_dict(first[0].state_dict())
        for step, batch in enumerate(loader):
            count(loader, step, batch)
    assert seen == Counter(token for document in DOCUMENTS for token in document)
