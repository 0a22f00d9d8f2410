"""What a dataset of tokens reads, local or remote: rows of all formats and types, documents, outputs."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import samplerkit as sk
from samplerkit.errors import DatasetError
from samplerkit.order.deal import World
from samplerkit.storage.tokens.arguments import KINDS
from tests.storage.remote.server import served
from tests.waiting import wait_until

ALL = ("tokens", "labels", "loss_mask", "position_ids", "cu_seqlens", "documents")


def write_pair(prefix, documents, dtype="uint16"):
    """Writes documents as Megatron reads them, and returns the prefix."""
    with sk.TokenWriter(prefix, dtype, overwrite=True) as writer:
        for document in documents:
            writer.write(document)
    return prefix


def expected_rows(tokens, data, epoch):
    """The rows of one file, by rolling its tokens."""
    rings = data._source.rings
    phase = int(rings.phases(np.array([0]), np.array([epoch]))[0])
    ring = np.roll(tokens, -phase)
    ring = np.append(ring, ring[:1])
    return np.stack(
        [ring[start : start + data.seq_len + 1] for start in range(0, len(data) * data.seq_len, data.seq_len)]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_and_format_gives_the_same_rows(tmp_path, kind):
    tokens = (np.arange(101) % 100).astype(f"<{kind}")
    np.save(tmp_path / "a.npy", tokens)
    tokens.tofile(tmp_path / "a.bin")
    places = [(tmp_path / "a.npy", None), (tmp_path / "a.bin", kind), ([str(tmp_path / "a.npy")], kind)]
    if kind != "u4":
        places.append((write_pair(tmp_path / "pair", np.split(tokens, [7, 7, 60]), kind), None))
    for files, dtype in places:
        data = sk.TokenDataset(files, 8, block_len=24, dtype=dtype, seed=3)
        assert data.layout.sizes.tolist() == [12]
        assert data.block_layout.sizes.tolist() == [4]
        for epoch in range(3):
            data.set_epoch(epoch)
            batch = data.__getitems__(np.arange(len(data)))
            assert batch.dtype == np.int64
            assert np.array_equal(batch, expected_rows(tokens, data, epoch))
            assert np.array_equal(data.__getitems__([5, 0, 5]), batch[[5, 0, 5]])
            assert np.array_equal(data[-1], batch[-1])


def test_a_prefix_that_looks_like_a_pattern_is_that_of_its_files(tmp_path):
    write_pair(tmp_path / "b", [range(9)])
    write_pair(tmp_path / "[ab]", [range(90, 99)])
    for files in (tmp_path / "[ab]", [str(tmp_path / "[ab]")]):
        assert sk.TokenDataset(files, 8, phase=False)[0].tolist() == [*range(90, 99)]
    (tmp_path / "a.idx#1").mkdir()
    write_pair(tmp_path / "a.idx#1" / "c?", [range(9)])
    assert len(sk.TokenDataset(tmp_path / "a.idx#1" / "c?.idx", 8, phase=False)) == 1
    (tmp_path / "[ab].idx").unlink()
    assert sk.TokenDataset(f"{tmp_path}/[ab].idx", 8, phase=False)[0].tolist() == [*range(9)]


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=40),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(0, 50),
    st.booleans(),
)
@example([3, 3, 3, 3], 5, 1, 1, True)  # a document begins just after the end of a window
@example([3, 3, 3, 3], 5, 2, 2, True)
@settings(deadline=None, max_examples=30)
def test_documents_of_windows_are_those_of_the_index(tmp_path_factory, lengths, seq_len, factor, seed, phase):
    total, block_len = sum(lengths), seq_len * factor if phase else seq_len
    if total < block_len + (not phase):
        return
    prefix = tmp_path_factory.mktemp("documents") / "a"
    document_of = np.repeat(np.arange(len(lengths)), lengths)
    offset_of = np.concatenate([np.arange(length) for length in lengths])
    tokens = document_of * 10 + offset_of
    write_pair(prefix, np.split(tokens, np.cumsum(lengths)[:-1]), "int32")
    data = sk.TokenDataset(
        prefix, seq_len, block_len=block_len, seed=seed, phase=phase, documents="idx", outputs=ALL
    )
    data.set_epoch(seed)
    batch = data.__getitems__(range(len(data)))
    rows = np.concatenate([batch["tokens"], batch["labels"][:, -1:]], axis=1)
    begins = offset_of[np.searchsorted(tokens, rows)] == 0
    begins[:, 0] = True
    begins[:, 1:] |= rows[:, 1:] == tokens[0]
    assert np.array_equal(batch["loss_mask"], (~begins[:, 1:]).astype(np.float32))
    inputs = begins[:, :-1]
    assert batch["cu_seqlens"].tolist() == [*np.flatnonzero(inputs), inputs.size]
    assert np.array_equal(batch["documents"], np.cumsum(inputs, axis=1) - 1)
    positions = np.concatenate([np.arange(size) for size in np.diff(batch["cu_seqlens"])])
    assert np.array_equal(batch["position_ids"].reshape(-1), positions)
    for id in range(len(data)):
        spans = data.spans(id)
        assert [
            10 * document + place for _, document, at, count in spans for place in range(at, at + count)
        ] == rows[id].tolist()
        assert all(count > 0 for *_, count in spans)


@pytest.mark.parametrize("dtype", ["uint16", "int64"])
def test_documents_end_with_a_token(tmp_path, dtype):
    np.save(tmp_path / "a.npy", np.array([1, 2, 0, 3, 0, 0, 4, 5, 6], dtype=dtype))
    data = sk.TokenDataset(tmp_path / "a.npy", 8, phase=False, documents=0, outputs=ALL)
    sample = data[0]
    assert sample["tokens"].tolist() == [1, 2, 0, 3, 0, 0, 4, 5]
    assert sample["labels"].tolist() == [2, 0, 3, 0, 0, 4, 5, 6]
    assert sample["documents"].tolist() == [0, 0, 0, 1, 1, 2, 3, 3]
    assert sample["position_ids"].tolist() == [0, 1, 2, 0, 1, 0, 0, 1]
    assert sample["cu_seqlens"].tolist() == [0, 3, 5, 6, 8]
    assert sample["loss_mask"].tolist() == [1, 1, 0, 1, 0, 0, 1, 1]
    assert sample["documents"].base.nbytes <= 5 * 64  # the block that all share: nine int64 are the longest
    empty = data.__getitems__([])
    assert empty["cu_seqlens"].tolist() == [0]
    assert empty["position_ids"].shape == (0, 8)


def test_each_part_of_a_split_is_a_ring_of_its_own(tmp_path):
    documents = [np.full(length, number) for number, length in enumerate([10, 0, 30, 5, 15, 20, 12, 8])]
    write_pair(tmp_path / "a", documents, "int32")
    tokens = np.concatenate(documents)
    np.save(tmp_path / "a.npy", np.arange(100, dtype=np.uint8))
    begin = 0
    for part, end in (("train", 60), ("valid", 92), ("test", 100)):
        data = sk.TokenDataset(tmp_path / "a", 4, split="5,2,1", part=part, seed=1)
        assert data._source.rings.tokens.tolist() == [end - begin]
        assert np.array_equal(data.__getitems__(range(len(data))), expected_rows(tokens[begin:end], data, 0))
        assert {span[1] for id in range(len(data)) for span in data.spans(id)} <= set(tokens[begin:end])
        begin = end
    data = sk.TokenDataset(tmp_path / "a.npy", 4, split="3,1", part="valid", phase=False)
    assert data[0].tolist() == [75, 76, 77, 78, 79]
    with pytest.raises(DatasetError, match="has no tokens for split='3,1', part='test'"):
        len(sk.TokenDataset(tmp_path / "a.npy", 4, split="3,1", part="test"))


def test_a_tree_of_corpora_has_a_layout_of_its_names(tmp_path):
    for name, tokens in (("web", 100), ("python", 50), ("c", 30)):
        np.save(tmp_path / f"{name}.npy", np.full(tokens, tokens, dtype=np.uint16))
    code = {name: tmp_path / f"{name}.npy" for name in ("python", "c")}
    data = sk.TokenDataset({"web": [tmp_path / "web.npy"], "code": code}, 10, block_len=20)
    assert [(path, leaf.sizes.tolist()) for path, leaf in data.layout.leaves] == [
        (("web",), [10]),
        (("code", "python"), [4]),
        (("code", "c"), [2]),
    ]
    assert [len(leaf) for _, leaf in data.block_layout.leaves] == [5, 2, 1]
    assert data.__getitems__([0, 9, 10, 13, 14, 15])[:, 3].tolist() == [100, 100, 50, 50, 30, 30]


def test_the_fingerprint_depends_on_all_but_the_length_of_windows(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(100, dtype=np.uint16))
    np.save(tmp_path / "b.npy", np.zeros(101, dtype=np.uint16))
    np.save(tmp_path / "c.npy", np.zeros(100, dtype=np.int32))

    def digest(file="a", seq_len=4, **arguments):
        return sk.TokenDataset(tmp_path / f"{file}.npy", seq_len, **{"block_len": 8, **arguments}).fingerprint

    assert digest() == digest(seq_len=2) == digest(seq_len=8) == digest(outputs=("labels",))
    others = [
        digest(seed=1),
        digest(block_len=16),
        digest(phase=False, block_len=None),
        digest("b"),
        digest("c"),
        digest(split="1,1"),
        digest(split="1,1", part="valid"),
        sk.TokenDataset({"a": tmp_path / "a.npy"}, 4, block_len=8).fingerprint,
    ]
    assert len({digest(), *others}) == 9


NAMES = ("a", "b")


@pytest.fixture(name="web")
def fixture_web(tmp_path):
    folder = tmp_path / "data"
    rng = np.random.default_rng(0)
    for name in NAMES:
        write_pair(folder / name, (rng.integers(0, 9000, length) for length in rng.integers(0, 400, 100)))
        write_pair(folder / "far" / name, [rng.integers(0, 9000, 500_000)])
    np.save(folder / "c.npy", rng.integers(0, 250, 5000).astype(np.uint8))
    with served(folder) as web:
        web.folder = folder
        yield web


def open_tokens(place, remote=None, **arguments):
    options = {"documents": "idx", "outputs": ("tokens", "cu_seqlens"), "block_len": 128, **arguments}
    return sk.TokenDataset([f"{place}/{name}" for name in NAMES], 64, seed=3, remote=remote, **options)


@pytest.mark.parametrize(("fetch", "workers"), [("ranges", 0), ("shards", 2)])
def test_urls_give_the_batches_of_local_files(web, tmp_path, fetch, workers):
    remote = {"cache": tmp_path / "cache"}
    read, stats = {}, None
    for place in (web.folder, web.url):
        with open_tokens(place, remote=remote, fetch=fetch) as data:
            loader = sk.Loader(
                data, sk.RandomSampler(seed=5), batch_size=16, num_workers=workers, world=World(1, 0)
            )
            with loader:
                read[place] = [
                    {name: value.tolist() for name, value in batch.items()}
                    for _ in range(2)
                    for batch in loader
                ]
            stats = data.stats
            assert data.is_remote == (place == web.url)
    assert read[web.folder] == read[web.url]
    assert stats.requests >= len(web.calls("GET")) > 0
    if fetch == "shards":
        counts = {name: count for (method, name), count in web.counts.items() if name.endswith(".bin")}
        assert set(counts) == {"a.bin", "b.bin"}
        assert {web.counts["GET", f"{name}.bin"] for name in NAMES} == {1}


def test_adjacent_windows_are_one_request(web):
    data = sk.TokenDataset([f"{web.url}/far/{name}" for name in NAMES], 100, phase=False)
    assert len(data) == 2 * 4999
    before = web.counts["GET", "a.bin"]
    ids = np.arange(300)
    rows = data.__getitems__(ids[::-1])
    assert web.counts["GET", "a.bin"] - before == 1
    assert np.array_equal(
        rows, sk.TokenDataset(web.folder / "far" / "a", 100, phase=False).__getitems__(ids[::-1])
    )
    before = web.counts["GET", "a.bin"]
    data.__getitems__([0, 1200, 2400, 3600])
    assert web.counts["GET", "a.bin"] - before == 4


def test_nothing_of_a_file_is_read_before_a_window_of_it_is_requested(web):
    data = sk.TokenDataset([f"{web.url}/far/{name}" for name in NAMES], 100)
    assert len(data) == 10_000
    assert web.counts["GET", "a.bin"] == 0
    # The header; then the last length with the last pointer.
    assert web.counts["GET", "a.idx"] == 2
    data.__getitems__([0])
    assert web.counts["GET", "b.bin"] == 0


def test_arrays_at_urls_are_read(web):
    near, far = (sk.TokenDataset(f"{place}/c.npy", 100, seed=1) for place in (web.folder, web.url))
    assert far.fingerprint == near.fingerprint
    assert np.array_equal(far.__getitems__(range(50)), near.__getitems__(range(50)))


def test_an_evicted_copy_frees_its_space_when_another_one_is_opened(web, tmp_path):
    for number in range(4):
        np.save(web.folder / f"{number}.npy", np.full(1000, number, np.uint16))
    remote = {"cache": tmp_path / "cache", "max_cache_bytes": (web.folder / "0.npy").stat().st_size}
    urls = [f"{web.url}/{number}.npy" for number in range(4)]
    with sk.TokenDataset(urls, 100, phase=False, remote=remote, fetch="shards") as data:
        for number, first in enumerate(np.cumsum([0, *data.layout.sizes[:-1]])):
            assert (data[int(first)] == number).all()
        held = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    assert sum(str(path).startswith(str(tmp_path)) and "(deleted)" in str(path) for path in held) == 1


@pytest.mark.parametrize("fetch", ["ranges", "shards"])
def test_a_file_that_changes_on_the_server_is_an_error(web, tmp_path, fetch):
    data = open_tokens(web.url, remote={"cache": tmp_path / "cache", "retry_seconds": 0.1}, fetch=fetch)
    assert len(data)
    path = web.folder / "a.bin"
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(DatasetError, match=r"a\.bin: was changed while it was in use"):
        data.__getitems__([0])


def test_the_next_batch_is_requested_once_while_the_current_one_is_used(web):
    data, near = (
        sk.TokenDataset([f"{place}/far/{name}" for name in NAMES], 100, seed=4)
        for place in (web.url, web.folder)
    )
    batches = np.random.default_rng(1).permutation(len(near))[:80].reshape(5, 16)
    for dataset in (data, near):
        dataset.set_epoch(3)
    assert near.expect is None

    def count_requests():
        return web.counts["GET", "a.bin"] + web.counts["GET", "b.bin"]

    assert len(data)
    counts = []
    for ids in batches:
        before = count_requests()
        data.__getitems__(ids)
        counts.append(count_requests() - before)
    assert sum(counts) > 5
    before = count_requests()
    with data:
        data.expect(iter(batches))
        for number, ids in enumerate(batches):
            assert np.array_equal(data.__getitems__(ids), near.__getitems__(ids))
            # The next batch is requested completely, before it is read.
            wait_until(lambda number=number: count_requests() - before == sum(counts[: number + 2]))
        assert count_requests() - before == sum(counts)


def test_unexpected_batches_and_those_of_another_epoch_are_read_correctly(web):
    files = [f"far/{name}" for name in NAMES]
    far, near = (
        sk.TokenDataset([f"{place}/{name}" for name in files], 100) for place in (web.url, web.folder)
    )
    rng = np.random.default_rng(2)
    with far:
        far.expect(np.arange(at, at + 8) for at in range(0, 400, 8))
        for at in range(0, 400, 8):
            ids = np.arange(at, at + 8) if at % 48 else rng.integers(0, len(near), 8)
            epochs = np.where(rng.integers(0, 2, 8) == 1, at // 100, 2)
            assert np.array_equal(far.__getitems__(ids, epochs), near.__getitems__(ids, epochs))
