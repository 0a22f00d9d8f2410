"""From a store on loopback all ranks of a job together ask for each row group once, several at a time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from copy import deepcopy

import pytest

import samplerkit as sk
from samplerkit.storage.files import chunked
from tests.storage.remote.server import served

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: no Parquet here")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: no Parquet here")

FILES, GROUPS, ROWS = 4, 4, 64
IN_FILES = {"shuffle": "files"}
IN_BLOCKS = {"shuffle": "partial", "partial_size": 2 * ROWS}


def begins(path):
    """Where the row groups of a file begin."""
    data = pq.ParquetFile(path).metadata
    columns = [data.row_group(number).column(0) for number in range(GROUPS)]
    return [column.dictionary_page_offset or column.data_page_offset for column in columns]


@pytest.mark.parametrize(
    ("mode", "ranks", "threads"), [(IN_FILES, 1, 2), (IN_FILES, 4, 0), (IN_BLOCKS, 2, 0), (IN_BLOCKS, 4, 2)]
)
def test_each_row_group_is_fetched_once_a_job(tmp_path, mode, ranks, threads):
    for number in range(FILES):
        ids = range(number * GROUPS * ROWS, (number + 1) * GROUPS * ROWS)
        pq.write_table(pa.table({"id": ids}), tmp_path / f"{number}.parquet", row_group_size=ROWS)
    options = {"batch_size": 8, "collate_fn": list}
    if threads:
        options |= {"num_workers": threads, "workers": "threads"}
    seen = []
    with served(tmp_path) as server:
        urls = [f"{server.url}/{number}.parquet" for number in range(FILES)]
        for rank in range(ranks):
            dataset = sk.ParquetDataset(urls, max_chunks=8, progress=False)
            sampler = sk.DistributedSampler(seed=7, **mode)
            with dataset, sk.Loader(dataset, sampler, world=sk.World(ranks, rank), **options) as loader:
                seen += [int(sample["id"]) for batch in loader for sample in batch]
        asked = Counter((one.name, one.part[0]) for one in server.parts())
    assert sorted(seen) == list(range(FILES * GROUPS * ROWS))
    names = [f"{number}.parquet" for number in range(FILES)]
    wanted = {(name, begin) for name in names for begin in begins(tmp_path / name)}
    assert {place: asked[place] for place in wanted} == dict.fromkeys(wanted, 1)
    footers = ranks * FILES
    assert asked.total() == len(wanted) + footers


class Crowd:
    """Holds each answer back for a while; knows how many requests waited at the same time."""

    def __init__(self):
        self._lock = threading.Lock()
        self._waiting = self.most = 0

    def __call__(self, asked):
        with self._lock:
            self._waiting += 1
            self.most = max(self.most, self._waiting)
        time.sleep(0.05)
        with self._lock:
            self._waiting -= 1


@pytest.mark.parametrize(
    ("asked", "most"),
    [({"max_chunks": 8}, {4, 5}), ({"max_chunks": 2}, {2}), ({"read_ahead": 0}, {1})],
)
def test_row_groups_elsewhere_wait_beside_one_another_as_far_as_there_is_room(tmp_path, asked, most):
    path = tmp_path / "0.parquet"
    pq.write_table(pa.table({"id": range(8)}), path, row_group_size=1)
    with served(tmp_path, on_request=(crowd := Crowd())) as server:
        looked_at = sk.ParquetDataset([f"{server.url}/0.parquet"], progress=False, **asked)
        assert len(looked_at) == 8
        dataset = deepcopy(looked_at)  # as a worker has it: it reads the footer again
        options = {"batch_size": 1, "world": sk.World(1, 0), "collate_fn": list}
        with dataset, sk.Loader(dataset, sk.SequentialSampler(), **options) as loader:
            assert [int(sample["id"]) for batch in loader for sample in batch] == [*range(8)]
            assert dataset.stats.files_read == 8
            assert dataset.stats.peak_files <= asked.get("max_chunks", 4)
        assert len(server.parts()) == 8 + 2
    assert crowd.most in most


@pytest.mark.parametrize(("workers", "each"), [(1, 4), (2, 2), (3, 1), (8, 1)])
def test_the_workers_of_a_rank_share_what_it_reads_ahead(monkeypatch, workers, each):
    monkeypatch.setattr(chunked, "this_worker", lambda: (0, workers))
    limits = chunked.ChunkLimits(4, None, None, None)
    there, here = limits.cache_limits(is_remote=True), limits.cache_limits(is_remote=False)
    assert (there.read_ahead, there.threads, here.read_ahead, here.threads) == (each, each, 1, 1)
    said = chunked.ChunkLimits(4, None, 3, 2).cache_limits(is_remote=True)
    assert (said.read_ahead, said.threads, said.argument) == (3, 2, "max_chunks")
