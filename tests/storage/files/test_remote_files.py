"""Files at URLs: fetched once a machine, read like local ones, in the same order; and how they are named."""

import shutil
import traceback
import zipfile
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.files.dataset import FileDataset
from samplerkit.storage.files.stored import Stored
from samplerkit.storage.remote.options import RemoteOptions
from tests.storage.files.folders import plain, received, samples_of, write_npz
from tests.storage.remote import faults
from tests.storage.remote.server import served
from tests.waiting import within

SIZES = [6] * 16
NAMES = [f"{number:03}.npz" for number in range(16)]
SECRET = "?X-Signature=5ec4e7"  # noqa: S105  # no secret of anyone's


def test_a_local_file_is_not_cached_and_a_remote_file_has_a_size():
    assert FileDataset("a.npz", "npz", remote={"max_cache_bytes": 5}).max_cache_bytes is None
    assert FileDataset("http://host/a.npz", "npz", remote={"max_cache_bytes": 5}).max_cache_bytes == 5
    with pytest.raises(sk.DatasetError, match=r"http://host/a\.npz: has no known size"):
        Stored.of("http://host/a.npz")


def urls_of(web, query=""):
    """The addresses of the files."""
    return [f"{web.url}/data/{name}{query}" for name in NAMES]


@pytest.fixture(name="folder", scope="module")
def fixture_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("web")
    write_npz(folder / "data", SIZES)
    return folder


@pytest.fixture(name="web")
def fixture_web(folder):
    with served(folder) as web:
        yield web


@pytest.fixture(name="remote")
def fixture_remote(tmp_path):
    return RemoteOptions(cache=tmp_path / "cache", retry_seconds=2)


MODES = {"global": {}, "partial": {"partial_size": 9}}


@pytest.mark.parametrize(("mode", "workers"), [("global", 2), ("partial", 0)])
def test_urls_give_the_batches_of_local_files_and_each_is_fetched_once(folder, web, remote, mode, workers):
    sampler = sk.RandomSampler(shuffle=mode, seed=5, **MODES[mode])
    epochs = {}
    for place, files in (("here", sorted((folder / "data").glob("*.npz"))), ("there", urls_of(web))):
        with FileDataset(files, "npz", SIZES, remote=remote, threads=2, read_ahead=2) as dataset:
            loader = sk.Loader(dataset, sampler, batch_size=4, num_workers=workers)
            epochs[place] = [received(loader) for _ in range(2)]
            loader.close()
    assert epochs["here"] == epochs["there"]
    assert epochs["here"][0] != epochs["here"][1]
    assert sorted(sample for batch in epochs["there"][0] for sample in batch) == samples_of(SIZES)
    assert {name: count for (method, name), count in web.counts.items() if method == "GET"} == dict.fromkeys(
        NAMES, 1
    )


def test_given_lengths_send_no_request_at_the_start(remote):
    """Nobody listens at this address."""
    urls = [f"http://127.0.0.1:9/data/{name}" for name in NAMES]
    dataset = FileDataset(urls, "npz", SIZES, remote=remote)
    assert (len(dataset), dataset.layout.names) == (96, tuple(NAMES))
    assert len(list(sk.RandomSampler(shuffle="files").order(dataset))) == 96
    assert sk.Loader(dataset, sk.RandomSampler(), batch_size=4).state_dict()["position"] == 0
    assert dataset.is_layout_known
    assert dataset.stats.requests == 0
    assert not Path(remote.cache).exists()


def test_a_file_fetched_for_counting_is_not_fetched_again(web, remote):
    with FileDataset(urls_of(web)[:2], "npz", remote=remote) as dataset:
        assert not dataset.is_layout_known
        assert len(dataset) == 12
        assert [plain(sample) for sample in dataset] == samples_of([6, 6])
        assert len(web.calls("GET")) == 2


SPOILS = {
    "missing": lambda path: path.unlink(),
    "no npz": lambda path: path.write_bytes(b"PK\x03\x04 and nothing else"),
    "longer": lambda path: np.savez(path, id=np.arange(9)),
    "uneven": lambda path: np.savez(path, id=np.arange(6), x=np.arange(7)),
}


@pytest.mark.parametrize(("kind", "workers"), [("missing", 1), ("no npz", 0), ("longer", 0), ("uneven", 0)])
def test_an_error_names_the_url_and_neither_its_query_nor_the_copy(folder, tmp_path, remote, kind, workers):
    shutil.copytree(folder / "data", tmp_path / "data")
    SPOILS[kind](tmp_path / "data" / NAMES[3])
    with (
        served(tmp_path) as web,
        FileDataset(urls_of(web, SECRET), "npz", SIZES, remote=remote) as dataset,
        sk.Loader(dataset, sk.SequentialSampler(), batch_size=6, num_workers=workers) as loader,
    ):
        with pytest.raises(sk.DatasetError, match=NAMES[3]) as caught:
            received(loader)
        assert f"{web.url}/data/{NAMES[3]}" in str(caught.value)
        assert str(remote.cache) not in str(caught.value)
        if kind == "no npz" and not workers:  # an error travels from a worker as a text
            assert isinstance(caught.value.__cause__, zipfile.BadZipFile)
        assert "5ec4e7" not in "".join(traceback.format_exception(caught.value))
        assert {each.query for each in web.requests} == {SECRET[1:]}


def test_the_bytes_of_each_file_are_reported_at_its_position(remote, tmp_path):
    sizes = [5000, 0, 70, 3]
    local = tmp_path / "local.npz"
    local.write_bytes(bytes(123))
    with served() as server:
        urls = [server.put(f"/{name}", bytes(size)) for name, size in zip(NAMES, sizes, strict=False)]
        with FileDataset([*urls, local], "npz", [1] * 5, remote=remote) as dataset:
            by_path = dict(zip(dataset.files, dataset.shard_bytes().tolist(), strict=True))
            local.unlink()
            with pytest.raises(sk.DatasetError, match=r"local\.npz: cannot be read \(No such file"):
                dataset.shard_bytes()
    assert by_path == dict(zip([*urls, str(local)], [*sizes, 123], strict=True))


def test_an_unavailable_size_is_an_error_at_once_while_other_responses_stall(remote):
    with served() as server:
        urls = [server.put(f"/{name}", b"") for name in NAMES]
        for name in NAMES[1:]:
            server.always["VERSION", f"/{name}"] = faults.stall_before_headers
        del server.resources[f"/{NAMES[0]}"]
        with (
            within(20),
            FileDataset(urls, "npz", SIZES, remote=remote) as dataset,
            pytest.raises(sk.DatasetError, match=r"000\.npz: does not exist"),
        ):
            dataset.shard_bytes()


# How they are named: patterns, lengths and states, and nothing that is private.


def test_lengths_may_be_stored_next_to_the_files_and_are_matched_by_name(folder, web, remote):
    with FileDataset(str(folder / "data" / "*.npz"), "npz") as dataset:
        dataset.save_lengths(folder / "data" / "lengths.json")
        expected = dataset.layout
    try:
        lengths = f"{web.url}/data/lengths.json{SECRET}"
        with FileDataset(urls_of(web, SECRET), "npz", lengths, remote=remote) as dataset:
            assert dataset.layout == expected
    finally:
        (folder / "data" / "lengths.json").unlink()
    assert web.counts == {("VERSION", "lengths.json"): 1, ("GET", "lengths.json"): 1}
    by_url = dict(zip(urls_of(web), SIZES, strict=True))
    assert FileDataset(urls_of(web), "npz", by_url, remote=remote).layout == expected
    with pytest.raises(sk.DatasetError, match=r"lengths: .*lengths\.json") as caught:
        FileDataset(urls_of(web), "npz", lengths, remote=remote)
    assert "5ec4e7" not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(sk.ArgumentValueError, match="must be local"):
        FileDataset(urls_of(web), "npz", SIZES).save_lengths(lengths)


def test_names_do_not_depend_on_queries_and_credentials(web, remote):
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
        (["/data/a/x/0.npz", "/data/a/y/0.npz", "/data/b/0.npz"], ("a/x/0.npz", "a/y/0.npz", "b/0.npz")),
        (["https://host/0.npz", "/data/0.npz"], ("https://host/0.npz", "/data/0.npz")),
    ],
)
def test_names_begin_below_the_common_address(urls, names):
    assert FileDataset(urls, "npz", [1] * len(urls)).layout.names == names


def test_a_reader_of_the_user_may_receive_the_url_itself():
    calls = []

    def reader(url):
        calls.append(url)
        if "0.npz" not in url:
            raise OSError(f"no such file: {url}")
        return {"id": np.arange(3)}

    urls = [f"hdfs://me:pass@namenode/{number}.npz{SECRET}" for number in range(2)]
    with FileDataset(urls, reader, [3, 3], remote=False, read_ahead=0) as dataset:
        assert [int(sample["id"]) for sample in dataset.__getitems__([0, 1, 2])] == [0, 1, 2]
        assert calls == [urls[0]]
        with pytest.raises(sk.DatasetError, match=r"hdfs://namenode/1\.npz: cannot be read") as caught:
            dataset[4]
        assert caught.value.__context__ is None


def test_a_pattern_over_http_may_have_braces_only(web, remote):
    with pytest.raises(sk.DatasetError, match=r"/data/\*\.npz"):
        FileDataset(f"{web.url}/data/*.npz{SECRET}", "npz", remote=remote)
    with pytest.raises(sk.ArgumentValueError, match=r"files: has a brace that is not closed.*/{1\.npz'"):
        FileDataset(f"{web.url}/data/{{1.npz{SECRET}", "npz", remote=remote)
    numbered = FileDataset(f"{web.url}/data/{{000..015}}.npz{SECRET}", "npz", SIZES, remote=remote)
    assert numbered.files == tuple(urls_of(web, SECRET))
    only = FileDataset(f"{web.url}/data/000.npz?a=[1]", "npz", remote=remote)
    assert len(only.files) == 1
    assert web.counts == {}
