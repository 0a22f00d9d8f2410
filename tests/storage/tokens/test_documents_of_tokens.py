"""Whole documents and parts of them: what packs are made of."""

from collections import Counter

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.errors import ArgumentTypeError, DatasetError, OutOfDatasetError
from samplerkit.storage.tokens import token_files
from tests.storage.crowd import all_done
from tests.storage.tokens.test_reading import written

DOCUMENTS = [[1, 2, 3, 0], [0], [4, 5, 0], [6, 7, 8, 9, 10, 0], [11]]


def pair(folder, documents=DOCUMENTS, dtype="uint16"):
    """Documents as Megatron reads them."""
    return written(folder / "pair", documents, dtype)


def raw(folder):
    """The same tokens in an array, in which a token ends each document but the last one."""
    np.save(folder / "raw.npy", np.concatenate(DOCUMENTS).astype(np.uint16))
    return folder / "raw.npy"


@pytest.fixture(params=["idx", "token"])
def documents(request, tmp_path):
    if request.param == "idx":
        return sk.TokenDataset(pair(tmp_path), 3).as_documents()
    return sk.TokenDataset(raw(tmp_path), 3, documents=0).as_documents()


def test_documents_are_whole(documents):
    assert documents.lengths.tolist() == [4, 1, 3, 6, 1]
    assert [document.tolist() for document in documents] == DOCUMENTS
    assert [each.tolist() for each in documents.__getitems__([3, 0, 3])] == [
        DOCUMENTS[at] for at in (3, 0, 3)
    ]
    assert documents[-1].dtype == np.int64
    assert documents.layout.sizes.tolist() == [5]


def test_segments_are_parts_of_documents(documents):
    asked = np.array([[3, 2, 3], [0, 0, 4], [3, 0, 2], [2, 3, 0], [4, 0, 1]])
    found = [part.tolist() for part in documents.__getsegments__(asked)]
    assert found == [DOCUMENTS[id][start : start + length] for id, start, length in asked.tolist()]
    assert documents.__getsegments__(np.zeros((0, 3), np.int64)) == []
    with pytest.raises(OutOfDatasetError, match="document 1 has 1 tokens, and no such part, got \\(0, 2\\)"):
        documents.__getsegments__([[1, 0, 2]])
    with pytest.raises(OutOfDatasetError, match="outside of a dataset of 5"):
        documents.__getsegments__([[5, 0, 1]])
    with pytest.raises(ArgumentTypeError, match="must be of shape"):
        documents.__getsegments__([3, 0, 1])


def test_documents_of_a_part_are_those_of_its_sequences(tmp_path):
    lengths = [3, 0, 5, 1, 0, 4, 2, 9]
    prefix = pair(tmp_path, [np.full(length, number) for number, length in enumerate(lengths)])
    begin = 0
    for part, end in (("train", 4), ("valid", 6), ("test", 8)):
        data = sk.TokenDataset(prefix, 1, split="2,1,1", part=part).as_documents()
        assert data.lengths.tolist() == lengths[begin:end]
        assert [set(document) for document in data] == [
            {number} if lengths[number] else set() for number in range(begin, end)
        ]
        begin = end


def test_documents_of_a_large_index_are_found_across_its_pages(tmp_path):
    lengths = np.random.default_rng(0).integers(0, 4, 10_000)
    lengths[4090:4100] = 0
    firsts = np.cumsum(lengths) - lengths
    prefix = pair(
        tmp_path, [np.arange(first, first + n) for first, n in zip(firsts, lengths, strict=True)], "i4"
    )
    data = sk.TokenDataset(prefix, 100, documents="idx", outputs=("tokens", "documents"))
    documents = data.as_documents()
    assert np.array_equal(documents.lengths, lengths)
    for id in (0, 4089, 4095, 4096, 8191, 8192, 9999):
        assert documents[id].tolist() == list(range(firsts[id], firsts[id] + lengths[id]))
    begins = np.zeros(lengths.sum() + 1, bool)
    begins[firsts[lengths > 0]] = True
    batch = data.__getitems__(range(len(data)))
    for row, numbers in zip(batch["tokens"], batch["documents"], strict=True):
        starts = begins[row[1:-1]] | (row[1:-1] == 0)
        assert np.array_equal(np.diff(numbers), starts)


def test_documents_that_nothing_tells_are_refused(tmp_path):
    data = sk.TokenDataset(raw(tmp_path), 3)
    with pytest.raises(DatasetError, match="does not tell where documents begin"):
        data.as_documents()


def test_threads_find_documents_by_an_index_of_which_the_others_read_pages(tmp_path, monkeypatch):
    monkeypatch.setattr(token_files, "PAGE", 4)
    lengths = np.random.default_rng(0).integers(1, 4, 1200)
    prefix = pair(tmp_path, [np.full(length, 7) for length in lengths])
    of_token = np.repeat(np.arange(1200), lengths)
    for attempt in range(5):
        data = sk.TokenDataset(prefix, 5, documents="idx", outputs=("tokens", "documents"))
        windows = np.random.default_rng(attempt).permutation(len(data))
        found = [None] * len(data)

        def read(mine, data=data, found=found):
            for id in mine.tolist():
                found[id] = data[id]["documents"]

        all_done(*(lambda mine=mine: read(mine) for mine in np.array_split(windows, 3)))
        for id, documents in enumerate(found):
            expected = of_token[5 * id : 5 * id + 5]
            assert np.array_equal(np.diff(documents), np.diff(expected) != 0), (attempt, id)


SIZES = [int(size) for size in np.clip(np.random.default_rng(0).lognormal(3, 1, 60), 1, 150)]
PACKED = [[number + 1] * size for number, size in enumerate(SIZES)]


@pytest.mark.parametrize("window", [None, 20])
def test_documents_of_a_token_file_are_packed_and_resumed_on_other_ranks(tmp_path, window):
    documents = sk.TokenDataset(pair(tmp_path, PACKED), 32).as_documents()
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
    assert seen == Counter(token for document in PACKED for token in document)
