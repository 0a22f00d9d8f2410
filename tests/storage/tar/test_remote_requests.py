"""What is asked of a server: nothing too early, nothing twice, and never two states of one shard."""

from __future__ import annotations

import pickle
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from tests.storage.tar.remote_shards import (
    EACH,
    LENGTHS,
    NAMES,
    NUMBERS,
    SHARDS,
    as_list,
    keys_of,
    remote,
    write_shards,
)
from tests.waiting import wait_until

PARTIAL = sk.RandomSampler(shuffle=sk.Shuffle.PARTIAL, partial_size=EACH, seed=7)
GLOBAL = sk.RandomSampler(seed=7)


def loader_of(dataset, sampler, **options):
    return sk.Loader(dataset, sampler, batch_size=6, collate_fn=as_list, **options)


def without_indexes(server):
    for path in server.folder.glob("*.skidx"):
        path.unlink()


def test_with_lengths_nothing_is_asked_before_the_first_batch(tmp_path, server):
    dataset = remote(server, tmp_path, lengths=LENGTHS)
    loader = loader_of(dataset, PARTIAL)
    plan = len(loader), len(dataset), loader.fingerprint, loader.state_dict(), loader.ids(3).tolist()
    assert plan[:2] == (16, 96)
    copy = pickle.loads(pickle.dumps(dataset))  # noqa: S301  # our own
    assert len(copy) == 96
    assert server.asked == []
    next(iter(loader))
    assert server.asked != []
    loader.close()
    dataset.close()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("indexed", [True, False])
def test_partial_downloads_each_shard_once_a_machine(tmp_path, server, workers, indexed):
    if not indexed:
        without_indexes(server)
    with remote(server, tmp_path, lengths=LENGTHS) as dataset:
        loader = loader_of(dataset, PARTIAL, num_workers=workers)
        assert Counter(sum(keys_of(loader), [])) == Counter(f"{number:05}" for number in NUMBERS)
        assert server.downloads() == NAMES
        assert server.parts() == []
        server.forget()
        keys_of(loader)
        assert server.downloads() == []
        assert server.parts() == []


def test_global_reads_samples_with_no_more_requests_than_samples(tmp_path, server):
    with remote(server, tmp_path, lengths=LENGTHS) as dataset:
        with pytest.warns(UserWarning, match=r"about [0-9]+ requests and .* an epoch.*PARTIAL") as told:
            keys = keys_of(loader_of(dataset, GLOBAL))
        assert len(told) == 1, "once"
        assert "SECRET" not in str(told[0].message)
        assert Counter(sum(keys, [])) == Counter(f"{number:05}" for number in NUMBERS)
        assert server.downloads() == []
        assert 0 < len(server.parts()) <= len(NUMBERS)
        assert server.indexes() == [f"{name}.skidx" for name in NAMES]


def test_shards_that_are_in_the_cache_are_read_there_whatever_the_order(tmp_path, server):
    with remote(server, tmp_path, lengths=LENGTHS) as dataset:
        keys_of(loader_of(dataset, PARTIAL))
        server.forget()
        keys_of(loader_of(dataset, GLOBAL))
        assert dataset[7]["cls"] == b"7"
        assert server.asked == []


def test_without_an_index_beside_them_shards_are_downloaded_once_to_be_indexed(tmp_path, server):
    without_indexes(server)
    for _ in range(2):
        with remote(server, tmp_path, fetch="ranges") as dataset:
            assert dataset.layout.sizes.tolist() == LENGTHS
            assert dataset.__getitems__([5, 80])[1]["cls"] == b"80"
    assert server.downloads() == NAMES
    assert len(server.parts()) == 4


@pytest.mark.parametrize("fetch", ["shards", "ranges"])
def test_an_index_beside_a_shard_of_another_size_is_left_aside_with_a_warning(tmp_path, server, fetch):
    stale = (server.folder / "train-03.tar.skidx").read_bytes()
    write_shards(server.folder, size=800)
    (server.folder / "train-03.tar.skidx").write_bytes(stale)
    with remote(server, tmp_path, lengths=LENGTHS, fetch=fetch) as dataset:
        with pytest.warns(UserWarning, match=r"train-03\.tar\.skidx is damaged, or of another state"):
            assert dataset[3 * EACH]["cls"] == b"36"
        assert server.downloads() == ["train-03.tar"]


@pytest.mark.parametrize("fetch", ["shards", "ranges"])
@pytest.mark.parametrize(("key", "step"), [("{:05}", -1), ("9{:04}", 1)], ids=["other places", "other names"])
def test_an_index_beside_a_shard_of_the_same_size_and_other_files_is_noticed(
    tmp_path, server, fetch, key, step
):
    """Files have changed places, or their names, so nothing but the headers tells."""
    stale = (server.folder / "train-03.tar.skidx").read_bytes()
    numbers = range(3 * EACH, 4 * EACH)[::step]
    with sk.TarWriter(f"{server.folder}/other-%d.tar") as writer:
        for number in numbers:
            padding = "." * (number % 7)
            writer.write({"__key__": key.format(number), "txt": f"number {number} {padding}", "cls": number})
    (server.folder / "other-0.tar").rename(server.folder / "train-03.tar")
    (server.folder / "train-03.tar.skidx").write_bytes(stale)
    with remote(server, tmp_path, lengths=LENGTHS, fetch=fetch) as dataset:
        if fetch == "ranges":
            with pytest.raises(sk.DatasetError, match=r"train-03\.tar.*index beside it.*samplerkit index"):
                dataset[3 * EACH]
        else:
            with pytest.warns(UserWarning, match="another state of it.*not used"):
                assert dataset[3 * EACH]["cls"] == str(numbers[0]).encode()


@pytest.mark.parametrize("fetch", ["shards", "ranges"])
def test_another_length_than_was_told_is_an_error_with_both_numbers(tmp_path, server, fetch):
    with remote(server, tmp_path, lengths=[*LENGTHS[:-1], EACH + 3], fetch=fetch) as dataset:
        assert dataset[0]["cls"] == b"0"
        with pytest.raises(sk.DatasetError, match=r"train-07\.tar: has 12 samples, but 15 were given"):
            dataset[len(dataset) - 1]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("fetch", ["shards", "ranges"])
def test_a_shard_that_changes_between_epochs_is_an_error_and_never_mixed(tmp_path, server, fetch, workers):
    # A cache with room for few shards, so that the second epoch asks again.
    room = {"max_cache_bytes": 3 * (server.folder / NAMES[0]).stat().st_size, "attempts": 1}
    dataset = remote(server, tmp_path, fetch=fetch, remote=room, max_shards=1, read_ahead=0)
    with dataset, loader_of(dataset, PARTIAL, num_workers=workers) as loader:
        texts = [sample["txt"] for batch in loader for sample in batch]
        assert all(text.startswith(b"number") for text in texts)
        write_shards(server.folder, text="NUMBER")
        seen = []
        with pytest.raises(sk.DatasetError, match="changed"):
            for batch in loader:
                seen += [sample["txt"] for sample in batch]
        assert all(text.startswith(b"number") for text in seen)


def bytes_in(folder):
    sizes = []
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # it has gone meanwhile
            sizes.append(path.stat().st_size)
    return sum(sizes)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_small_cache_is_enough_and_stays_small(tmp_path, server, workers):
    most = 3 * (server.folder / NAMES[0]).stat().st_size
    room = {"cache": tmp_path / "small", "max_cache_bytes": most, "timeout": 10, "attempts": 1}
    with remote(server, tmp_path, lengths=LENGTHS, remote=room) as dataset:
        loader = loader_of(dataset, PARTIAL, num_workers=workers)
        for _ in range(2):
            keys = sum(keys_of(loader), [])
            assert Counter(keys) == Counter(f"{number:05}" for number in NUMBERS)
            # A look takes a moment in which one file may go and another come, and both be counted.
            assert min(bytes_in(tmp_path / "small") for _ in range(5)) <= most + 4096
    assert len(server.downloads()) > SHARDS, "the second epoch had to fetch again"


def test_shards_are_fetched_ahead_while_the_loop_works(tmp_path, server):
    """The second shard is held back until the loop works on the first one, and comes then by itself."""
    without_indexes(server)
    works = threading.Event()
    events = []

    def hold(asked):
        if asked.method == "GET" and asked.name in NAMES[1:]:
            works.wait(20)
            events.append(asked.name)

    server.on_request = hold
    with remote(
        server, tmp_path, lengths=LENGTHS, fetch="shards", read_ahead=1, remote={"attempts": 1}
    ) as dataset:
        dataset.expect(iter(np.split(np.array(NUMBERS), SHARDS)))
        first = dataset.__getitems__(np.arange(EACH))
        events.append("the loop works")
        works.set()
        wait_until(lambda: len(events) >= 2)
        events.append("the loop wants more")
        second = dataset.__getitems__(np.arange(EACH, 2 * EACH))
    assert events[:3] == ["the loop works", NAMES[1], "the loop wants more"]
    assert [int(sample["cls"]) for sample in first + second] == [*range(2 * EACH)]


def test_the_next_batch_is_read_ahead_where_single_samples_are_read(tmp_path, server):
    batches = np.split(np.random.default_rng(0).permutation(len(NUMBERS)), 8)
    # The shards are small, so what is wanted of one is one request.
    requests = [len(set((batch // EACH).tolist())) for batch in batches]
    with remote(server, tmp_path, lengths=LENGTHS, fetch="ranges") as dataset:
        dataset.expect(iter(batches))
        for number, batch in enumerate(batches):
            samples = dataset.__getitems__(batch)
            assert [int(sample["cls"]) for sample in samples] == batch.tolist()
            wait_until(lambda number=number: len(server.parts()) == sum(requests[: number + 2]))


@pytest.mark.parametrize("fetch", ["shards", "ranges"])
def test_closing_leaves_no_thread_and_a_dataset_that_can_be_used_again(tmp_path, server, fetch):
    before = set(threading.enumerate())
    dataset = remote(server, tmp_path / "cache", lengths=LENGTHS, fetch=fetch)
    dataset.expect(iter(np.split(np.array(NUMBERS), SHARDS)))
    dataset.__getitems__(np.arange(EACH))
    dataset.close()
    for thread in set(threading.enumerate()) - before:
        # The threads of the server answer until their connections are closed.
        assert not thread.name.startswith("samplerkit"), thread
    open_files = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    assert not [path for path in open_files if path.startswith(str(tmp_path / "cache"))]
    assert dataset[5]["cls"] == b"5"
    dataset.close()


def test_nothing_private_reaches_errors_and_warnings(tmp_path, server):
    (server.folder / "train-05.tar").unlink()
    (server.folder / "train-05.tar.skidx").unlink()
    for fetch in ("shards", "ranges", "auto"):
        with (
            remote(server, tmp_path / fetch, lengths=LENGTHS, fetch=fetch, remote={"attempts": 1}) as dataset,
            pytest.raises(sk.DatasetError, match=r"train-05\.tar") as caught,
        ):
            dataset[5 * EACH]
        error = caught.value
        while error is not None:
            assert "SECRET" not in repr(error)
            error = error.__cause__ or error.__context__
        assert "SECRET" not in repr(dataset)
