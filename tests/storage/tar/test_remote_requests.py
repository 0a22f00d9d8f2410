"""Requests to a server: none too early, none twice, and never two states of one shard."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path

import pytest

import samplerkit as sk
from tests.storage.remote.test_privacy import leaks
from tests.storage.tar.remote_shards import (
    EACH,
    LENGTHS,
    NAMES,
    NUMBERS,
    keys_of,
    remote,
    sample_of,
    write_shards,
)
from tests.storage.tar.shards import write_tar

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
        assert server.parts() == []
        server.requests.clear()
        keys_of(loader)
        assert server.downloads() == []
        assert server.parts() == []


def test_global_reads_samples_with_no_more_requests_than_samples(tmp_path, server):
    with remote(server, tmp_path, lengths=LENGTHS) as dataset:
        with pytest.warns(UserWarning, match=r"about [0-9]+ requests and .* an epoch.*PARTIAL") as caught:
            keys = keys_of(loader_of(dataset, GLOBAL))
        assert len(caught) == 1, "once"
        assert leaks([str(caught[0].message), repr(dataset)]) == []
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


@pytest.mark.parametrize("fetch", ["shards", "ranges"])
@pytest.mark.parametrize(("key", "step"), [("{:05}", -1), ("9{:04}", 1)], ids=["other places", "other names"])
def test_a_stale_index_next_to_a_shard_of_the_same_size_is_detected(tmp_path, server, fetch, key, step):
    """Files have changed places, or their names: only the headers differ."""
    stale = (server.folder / "train-03.tar.skidx").read_bytes()
    numbers = range(3 * EACH, 4 * EACH)[::step]
    (other,) = write_tar(f"{server.folder}/other-%d.tar", (sample_of(number, key=key) for number in numbers))
    Path(other).rename(server.folder / "train-03.tar")
    (server.folder / "train-03.tar.skidx").write_bytes(stale)
    with remote(server, tmp_path, lengths=LENGTHS, fetch=fetch) as dataset:
        if fetch == "ranges":
            with pytest.raises(sk.DatasetError, match=r"train-03\.tar.*index next to it.*samplerkit index"):
                dataset[3 * EACH]
        else:
            with pytest.warns(UserWarning, match="another version of it.*not used"):
                assert dataset[3 * EACH]["cls"] == str(numbers[0]).encode()
    # Without lengths, the layout was already taken from it.
    message = r"train-03\.tar.*index next to it.*samplerkit index"
    with (
        remote(server, tmp_path / "other", fetch=fetch) as dataset,
        pytest.raises(sk.DatasetError, match=message),
    ):
        dataset[3 * EACH]


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
