"""How files at URLs are named: patterns, lengths and states, and nothing that is private."""

from __future__ import annotations

import traceback

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.files.dataset import FileDataset
from tests.storage.files.remote_files import NAMES, SECRET, SIZES, urls_of


def test_lengths_may_lie_beside_the_files_and_go_by_name(folder, web, remote):
    with FileDataset(str(folder / "data" / "*.npz"), "npz") as dataset:
        dataset.save_lengths(folder / "data" / "lengths.json")
        expected = dataset.layout
    try:
        told = f"{web.url}/data/lengths.json{SECRET}"
        with FileDataset(urls_of(web, SECRET), "npz", told, remote=remote) as dataset:
            assert dataset.layout == expected
    finally:
        (folder / "data" / "lengths.json").unlink()
    assert web.asked == {("HEAD", "lengths.json"): 1, ("GET", "lengths.json"): 1}
    by_url = dict(zip(urls_of(web), SIZES, strict=True))
    assert FileDataset(urls_of(web, SECRET), "npz", by_url, remote=remote).layout == expected
    with pytest.raises(sk.DatasetError, match=r"lengths: .*lengths\.json") as caught:
        FileDataset(urls_of(web), "npz", told, remote=remote)
    assert "5ec4e7" not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(sk.ArgumentValueError, match="must be local"):
        FileDataset(urls_of(web), "npz", SIZES).save_lengths(told)


def test_names_are_stable_where_queries_and_credentials_change(web, remote):
    secret = [url.replace("http://", "http://me:pass@") + SECRET for url in urls_of(web)]
    states = []
    for urls in (urls_of(web), secret):
        dataset = FileDataset(urls, "npz", SIZES, remote=remote)
        assert dataset.layout.names == tuple(NAMES)
        states.append(sk.Loader(dataset, sk.RandomSampler(seed=1), batch_size=4).state_dict(step=3))
        assert "pass" not in repr(dataset)
    assert states[0] == states[1]


@pytest.mark.parametrize(
    ("urls", "names"),
    [
        (["s3://one/a/0.npz", "s3://one/b/0.npz"], ("a/0.npz", "b/0.npz")),
        (["s3://one/0.npz", "s3://two/0.npz"], ("one/0.npz", "two/0.npz")),
        (["s3://one/0.npz", "gs://one/0.npz"], ("s3://one/0.npz", "gs://one/0.npz")),
        (["https://host/only.npz?a=1"], ("only.npz",)),
        (["memory://0.npz", "memory://a/0.npz"], ("0.npz", "a/0.npz")),
        (["https://host/0.npz", "/data/0.npz"], ("https://host/0.npz", "/data/0.npz")),
    ],
)
def test_names_begin_below_the_address_that_all_share(urls, names):
    assert FileDataset(urls, "npz", [1] * len(urls)).layout.names == names


def test_urls_that_differ_in_their_queries_only_are_refused():
    urls = [f"https://host/get?file={number}&sign=5ec4e7" for number in range(3)]
    with pytest.raises(sk.ArgumentValueError, match="not by their queries") as caught:
        FileDataset(urls, "npz", [1] * 3)
    assert "5ec4e7" not in str(caught.value)


def test_a_user_s_own_reader_may_have_the_url_itself():
    asked = []

    def reader(url):
        asked.append(url)
        if "0.npz" not in url:
            raise OSError(f"no such file: {url}")
        return {"id": np.arange(3)}

    urls = [f"hdfs://me:pass@namenode/{number}.npz{SECRET}" for number in range(2)]
    with FileDataset(urls, reader, [3, 3], remote=False, read_ahead=0) as dataset:
        assert [int(sample["id"]) for sample in dataset.__getitems__([0, 1, 2])] == [0, 1, 2]
        assert asked == [urls[0]]
        with pytest.raises(sk.DatasetError, match=r"hdfs://namenode/1\.npz: cannot be read") as caught:
            dataset[4]
        assert caught.value.__context__ is None
    with pytest.raises(sk.ArgumentValueError, match="pattern of URLs"):
        FileDataset("hdfs://namenode/*.npz", reader, [3], remote=False)
    with pytest.raises(sk.ArgumentValueError, match="remote=False"):
        FileDataset(urls, reader, "https://host/lengths.json", remote=False)


@pytest.mark.parametrize("remote", [3, "cache", True, {"cach": "/a"}, {"storage_options": "5ec4e7"}])
def test_wrong_options_are_refused_and_not_shown(remote):
    with pytest.raises(
        (sk.ArgumentTypeError, sk.ArgumentValueError), match=r"remote|storage_options"
    ) as caught:
        FileDataset(["https://host/a.npz"], "npz", [1], remote=remote)
    assert "5ec4e7" not in str(caught.value)


def test_a_pattern_over_http_has_braces_only_for_web_servers_list_nothing(web, remote):
    with pytest.raises(sk.DatasetError, match=r"/data/\*\.npz"):
        FileDataset(f"{web.url}/data/*.npz{SECRET}", "npz", remote=remote)
    with pytest.raises(sk.ArgumentValueError, match=r"files: has a brace that is not closed.*/{1\.npz'"):
        FileDataset(f"{web.url}/data/{{1.npz{SECRET}", "npz", remote=remote)
    numbered = FileDataset(f"{web.url}/data/{{000..015}}.npz{SECRET}", "npz", SIZES, remote=remote)
    assert numbered.files == tuple(urls_of(web, SECRET))
    only = FileDataset(f"{web.url}/data/000.npz?a=[1]", "npz", remote=remote)
    assert len(only.files) == 1
    assert web.asked == {}
