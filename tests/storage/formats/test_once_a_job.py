"""All ranks of a job together request each row group once from a server, several at a time."""

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


def row_group_offsets(path):
    """The offsets of the row groups of a file."""
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
    read = []
    with served(tmp_path) as server:
        urls = [f"{server.url}/{number}.parquet" for number in range(FILES)]
        for rank in range(ranks):
            dataset = sk.ParquetDataset(urls, max_chunks=8, progress=False)
            sampler = sk.DistributedSampler(seed=7, **mode)
            with dataset, sk.Loader(dataset, sampler, world=sk.World(ranks, rank), **options) as loader:
                read += [int(sample["id"]) for batch in loader for sample in batch]
        requests = Counter((one.name, one.part[0]) for one in server.parts())
    assert sorted(read) == list(range(FILES * GROUPS * ROWS))
    names = [f"{number}.parquet" for number in range(FILES)]
    expected = {(name, offset) for name in names for offset in row_group_offsets(tmp_path / name)}
    assert {place: requests[place] for place in expected} == dict.fromkeys(expected, 1)
    footers = ranks * FILES
    assert requests.total() == len(expected) + footers


class SlowAnswers:
    """Delays each answer, and counts how many requests waited at the same time."""

    def __init__(self):
        self._lock = threading.Lock()
        self._waiting = self.most = 0

    def __call__(self, request):
        with self._lock:
            self._waiting += 1
            self.most = max(self.most, self._waiting)
        time.sleep(0.05)
        with self._lock:
            self._waiting -= 1


@pytest.mark.parametrize(
    ("limits", "most"), [({"max_chunks": 8}, {4, 5}), ({"max_chunks": 2}, {2}), ({"read_ahead": 0}, {1})]
)
def test_remote_row_groups_are_requested_at_the_same_time_up_to_the_limit(tmp_path, limits, most):
    path = tmp_path / "0.parquet"
    pq.write_table(pa.table({"id": range(8)}), path, row_group_size=1)
    with served(tmp_path, on_request=(answers := SlowAnswers())) as server:
        original = sk.ParquetDataset([f"{server.url}/0.parquet"], progress=False, **limits)
        assert len(original) == 8
        dataset = deepcopy(original)  # as in a worker: it reads the footer again
        options = {"batch_size": 1, "world": sk.World(1, 0), "collate_fn": list}
        with dataset, sk.Loader(dataset, sk.SequentialSampler(), **options) as loader:
            assert [int(sample["id"]) for batch in loader for sample in batch] == [*range(8)]
            assert dataset.stats.files_read == 8
            assert dataset.stats.peak_files <= limits.get("max_chunks", 4)
        assert len(server.parts()) == 8 + 2
    assert answers.most in most


@pytest.mark.parametrize(("workers", "each"), [(1, 4), (2, 2), (3, 1), (8, 1)])
def test_the_workers_of_a_rank_share_its_prefetching(monkeypatch, workers, each):
    monkeypatch.setattr(chunked, "this_worker", lambda: (0, workers))
    limits = chunked.ChunkLimits(4, None, None, None)
    remote, local = limits.cache_limits(is_remote=True), limits.cache_limits(is_remote=False)
    assert (remote.read_ahead, remote.threads, local.read_ahead, local.threads) == (each, each, 1, 1)
    explicit = chunked.ChunkLimits(4, None, 3, 2).cache_limits(is_remote=True)
    assert (explicit.read_ahead, explicit.threads, explicit.argument) == (3, 2, "max_chunks")
