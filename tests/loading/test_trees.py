"""A tree of real files and shards under a loader: workers, resumes, what is read ahead, and its figures."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

import samplerkit as sk
from tests.loading.worker_kinds import beside
from tests.storage.files.folders import write_npz

FILES = [10, 14, 9, 12, 11, 8]
SHARDS, EACH = 6, 12
TEXTS = 21


class Texts:
    """A dataset of ours: batches, passes, and no files."""

    wants_passes = True

    def __len__(self):
        return TEXTS

    def __getitem__(self, index):
        raise AssertionError("batches are read as such")

    def __getitems__(self, ids, passes):
        return [int(id) for id in ids]


def number(sample):
    return sample["cls"]


def row(sample):
    return int(sample["id"])


class Rows:
    """A FileDataset whose samples are numbers, as those of other parts; what it is told goes through."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __getattr__(self, name):
        if name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        return row(self.dataset[index])

    def __getitems__(self, ids):
        return [row(sample) for sample in self.dataset.__getitems__(ids)]


def as_array(samples):
    return np.array(samples)


@pytest.fixture(name="tree")
def fixture_tree(tmp_path):
    with sk.TarWriter(f"{tmp_path}/%02d.tar", samples_per_shard=EACH) as writer:
        for sample in range(SHARDS * EACH):
            writer.write({"__key__": f"{sample:06}", "cls": sample})
    told = {"lengths": [EACH] * SHARDS, "cache": tmp_path / "cache", "progress": False}  # opened one by one
    shards = sk.TarDataset(f"{tmp_path}/{{00..{SHARDS - 1:02}}}.tar", **told).decode().map(number)
    files = Rows(sk.FileDataset(write_npz(tmp_path / "npz", FILES), "npz", FILES))
    with sk.TreeDataset({"web": shards, "more": sk.TreeDataset({"books": files, "texts": Texts()})}) as tree:
        yield tree


def expected(tree, ids):
    """The samples of some ids, by where the parts begin."""
    starts = [0, SHARDS * EACH, SHARDS * EACH + sum(FILES)]
    assert len(tree) == starts[-1] + TEXTS
    return [id - max(start for start in starts if start <= id) for id in ids]


def loader_of(tree, mode, world, batch_size=7, **options):
    sampler = sk.RandomSampler(shuffle=mode, partial_size=20, seed=5)
    return sk.Loader(tree, sampler, batch_size=batch_size, world=world, collate_fn=as_array, **options)


@pytest.mark.parametrize(
    ("ranks", "workers", "mode"),
    [(1, 2, "files"), (3, 0, "partial"), (2, "2 threads", "global")],
)
def test_a_tree_is_resumed_at_other_ranks_and_workers(tree, ranks, workers, mode):
    first = [loader_of(tree, mode, sk.World(2, rank)) for rank in range(2)]
    read: Counter[int] = Counter()
    for loader in first:
        for step, batch in zip(range(4), loader, strict=False):
            assert batch.tolist() == expected(tree, loader.ids(step).tolist())
            read.update(loader.ids(step).tolist())
    state = first[0].state_dict()
    assert state == first[1].state_dict()
    for loader in first:
        loader.close()
    for rank in range(ranks):
        loader = loader_of(tree, mode, sk.World(ranks, rank), batch_size=5, **beside(workers))
        loader.load_state_dict(state)
        with loader:
            steps = [(loader.ids(step), loader.pads(step)) for step in range(loader.remaining)]
            for batch, (ids, pads) in zip(loader, steps, strict=True):
                assert batch.tolist() == expected(tree, ids.tolist())
                read.update(ids[~pads].tolist())
    assert read == Counter(range(len(tree)))


BIG = {"web": 31, "code": 17, "books": 9}
"""Files of the parts of a mixture, of 24 samples each."""


@pytest.fixture(name="corpus", scope="module")
def fixture_corpus(tmp_path_factory):
    folder, parts = tmp_path_factory.mktemp("corpus"), {}
    for name in ("web", "code"):
        with sk.TarWriter(f"{folder}/{name}-%02d.tar", samples_per_shard=24) as writer:
            for sample in range(24 * BIG[name]):
                writer.write({"__key__": f"{sample:06}", "cls": sample})
        urls, lengths = f"{folder}/{name}-{{00..{BIG[name] - 1:02}}}.tar", [24] * BIG[name]
        parts[name] = sk.TarDataset(urls, lengths=lengths, cache=folder, progress=False).decode().map(number)
    files = write_npz(folder / "books", [24] * BIG["books"])
    parts["books"] = Rows(sk.FileDataset(files, "npz", [24] * BIG["books"]))
    text = sk.TreeDataset({name: parts[name] for name in BIG if name != "code"})
    with sk.TreeDataset({"text": text, "code": parts["code"]}) as corpus:
        yield corpus


def mixture(**options):
    files = sk.RandomSampler(shuffle="files", seed=3)
    text = sk.MixtureSampler({"web": files, "books": sk.RandomSampler(shuffle="files", seed=4)}, seed=5)
    return sk.MixtureSampler(
        {"text": text, "code": sk.RandomSampler(shuffle="files", seed=6)}, seed=7, **options
    )


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_rank_meets_few_files_of_each_source_by_their_own_counters(corpus, ranks):
    datasets = {**corpus.parts["text"].parts, "code": corpus.parts["code"]}
    bound = {name: math.ceil(BIG[name] / ranks) + 1 for name in BIG}
    for rank in range(ranks):
        before = {name: part.stats.files_read for name, part in datasets.items()}
        loader = sk.Loader(
            corpus, mixture(), batch_size=8, world=sk.World(ranks, rank), tail="drop", collate_fn=as_array
        )
        with corpus, loader:
            expected_files = [corpus.layout.file_of(loader.ids(step)) for step in range(len(loader))]
            for _ in loader:
                pass
        met = {name: part.stats.files_read - before[name] for name, part in datasets.items()}
        print(f"{ranks} ranks, rank {rank}: {met}, at most {bound}")
        # None is opened twice, and no other than those of the order.
        assert sum(met.values()) == np.unique(np.concatenate(expected_files)).size
        assert all(met[name] <= bound[name] for name in BIG)


def test_a_state_of_another_tree_is_refused(tree):
    with loader_of(tree, "files", sk.World(1, 0)) as loader:
        state = loader.state_dict()
    parts = tree.parts
    renamed = sk.TreeDataset({"web": parts["web"], "less": parts["more"]})
    flat = sk.TreeDataset({"web": parts["web"], **parts["more"].parts})
    for other in (renamed, flat):
        assert len(other) == len(tree)
        with (
            loader_of(other, "files", sk.World(1, 0)) as loader,
            pytest.raises(sk.StateError, match="dataset"),
        ):
            loader.load_state_dict(state)
