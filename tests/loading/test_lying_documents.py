"""Documents that are not what was said of them: longer, shorter, without numbers, or gone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

import samplerkit as sk
from tests.loading.documents import EVERY_TOKEN, SIZES, Documents, document, tokens_of


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
