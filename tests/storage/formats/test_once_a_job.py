"""From a store on loopback all ranks of a job together ask for each row group once."""

from __future__ import annotations

from collections import Counter

import pytest

import samplerkit as sk
from tests.storage.tar.server import Server

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: no Parquet here")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: no Parquet here")

FILES, GROUPS, ROWS = 4, 4, 64


def begins(path):
    """Where the row groups of a file begin."""
    data = pq.ParquetFile(path).metadata
    columns = [data.row_group(number).column(0) for number in range(GROUPS)]
    return [column.dictionary_page_offset or column.data_page_offset for column in columns]


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("mode", [{"shuffle": "files"}, {"shuffle": "partial", "partial_size": 2 * ROWS}])
def test_each_row_group_is_fetched_once_a_job(tmp_path, mode, ranks, threads):
    for number in range(FILES):
        ids = range(number * GROUPS * ROWS, (number + 1) * GROUPS * ROWS)
        pq.write_table(pa.table({"id": ids}), tmp_path / f"{number}.parquet", row_group_size=ROWS)
    options = {"batch_size": 8, "collate_fn": list}
    if threads:
        options |= {"num_workers": threads, "workers": "threads"}
    seen = []
    with Server(tmp_path) as server:
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
