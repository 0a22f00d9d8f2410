"""The drop-in for webdataset over shards on a web server."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from torch.utils.data import DataLoader

import samplerkit as sk
from samplerkit.compat.webdataset import WebDataset
from tests.compat.webdataset_shards import as_list, number_of, once_each, serving, write
from tests.waiting import wait_until


@pytest.fixture
def shards(tmp_path):
    """The URL of four shards of 40 samples, without their indexes, and what is asked of the server."""
    folder = tmp_path / "served"
    folder.mkdir()
    write(folder, 4, 40)
    for path in folder.glob("*.skidx"):
        path.unlink()
    with serving(folder) as (address, asked):
        yield f"{address}/many-{{000..003}}.tar?token=5f3a", asked


@pytest.mark.parametrize("workers", [0, 2])
def test_shards_on_a_web_server_are_fetched_once_and_read_by_all_ranks_and_workers(tmp_path, shards, workers):
    urls, asked = shards
    epochs = []
    for epoch in range(2):
        read = []
        for rank in range(2):
            dataset = WebDataset(urls, cache_dir=tmp_path / "cache", fetch="shards", world=sk.World(2, rank))
            dataset = dataset.shuffle(10).decode().map(number_of)
            dataset.set_epoch(epoch)
            batches = DataLoader(dataset, batch_size=4, num_workers=workers, collate_fn=as_list)
            read += [number for batch in batches for number in batch]
        assert Counter(read) == once_each(40)
        epochs.append(read)
    assert epochs[0] != epochs[1]
    fetched = {path: count for path, count in asked.items() if ".tar?" in path}
    assert set(fetched.values()) == {1}, "each shard was fetched once"


def test_nothing_reads_ahead_for_a_loop_that_was_left(tmp_path, shards):
    urls, _ = shards
    before = set(threading.enumerate())
    for _sample in WebDataset(urls, cache_dir=tmp_path / "cache", fetch="shards"):
        assert any("samplerkit" in thread.name for thread in set(threading.enumerate()) - before)
        break
    # The server has threads of its own.
    wait_until(lambda: all("samplerkit" not in thread.name for thread in set(threading.enumerate()) - before))


@pytest.mark.parametrize("remote", [{"cache": "/scratch"}, sk.RemoteOptions(max_cache_bytes=10**9)])
def test_the_cache_for_remote_shards_is_said_once(tmp_path, remote):
    with pytest.raises(
        sk.ArgumentTypeError, match=r"cache_(dir|size): is said twice.*; say it in one of them"
    ):
        WebDataset("https://host/a.tar", cache_dir=tmp_path, cache_size=10**9, remote=remote)


def test_a_cache_folder_goes_with_options_of_remote_that_name_none(tmp_path, shards):
    urls, asked = shards
    dataset = WebDataset(urls, cache_dir=tmp_path / "cache", remote={"attempts": 2}, fetch="shards")
    assert len(list(dataset)) == 40
    assert len(list((tmp_path / "cache").glob("*.file"))) == len([path for path in asked if ".tar?" in path])


def test_a_shard_that_is_not_there_is_an_error_without_its_query(tmp_path, shards):
    urls, _ = shards
    with pytest.raises(sk.DatasetError, match=r"many-004\.tar") as caught:
        list(WebDataset(urls.replace("003", "004"), cache_dir=tmp_path / "cache", fetch="shards"))
    assert "5f3a" not in str(caught.value)
