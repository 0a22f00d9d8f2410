"""What lanes cost in open shards: the doctor says it before, and the page of shuffle modes in figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import samplerkit as sk
from samplerkit.inspect import check
from tests.storage.tar.remote_shards import as_list

PAGE = Path(__file__).parents[3] / "docs" / "shuffle-modes.md"
SHARDS, EACH = 32, 20


def written(folder, number, each):
    with sk.TarWriter(f"{folder}/%03d.tar", samples_per_shard=each) as writer:
        for sample in range(number * each):
            writer.write({"__key__": f"{sample:06}", "cls": sample})
    return f"{folder}/{{000..{number - 1:03}}}.tar"


def loader_of(dataset, each, lanes, world, batch_size=8):
    sampler = sk.RandomSampler(shuffle="partial", partial_size=4 * each, seed=7, lanes=lanes)
    return sk.Loader(dataset, sampler, batch_size=batch_size, world=world, collate_fn=as_list)


def finding_of(loader):
    return next((finding for finding in check(loader) if finding.code == "files-read-again"), None)


@pytest.mark.parametrize("lanes", [None, 6])
def test_too_few_open_shards_for_the_lanes_are_found_and_opened_again_but_not_with_the_hint(tmp_path, lanes):
    urls = written(tmp_path, SHARDS, EACH)

    def opened(max_shards):
        with sk.TarDataset(
            urls, lengths=[EACH] * SHARDS, cache=tmp_path / "cache", max_shards=max_shards
        ) as dataset:
            loader = loader_of(dataset, EACH, lanes, sk.World(2, 0))
            found = finding_of(loader)
            assert sum(1 for _ in loader) == 40
            return found, dataset.stats.files_read

    found, times = opened(8)
    if lanes is None:
        assert found is None
        assert times <= SHARDS // 2 + 1
        return
    assert "between 14 files, and max_shards=8 are held open" in found.what
    assert found.hint.endswith("or lanes=2 in place of 6")
    assert times > 2 * (SHARDS // 2 + 6)
    (room,) = re.findall(r"max_shards=(\d+)", found.hint)
    found, times = opened(int(room))
    assert found is None
    assert times <= SHARDS // 2 + 6  # a few at the borders of lanes


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
