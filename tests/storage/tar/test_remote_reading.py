"""Remote shards are read as local ones are, in all orders and processes, with few requests."""

import pickle
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.tar.read.shards import Shards
from tests.storage.checks import assert_refused
from tests.storage.forging import forge
from tests.storage.remote.server import private, served
from tests.storage.remote.test_faulty_servers import leaks, texts
from tests.storage.tar.remote_shards import (
    EACH,
    LENGTHS,
    NAMES,
    NUMBERS,
    PATTERN,
    SHARDS,
    keys_of,
    remote,
    sample_of,
    without_url,
    write_shards,
    write_tiles,
)
from tests.storage.tar.shards import long_names, write, write_tar


@pytest.fixture(name="local")
def fixture_local(server, tmp_path):
    return sk.TarDataset(f"{server.folder}/{PATTERN}", cache=tmp_path / "here", progress=False)


@pytest.mark.parametrize(
    ("suffix", "fetch", "has_lengths"),
    [
        ("-long.tar", "ranges", False),
        (".tar", "auto", True),
        (".tar", "shards", False),
        (".tar", "ranges", True),
        (".tar", "ranges", False),
        (".tar.gz", "shards", True),
        (".tar.gz", "ranges", False),
    ],
)
def test_remote_shards_have_the_keys_and_bytes_of_local_ones(tmp_path, suffix, fetch, has_lengths):
    (tmp_path / "data").mkdir()
    if suffix == "-long.tar":  # names that fit in no header
        names = [write(tmp_path / "data" / "names-long.tar", long_names(), "tar gnu").name]
    else:
        names = write_tiles(tmp_path / "data", suffix)
    expected = sk.TarDataset([tmp_path / "data" / name for name in names], cache=tmp_path / "local")
    with served(tmp_path / "data") as server:
        urls = [private(f"{server.url}/{name}") for name in names]
        lengths = expected.layout.sizes.tolist() if has_lengths else None
        with sk.TarDataset(
            urls, cache=tmp_path / "cache", lengths=lengths, fetch=fetch, progress=False
        ) as dataset:
            assert server.requests == []
            assert without_url(dataset) == without_url(expected)
            ids = np.random.default_rng(0).permutation(len(expected))
            assert without_url(dataset.__getitems__(ids)) == without_url(expected.__getitems__(ids))
            assert dataset[7]["__url__"] == f"{server.url}/{names[0]}"
            assert dataset.layout == expected.layout
            assert dataset.keys() == expected.keys()
            assert (dataset.fingerprint == expected.fingerprint) == (not has_lengths)
            assert leaks([repr(dataset)]) == []


def test_workers_of_two_ranks_ask_once_a_machine_for_each_index_and_for_the_lengths(tmp_path):
    local = sk.TarDataset(write_shards(tmp_path / "data"), cache=tmp_path / "here", progress=False)
    local.save_lengths(tmp_path / "data/lengths.json")
    with served(tmp_path / "data", seconds=0.05) as server, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what GLOBAL costs
        loaders = []
        for rank in range(2):
            dataset = remote(server, tmp_path / "cache", lengths=f"{server.url}/lengths.json", fetch="ranges")
            options = {"num_workers": 3, "collate_fn": list, "world": sk.World(2, rank)}
            loaders.append(sk.Loader(dataset, sk.RandomSampler(seed=7), batch_size=8, **options))
        assert all(map(all, zip(*loaders, strict=True)))
        requests = Counter(request.name for request in server.requests if request.method == "GET")
    assert {name: count for name, count in requests.items() if not name.endswith(".tar")} == {
        "lengths.json": 1,
        **{f"train-{number:02}.tar.skidx": 1 for number in range(SHARDS)},
    }


@pytest.mark.parametrize("index", ["present", "missing", "damaged"])
def test_local_and_remote_shards_may_be_mixed(tmp_path, server, local, index):
    write_shards(tmp_path / "here", index=index == "present")
    if index == "damaged":
        for number in range(SHARDS):
            (tmp_path / "here" / f"train-{number:02}.tar.skidx").write_bytes(b"no index")
    places = [str(tmp_path / "here"), server.url] * (SHARDS // 2)
    urls = [f"{place}/train-{number:02}.tar" for number, place in enumerate(places)]
    for fetch in ("shards", "ranges"):
        options = {"cache": tmp_path / fetch, "remote": {"max_cache_bytes": 1 << 30}, "progress": False}
        with sk.TarDataset(urls, fetch=fetch, **options) as dataset:
            assert without_url(dataset) == without_url(local)
            assert (dataset.is_remote, dataset.max_cache_bytes) == (True, 1 << 30)
        with sk.TarDataset(urls[::2], **options) as dataset:
            assert (dataset.is_remote, dataset.max_cache_bytes) == (False, None)


def test_urls_that_differ_in_their_queries_only_are_refused(server, tmp_path):
    url = f"{server.url}/train-00.tar"
    for other in (url, f"{url}?part=2"):
        with pytest.raises(
            sk.ArgumentValueError, match=r"urls: differ in their queries .* only, got '.*-00\.tar'"
        ):
            sk.TarDataset([f"{url}?part=1", other])
    again = sk.TarDataset([f"{url}?part=1"] * 2, cache=tmp_path, progress=False)
    assert again.keys()[:2] == again.keys()[12:14] == ["00000", "00001"]
    again.close()


@pytest.mark.parametrize("by", ["sample", "key"])
def test_a_selection_fetches_each_shard_once_and_none_where_keys_suffice(tmp_path, server, by):
    with remote(server, tmp_path) as dataset:
        chosen = dataset.select(lambda given: "3" in (given if by == "key" else given["__key__"]), by=by)
        assert len(chosen) == sum("3" in f"{number:05}" for number in NUMBERS)
    assert server.parts() == []
    assert len(server.downloads()) == (0 if by == "key" else SHARDS)


@pytest.mark.parametrize("fetch", ["shards", "ranges"])
def test_flaws_are_errors_or_are_skipped_as_in_local_shards(tmp_path, fetch):
    write_shards(tmp_path / "data", index=False)
    broken = tmp_path / "data" / "train-02.tar"
    broken.write_bytes(broken.read_bytes()[:9000])
    expected = sk.TarDataset(f"{tmp_path}/data/{PATTERN}", on_error="skip", cache=tmp_path / "local")
    lengths = expected.layout.sizes.tolist()
    with served(tmp_path / "data") as server:
        for given in (lengths, None):
            with remote(server, tmp_path / "a", lengths=given, fetch=fetch, on_error="skip") as dataset:
                assert without_url(dataset) == without_url(expected)
                assert dataset.skipped.counts == expected.skipped.counts
            with (
                remote(server, tmp_path / "b", lengths=given, fetch=fetch) as dataset,
                pytest.raises(sk.DatasetError, match=r"train-02\.tar.*truncated") as caught,
            ):
                list(dataset)
            assert leaks(texts(caught.value)) == []


def test_checksums_find_damage_in_the_data(tmp_path):
    data = tmp_path / "data"
    write_shards(data, index=False, size=100)
    with served(data) as server:
        with remote(server, tmp_path, checksums=True, fetch="ranges") as dataset:
            assert dataset[0]["cls"] == b"0"
        # A changed checksum of unchanged data stands for changed data.
        for path in tmp_path.glob("*.skidx"):
            forge(path, lambda _, arrays: arrays["crc"].__setitem__(0, arrays["crc"][0] ^ 1))
        assert_refused(remote(server, tmp_path, checksums=True, fetch="ranges"), "checksum", 0)


PARTIAL = sk.RandomSampler(shuffle=sk.Shuffle.PARTIAL, partial_size=EACH, seed=7)
GLOBAL = sk.RandomSampler(seed=7)


def loader_of(dataset, sampler, **options):
    return sk.Loader(dataset, sampler, batch_size=6, collate_fn=list, **options)


def test_with_lengths_nothing_is_requested_before_the_first_batch(tmp_path, server):
    dataset = remote(server, tmp_path, lengths=LENGTHS)
    loader = loader_of(dataset, PARTIAL)
    plan = len(loader), len(dataset), loader.fingerprint, loader.state_dict(), loader.ids(3).tolist()
    assert plan[:2] == (16, 96)
    copy = pickle.loads(pickle.dumps(dataset))  # noqa: S301  # our own
    assert len(copy) == 96
    assert server.requests == []
    next(iter(loader))
    assert server.requests != []
    loader.close()
    dataset.close()


@pytest.mark.parametrize(("workers", "indexed"), [(0, True), (2, False)])
def test_partial_downloads_each_shard_once_a_machine(tmp_path, server, workers, indexed):
    if not indexed:
        for path in server.folder.glob("*.skidx"):
            path.unlink()
    with remote(server, tmp_path, lengths=LENGTHS) as dataset:
        loader = loader_of(dataset, PARTIAL, num_workers=workers)
        assert Counter(sum(keys_of(loader), [])) == Counter(f"{number:05}" for number in NUMBERS)
        assert server.downloads() == NAMES
        assert loader.stats.dataset.downloads == len(NAMES)  # those of the workers
        assert server.parts() == []
        server.requests.clear()
        keys_of(loader)
        assert server.downloads() == []
        assert server.parts() == []


def test_a_shard_stays_open_as_long_as_batches_need_it(tmp_path, server, monkeypatch):
    opened, open_shard = [], Shards.open_shard
    monkeypatch.setattr(Shards, "open_shard", lambda *args: opened.append(args[1]) or open_shard(*args))
    files = sk.RandomSampler(shuffle="files", seed=7)
    with remote(server, tmp_path, lengths=LENGTHS, fetch="shards", read_ahead=0) as dataset:
        keys_of(loader_of(dataset, files))
    assert sorted(opened) == [*range(SHARDS)]


def test_only_shards_that_may_be_fetched_have_counters_and_are_read_ahead(tmp_path, server, local):
    assert (local.stats, local.expect, local.fetch) == (None, None, None)
    with remote(server, tmp_path) as dataset:
        assert dataset.stats.downloads == 0
        assert callable(dataset.expect)
        assert dataset.fetch == "auto"


def test_global_reads_samples_with_no_more_requests_than_samples(tmp_path, server):
    with remote(server, tmp_path, lengths=LENGTHS) as dataset:
        keys = keys_of(loader_of(dataset, GLOBAL))
        assert leaks([repr(dataset)]) == []
        assert Counter(sum(keys, [])) == Counter(f"{number:05}" for number in NUMBERS)
        assert server.downloads() == []
        assert 0 < len(server.parts()) <= len(NUMBERS)
        assert sorted(request.name for request in server.calls("GET") if request.name.endswith(".skidx")) == [
            f"{name}.skidx" for name in NAMES
        ]


def test_cached_shards_are_read_from_the_cache_in_any_order(tmp_path, server):
    with remote(server, tmp_path, lengths=LENGTHS) as dataset:
        keys_of(loader_of(dataset, PARTIAL))
        server.requests.clear()
        keys_of(loader_of(dataset, GLOBAL))
        assert dataset[7]["cls"] == b"7"
        assert server.requests == []


@pytest.mark.parametrize("read_ahead", [0, 2])
def test_shards_larger_than_the_first_one_close_others_instead_of_waiting_for_room(tmp_path, read_ahead):
    for number, size in enumerate([1_000, *[40_000] * 5]):
        samples = [{"__key__": f"{number}{row}", "bin": bytes(size)} for row in range(4)]
        write_tar(tmp_path / "shards" / f"{number}.tar", samples)
    options = {"cache": tmp_path / "cache", "lengths": [4] * 6, "fetch": "shards", "read_ahead": read_ahead}
    limits = {"max_cache_bytes": 450_000, "timeout": 5.0}  # room for two of the larger ones
    with (
        served(tmp_path / "shards") as server,
        sk.TarDataset(f"{server.url}/{{0..5}}.tar", remote=limits, **options) as dataset,
    ):
        for ids in np.arange(24).reshape(6, 4):
            assert [int(sample["__key__"][1:]) for sample in dataset.__getitems__(ids)] == [0, 1, 2, 3]


@pytest.mark.parametrize("fetch", ["shards", "ranges"])
@pytest.mark.parametrize(("key", "step"), [("{:05}", -1), ("9{:04}", 1)], ids=["other places", "other names"])
def test_a_stale_index_next_to_a_shard_of_the_same_size_is_detected(tmp_path, server, fetch, key, step):
    """Files have changed places, or their names: only the headers differ."""
    index = server.folder / "train-03.tar.skidx"
    stale = index.read_bytes()
    numbers = range(3 * EACH, 4 * EACH)[::step]
    (other,) = write_tar(f"{server.folder}/other-%d.tar", (sample_of(number, key=key) for number in numbers))
    Path(other).rename(server.folder / "train-03.tar")
    right = Path(f"{other}.skidx").read_bytes()
    index.write_bytes(stale)
    for number, lengths in enumerate([LENGTHS, None]):
        dataset = remote(server, tmp_path / str(number), lengths=lengths, fetch=fetch)
        assert_refused(dataset, r"train-03\.tar.*index next to it.*samplerkit index", 3 * EACH)
    # As the hint says: it is made again, or removed.
    index.write_bytes(right)
    with remote(server, tmp_path / "0", lengths=LENGTHS, fetch=fetch) as dataset:
        assert dataset[3 * EACH]["cls"] == str(numbers[0]).encode()
    index.unlink()
    with remote(server, tmp_path / "1", fetch=fetch) as dataset:
        assert dataset[3 * EACH]["cls"] == str(numbers[0]).encode()


@pytest.mark.parametrize(("fetch", "workers"), [("shards", 2), ("ranges", 0)])
def test_a_shard_that_changes_between_epochs_is_an_error_and_never_mixed(tmp_path, server, fetch, workers):
    # A cache with room for few shards, so that the second epoch asks again.
    options = {"max_cache_bytes": 3 * (server.folder / NAMES[0]).stat().st_size, "attempts": 1}
    dataset = remote(server, tmp_path, fetch=fetch, remote=options, max_shards=1, read_ahead=0)
    with dataset, loader_of(dataset, PARTIAL, num_workers=workers) as loader:
        texts = [sample["txt"] for batch in loader for sample in batch]
        assert all(text.startswith(b"number") for text in texts)
        write_shards(server.folder, text="NUMBER")
        read_before = []
        with pytest.raises(sk.DatasetError, match="changed"):
            for batch in loader:
                read_before += [sample["txt"] for sample in batch]
        assert all(text.startswith(b"number") for text in read_before)
