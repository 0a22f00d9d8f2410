"""Whole documents and parts of them: what packs are made of."""

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.errors import ArgumentTypeError, DatasetError, OutOfDatasetError
from samplerkit.storage.tokens import token_files
from tests.storage.crowd import run_in_threads
from tests.storage.tokens.test_reading import write_pair

DOCUMENTS = [[1, 2, 3, 0], [0], [4, 5, 0], [6, 7, 8, 9, 10, 0], [11]]


def write_array(folder):
    """The same tokens in an array, in which a token ends each document but the last one."""
    np.save(folder / "raw.npy", np.concatenate(DOCUMENTS).astype(np.uint16))
    return folder / "raw.npy"


@pytest.fixture(params=["idx", "token"])
def documents(request, tmp_path):
    if request.param == "idx":
        return sk.TokenDataset(write_pair(tmp_path / "pair", DOCUMENTS), 3).as_documents()
    return sk.TokenDataset(write_array(tmp_path), 3, documents=0).as_documents()


def test_documents_are_whole(documents):
    assert documents.lengths.tolist() == [4, 1, 3, 6, 1]
    assert [document.tolist() for document in documents] == DOCUMENTS
    assert [each.tolist() for each in documents.__getitems__([3, 0, 3])] == [
        DOCUMENTS[at] for at in (3, 0, 3)
    ]
    assert documents[-1].dtype == np.int64
    assert documents.layout.sizes.tolist() == [5]
    assert repr(documents) == "TokenDocuments(5 documents)"


def test_the_fingerprint_of_documents_changes_with_their_files_and_parts(tmp_path):
    pairs = [write_pair(tmp_path / name, DOCUMENTS[: 5 - number]) for number, name in enumerate("ab")]
    datasets = [sk.TokenDataset(pair, 1) for pair in pairs]
    datasets += [sk.TokenDataset(pairs[0], 1, split="2,1", part=part) for part in ("train", "valid")]
    assert len({dataset.as_documents().fingerprint for dataset in datasets}) == 4
    assert sk.TokenDataset(pairs[0], 2).as_documents().fingerprint == datasets[0].as_documents().fingerprint


def test_segments_are_parts_of_documents(documents):
    segments = np.array([[3, 2, 3], [0, 0, 4], [3, 0, 2], [2, 3, 0], [4, 0, 1]])
    parts = [part.tolist() for part in documents.__getsegments__(segments)]
    assert parts == [DOCUMENTS[id][start : start + length] for id, start, length in segments.tolist()]
    assert documents.__getsegments__(np.zeros((0, 3), np.int64)) == []
    with pytest.raises(OutOfDatasetError, match="document 1 has 1 tokens, and no such part, got \\(0, 2\\)"):
        documents.__getsegments__([[1, 0, 2]])
    with pytest.raises(OutOfDatasetError, match="outside of a dataset of 5"):
        documents.__getsegments__([[5, 0, 1]])
    for dataset in (documents, sk.TreeDataset({"a": documents})):
        for wrong in ([3, 0, 1], [[3, 0]], [[3, 0.5, 1]]):
            with pytest.raises(ArgumentTypeError, match=r"^segments: must be"):
                dataset.__getsegments__(wrong)


def test_documents_of_a_part_are_those_of_its_sequences(tmp_path):
    lengths = [3, 0, 5, 1, 0, 4, 2, 9]
    prefix = write_pair(tmp_path / "pair", [np.full(length, number) for number, length in enumerate(lengths)])
    begin = 0
    for part, end in (("train", 4), ("valid", 6), ("test", 8)):
        data = sk.TokenDataset(prefix, 1, split="2,1,1", part=part).as_documents()
        assert data.lengths.tolist() == lengths[begin:end]
        assert [set(document) for document in data] == [
            {number} if lengths[number] else set() for number in range(begin, end)
        ]
        begin = end


def test_documents_without_an_index_or_an_end_token_are_refused(tmp_path):
    data = sk.TokenDataset(write_array(tmp_path), 3)
    with pytest.raises(DatasetError, match="has no index of documents"):
        data.as_documents()
    with pytest.raises(DatasetError, match="has no index of documents; give the prefix"):
        data.windows_of(0)


def test_the_fingerprint_of_documents_depends_on_their_part_and_on_the_token_that_ends_them(tmp_path):
    path = write_array(tmp_path)
    options = [
        {"documents": 0},
        {"documents": 0, "seed": 1},
        {"documents": 4},
        {"documents": 0, "split": "1,1"},
    ]
    parts = [sk.TokenDataset(path, 3, **each).as_documents().fingerprint for each in options]
    assert parts[0] == parts[1]
    assert len(set(parts)) == 3


def test_threads_share_the_pages_of_an_index_of_documents(tmp_path, monkeypatch):
    monkeypatch.setattr(token_files, "PAGE", 4)
    lengths = np.random.default_rng(0).integers(0, 4, 1200)
    lengths[590:605] = 0  # pages of empty documents
    document_of = np.repeat(np.arange(1200), lengths)
    prefix = write_pair(tmp_path / "pair", [np.full(length, number) for number, length in enumerate(lengths)])
    whole = sk.TokenDataset(prefix, 5).as_documents()
    assert [document.tolist() for document in whole] == [[n] * int(size) for n, size in enumerate(lengths)]
    for attempt in range(2):
        data = sk.TokenDataset(prefix, 5, documents="idx", outputs=("tokens", "documents"))
        windows = np.random.default_rng(attempt).permutation(len(data))
        numbers = [None] * len(data)

        def read(ids, data=data, numbers=numbers):
            for id in ids.tolist():
                numbers[id] = data[id]["documents"]

        run_in_threads(*(lambda ids=ids: read(ids) for ids in np.array_split(windows, 3)))
        for id, documents in enumerate(numbers):
            expected = document_of[5 * id : 5 * id + 5]
            assert np.array_equal(np.diff(documents), np.diff(expected) != 0), (attempt, id)
