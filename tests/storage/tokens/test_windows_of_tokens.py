"""Windows: each token is an input exactly once an epoch; and the documents that windows are cut from."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.errors import ArgumentTypeError, DatasetError, OutOfDatasetError
from samplerkit.storage.tokens import outputs, token_files
from samplerkit.storage.tokens.arguments import Corpus, TokenPaths, WindowSpec
from samplerkit.storage.tokens.outputs import TokenDocuments
from samplerkit.storage.tokens.source import PASS, Rings
from tests.storage.crowd import run_in_threads
from tests.storage.tokens.test_reading import write_pair

GOLDEN = Path(__file__).parents[2] / "data" / "token_phases_1.json"


def corpus(count, *path):
    """A corpus of some files."""
    files = tuple(TokenPaths(f"{number}.npy") for number in range(count))
    return Corpus(path, tuple(file.data for file in files), files)


def rings(tokens, seq_len, block_len, seed=0, *, phase=True):
    """The windows of one corpus of files."""
    sizes = np.array(tokens, dtype=np.int64)
    return Rings(sizes, (corpus(len(tokens)),), WindowSpec(seq_len, block_len, phase=phase, seed=seed))


def inputs(ring, epoch, number=0):
    """The input tokens of each window of an epoch, as (file, token): shape (windows, S, 2)."""
    ids = np.arange(ring.starts[-1])
    files, begins = ring.at(ids, np.full(ids.shape, epoch + number * PASS))
    tokens = (begins[:, None] + np.arange(ring.spec.seq_len)) % np.maximum(1, ring.tokens[files, None])
    return np.stack([np.broadcast_to(files[:, None], tokens.shape), tokens], axis=-1)


def skipped_tokens(tokens, block_len, phase):
    """The tokens before the phase, cyclically, that do not fill a block."""
    return {(phase - 1 - each) % tokens for each in range(tokens % block_len)}


def reads_each_token_once(ring, epoch, number=0):
    """Whether each token of each file is an input exactly once, except for those before the phase."""
    read = inputs(ring, epoch, number)
    phases = ring.phases(np.arange(ring.tokens.size), np.full(ring.tokens.size, epoch + number * PASS))
    for file, tokens in enumerate(ring.tokens.tolist()):
        file_tokens = np.sort(read[read[..., 0] == file][:, 1]).tolist()
        block_len = ring.spec.block_len
        lost = skipped_tokens(tokens, block_len, int(phases[file])) if tokens >= block_len else None
        expected = [] if lost is None else sorted(set(range(tokens)) - lost)
        if file_tokens != expected:
            return False
    return True


def test_every_token_of_small_files_is_an_input_exactly_once():
    for block_len in range(1, 11):
        for seq_len in (each for each in range(1, block_len + 1) if block_len % each == 0):
            for tokens in range(0, 27, 2):
                for epoch in range(2):
                    ring = rings([tokens, 2 * tokens + 1], seq_len, block_len, seed=epoch)
                    assert reads_each_token_once(ring, epoch, epoch % 2), (tokens, seq_len, block_len, epoch)


def test_blocks_hold_the_same_tokens_for_all_lengths_of_windows():
    for seq_len in (1, 2, 3, 4, 6, 12):
        ring = rings([100, 12, 59], seq_len, 12, seed=3)
        read = inputs(ring, epoch=5).reshape(-1, 12, 2)
        assert np.array_equal(read, inputs(rings([100, 12, 59], 12, 12, seed=3), epoch=5))


@pytest.mark.parametrize("tokens", [1, 7, 8, 9, 15, 16, 17, 40])
def test_windows_without_a_phase_begin_at_the_first_token(tokens):
    ring = rings([tokens], 8, 8, phase=False)
    assert ring.windows.tolist() == [(tokens - 1) // 8]
    for epoch in (0, 3):
        read = inputs(ring, epoch)[..., 1].reshape(-1)
        assert read.tolist() == list(range(8 * ((tokens - 1) // 8)))


def test_phases_equal_those_of_the_golden_file():
    golden = json.loads(GOLDEN.read_text())
    for case in golden["cases"]:
        ring = rings([2**62] * 3, 1, case["block_len"], case["seed"])
        files = np.arange(3)
        phases = ring.phases(files, np.full(3, case["epoch"] + case["pass"] * PASS))
        assert phases.tolist() == case["phases"]
    tree = golden["tree"]
    count = len(tree["corpora"])
    corpora = tuple(corpus(1, *path) for path in tree["corpora"])
    ring = Rings(np.full(count, 2**40), corpora, WindowSpec(1024, 8192, seed=tree["seed"]))
    assert ring.phases(np.arange(count), 2 + PASS * np.arange(count)).tolist() == tree["phases"]


def test_cached_phases_equal_computed_ones():
    corpora = tuple(corpus(size, name) for size, name in ((3, "a"), (1, "b"), (5, "c")))

    def ring():
        return Rings(np.full(9, 10**6), corpora, WindowSpec(8, 64, seed=5))

    cached, rng = ring(), np.random.default_rng(0)
    for _ in range(30):  # in turn each window in an epoch of its own, and each corpus in one
        files = rng.integers(0, 9, 20)
        for epoch, number in (
            rng.integers(0, 2, (2, 20)),
            rng.integers(0, 2, (2, 3))[:, cached.corpus_of[files]],
        ):
            epochs = epoch + number * PASS
            alone = [int(ring().phases(files[at : at + 1], epochs[at : at + 1])[0]) for at in range(20)]
            assert cached.phases(files, epochs).tolist() == alone
    assert cached._last_read[0][0].min() >= 0


@pytest.mark.parametrize("case", ["phases", "blocks", "no phases", "split"])
def test_documents_are_removed_with_all_their_windows_and_the_others_in_these_are_reported(tmp_path, case):
    lengths = [6, 0, 3, 0, 0, 8, 1, 1, 12, 2, 0, 7]
    write_pair(tmp_path / "corpus", map(range, lengths))
    given = {"phases": {}, "blocks": {"block_len": 8}, "no phases": {"phase": False}}.get(case)
    data = sk.TokenDataset(
        {"code": tmp_path / "corpus"}, 4, **({"split": "1,1,0", "part": "valid"} if given is None else given)
    )
    epochs = range(1 if case == "no phases" else 40)  # many enough for each phase
    spans = {(id, epoch): data.spans(id, epoch=epoch) for id in range(len(data)) for epoch in epochs}
    for removed in ([8, 9], [6, 7, 11], *([document] for document in range(12))):
        if case == "split":
            removed = [document for document in removed if document >= 6]
        ids, others = data.windows_of_documents({"code/corpus": removed})
        holding = {id for (id, _), parts in spans.items() if {span[1] for span in parts} & {*removed}}
        assert ids.tolist() == sorted(holding)
        affected = {span[1] for (id, _), parts in spans.items() if id in holding for span in parts}
        assert others["code/corpus"].tolist() == sorted(affected - {*removed})
    ids, others = data.windows_of_documents({0: [8]})
    run = sk.Ledger(sk.RandomSampler(seed=1), [sk.Edit(at=0, without=ids)]).order(data)
    kept = {one[1] for id in {*run[:].tolist()} for epoch in epochs for one in data.spans(id, epoch=epoch)}
    assert 8 not in kept
    assert others[0].tolist()
    with pytest.raises(sk.OutOfDatasetError, match=r"^document: must be in \["):
        data.windows_of_documents({0: [len(lengths)]})
    with pytest.raises(sk.OutOfDatasetError, match=r"^file: must be in \[0, 1\), got 1"):
        data.windows_of_documents({1: [0]})
    assert repr(data) == f"TokenDataset(1 files, seq_len=4{', block_len=8' if case == 'blocks' else ''})"
    for wrong in ([8], {0: 8}):
        with pytest.raises(sk.ArgumentTypeError, match="documents: must be a mapping of files to numbers"):
            data.windows_of_documents(wrong)


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


def test_documents_are_whole(documents, monkeypatch):
    monkeypatch.setattr(outputs, "_CHUNK", 4)
    assert documents.lengths.tolist() == [4, 1, 3, 6, 1]
    assert [document.tolist() for document in documents] == DOCUMENTS
    assert [each.tolist() for each in documents.__getitems__([3, 0, 3])] == [
        DOCUMENTS[at] for at in (3, 0, 3)
    ]
    assert documents[-1].dtype == np.int64
    assert documents.layout.sizes.tolist() == [5]
    assert repr(documents) == "TokenDocuments(5 documents)"


def test_a_worker_does_not_read_all_tokens_again_to_find_the_documents(documents, monkeypatch):
    assert len(documents) == 5
    sent = pickle.dumps(documents)
    monkeypatch.delattr(TokenDocuments, "_scan")
    assert [each.tolist() for each in pickle.loads(sent)] == DOCUMENTS  # noqa: S301  # our own


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
    with pytest.raises(sk.ArgumentTypeError, match="file: must be an integer"):
        data.windows_of(0, file=[0])


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
