"""What lanes cost in open shards, as the page of shuffle modes says; tests/inspect has the doctor."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import samplerkit as sk
from tests.storage.tar.remote_shards import as_list

PAGE = Path(__file__).parents[3] / "docs" / "shuffle-modes.md"


def written(folder, number, each):
    with sk.TarWriter(f"{folder}/%03d.tar", samples_per_shard=each) as writer:
        for sample in range(number * each):
            writer.write({"__key__": f"{sample:06}", "cls": sample})
    return f"{folder}/{{000..{number - 1:03}}}.tar"


def loader_of(dataset, each, lanes, world, batch_size=8):
    sampler = sk.RandomSampler(shuffle="partial", partial_size=4 * each, seed=7, lanes=lanes)
    return sk.Loader(dataset, sampler, batch_size=batch_size, world=world, collate_fn=as_list)


def table():
    """The rows of the page: lanes, ranks, open at a time, opened with 8, opened with room."""
    rows = re.findall(
        r"^\| (\d+) \| (\d+) \| (\d+) \| ([\d,]+) \| ([\d,]+) \|$", PAGE.read_text(), re.MULTILINE
    )
    return [tuple(int(cell.replace(",", "")) for cell in row) for row in rows]


@pytest.mark.campaign
def test_the_table_of_lanes_is_what_is_counted(tmp_path):
    urls = written(tmp_path, 64, 200)
    rows = table()
    assert len(rows) == 6
    for lanes, ranks, at_a_time, *told in rows:
        found = []
        for max_shards in (8, 32):
            opened = peak = 0
            for rank in range(ranks):
                with sk.TarDataset(
                    urls, lengths=[200] * 64, cache=tmp_path / "cache", max_shards=max_shards
                ) as dataset:
                    loader = loader_of(dataset, 200, lanes, sk.World(ranks, rank), batch_size=32)
                    assert sum(1 for _ in loader) == len(loader)
                    opened += dataset.stats.files_read
                    peak = max(peak, dataset.stats.peak_files)
            found.append(opened)
        print(f"lanes={lanes} ranks={ranks} at a time {peak}, opened {found}")
        assert abs(peak - at_a_time) <= 1
        for counted, said in zip(found, told, strict=True):
            assert abs(counted - said) <= 0.1 * said
