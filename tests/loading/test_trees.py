"""A tree of real files and shards under a loader: workers, resumes, what is read ahead, and its figures."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

import samplerkit as sk
from tests.loading.worker_kinds import with_workers
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


def ids_in(path):
    """A reader of files whose samples are numbers, as those of the other parts."""
    with np.load(path) as arrays:
        return arrays["id"].tolist()


@pytest.fixture(name="tree")
def fixture_tree(tmp_path):
    with sk.TarWriter(f"{tmp_path}/%02d.tar", samples_per_shard=EACH) as writer:
        for sample in range(SHARDS * EACH):
            writer.write({"__key__": f"{sample:06}", "cls": sample})
    options = {"lengths": [EACH] * SHARDS, "cache": tmp_path / "cache", "progress": False}
    shards = sk.TarDataset(f"{tmp_path}/{{00..{SHARDS - 1:02}}}.tar", **options).decode().map(number)
    files = sk.FileDataset(write_npz(tmp_path / "npz", FILES), ids_in, FILES)
    with sk.TreeDataset({"web": shards, "more": sk.TreeDataset({"books": files, "texts": Texts()})}) as tree:
        yield tree


def expected(tree, ids):
    """The samples of some ids, by where the parts begin."""
    starts = [0, SHARDS * EACH, SHARDS * EACH + sum(FILES)]
    assert len(tree) == starts[-1] + TEXTS
    return [id - max(start for start in starts if start <= id) for id in ids]


def loader_of(tree, mode, world, batch_size=7, **options):
    sampler = sk.RandomSampler(shuffle=mode, partial_size=20, seed=5)
    return sk.Loader(tree, sampler, batch_size=batch_size, world=world, collate_fn=np.array, **options)


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
        loader = loader_of(tree, mode, sk.World(ranks, rank), batch_size=5, **with_workers(workers))
        loader.load_state_dict(state)
        with loader:
            steps = [(loader.ids(step), loader.pads(step)) for step in range(loader.remaining)]
            for batch, (ids, pads) in zip(loader, steps, strict=True):
                assert batch.tolist() == expected(tree, ids.tolist())
                read.update(ids[~pads].tolist())
    assert read == Counter(range(len(tree)))


FILES_OF = {"web": 31, "code": 17, "books": 9}
CORPUS = sk.Layout.tree(
    {
        "text": sk.Layout.tree({name: sk.Layout([24] * FILES_OF[name]) for name in ("web", "books")}),
        "code": sk.Layout([24] * FILES_OF["code"]),
    }
)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_rank_reads_few_files_of_each_source(ranks):
    web, books, code = (sk.RandomSampler(shuffle="files", seed=seed) for seed in (3, 4, 6))
    text = sk.MixtureSampler({"web": web, "books": books}, seed=5)
    mixture = sk.MixtureSampler({"text": text, "code": code}, seed=7)
    first = dict(zip(["web", "books", "code"], [0, 31, 40], strict=True))
    for rank in range(ranks):
        loader = sk.Loader(CORPUS, mixture, batch_size=8, world=sk.World(ranks, rank), tail="drop")
        ids = np.concatenate([loader.ids(step) for step in range(len(loader))])
        files = np.unique(CORPUS.file_of(ids))
        for name, number in FILES_OF.items():
            files_read = ((files >= first[name]) & (files < first[name] + number)).sum()
            print(f"{ranks} ranks, rank {rank}: {files_read} files of {name}")
            assert 0 < files_read <= math.ceil(number / ranks) + 1
