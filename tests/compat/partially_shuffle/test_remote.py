"""The drop-in for PartiallyShuffle over remote files: fetched for the reader, or by it."""

from __future__ import annotations

import logging
import traceback

import pytest

import samplerkit as sk
from samplerkit.storage.remote.options import RemoteOptions
from tests.compat.partially_shuffle.folders import Dataset, all_ranks, items_of, make_dataset, make_sampler
from tests.storage.remote.server import served

SIZES = [20, 31, 7, 16] * 3
SECRET = "?X-Signature=5ec4e7"  # noqa: S105  # not a real one


@pytest.fixture(name="local")
def fixture_local(tmp_path):
    return make_dataset(tmp_path / "data", SIZES)


@pytest.fixture(name="remote")
def fixture_remote(tmp_path):
    return RemoteOptions(cache=tmp_path / "cache", retry_seconds=2)


def remote_dataset(local, url, query=""):
    return Dataset(f"{url}/data/{file.rsplit('/', 1)[1]}{query}" for file in local.files)


def test_urls_are_fetched_once_for_all_ranks_and_epochs(local, remote, tmp_path):
    with served(tmp_path) as web:
        dataset = remote_dataset(local, web.url, SECRET)
        for epoch in range(2):
            read = all_ranks(dataset, 2, epoch, reader="npz", remote=remote)
            assert read == all_ranks(local, 2, epoch)
        assert len(web.calls("GET")) == len(SIZES)
        with make_sampler(dataset, reader="npz", remote=remote) as sampler:
            first = next(iter(sampler))
            assert set(first[2]) <= set(dataset.files)
            assert sampler.stats.files_counted == len(SIZES)
            assert sampler.stats.downloads == 0


def test_an_error_names_the_url_without_its_query_also_if_the_reader_fetches(local, caplog):
    def reader(filename):
        raise OSError(f"no route to {filename}")

    dataset = remote_dataset(local, "http://127.0.0.1:9", SECRET)
    lengths = dict(zip(dataset.files, SIZES, strict=True))
    sampler = make_sampler(dataset, reader=reader, files_len=lengths, shuffle=False, debug=True)
    with pytest.raises(sk.DatasetError) as caught, caplog.at_level(logging.INFO, "samplerkit"):
        items_of(sampler)
    text = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert "000.npz" in caught.value.place
    assert "reading http://127.0.0.1" in caplog.text
    assert "5ec4e7" not in text
