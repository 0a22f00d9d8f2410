"""What lanes cost in open shards, as the page of shuffle modes says; tests/inspect has the doctor."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import samplerkit as sk
from tests.storage.tar.remote_shards import as_list

PAGE = Path(__file__).parents[3] / "docs" / "shuffle-modes.md"


@pytest.mark.campaign
def test_the_table_of_lanes_is_what_is_counted(tmp_path):
    with sk.TarWriter(f"{tmp_path}/%03d.tar", samples_per_shard=200) as writer:
        for sample in range(64 * 200):
            writer.write({"__key__": f"{sample:06}", "cls": sample})
    rows = re.findall(r"^\|" + r" ([\d,]+) \|" * 5 + "$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == 6
    for row in rows:
        lanes, ranks, at_a_time, *told = (int(cell.replace(",", "")) for cell in row)
        sampler = sk.RandomSampler(shuffle="partial", partial_size=4 * 200, seed=7, lanes=lanes)
        found = []
        for max_shards in (8, 32):
            opened = peak = 0
            for rank in range(ranks):
                with sk.TarDataset(
                    writer.paths, lengths=[200] * 64, cache=tmp_path / "cache", max_shards=max_shards
                ) as dataset:
                    world = sk.World(ranks, rank)
                    loader = sk.Loader(dataset, sampler, batch_size=32, world=world, collate_fn=as_list)
                    assert sum(1 for _ in loader) == len(loader)
                    opened += dataset.stats.files_read
                    peak = max(peak, dataset.stats.peak_files)
            found.append(opened)
        print(f"lanes={lanes} ranks={ranks} at a time {peak}, opened {found}")
        assert abs(peak - at_a_time) <= 1
        for counted, said in zip(found, told, strict=True):
            assert abs(counted - said) <= 0.1 * said
