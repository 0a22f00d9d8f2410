"""What is fetched of remote shards, and what is read ahead of the loop."""

import threading
import weakref

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.ahead.batches import BatchesAhead
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.tar.fetch_costs import MAX_SAMPLES, FetchCosts, choose_fetch, epoch_costs
from samplerkit.storage.tar.index.find_or_make import Cache
from samplerkit.storage.tar.read.shards import Shards, TarOptions
from tests.storage.remote.server import served
from tests.storage.tar.remote_shards import EACH, LENGTHS, SHARDS, remote
from tests.waiting import wait_until

LAYOUTS = {"4 of 25": (4, 25), "16 of 50": (16, 50), "64 of 1000": (64, 1000), "one": (1, 300)}
LOCAL = {
    "FALSE": lambda each: {"shuffle": False},
    "FILES": lambda each: {"shuffle": sk.Shuffle.FILES},
    "INFILE": lambda each: {"shuffle": sk.Shuffle.INFILE},
    "PARTIAL of half a shard": lambda each: {"shuffle": sk.Shuffle.PARTIAL, "partial_size": each // 2},
    "PARTIAL of a shard": lambda each: {"shuffle": sk.Shuffle.PARTIAL, "partial_size": each},
}


def batches_of(layout, workers, **options):
    """The batches of the first worker of rank 1 of 2."""
    order = sk.DistributedSampler(2, 1, seed=3, **options).order(layout, epoch=0)[:]
    return [order[start : start + 16] for start in range(0, order.size, 16 * workers)]


def shards_of(layout, batches):
    return (layout.file_of(ids) for ids in batches)


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("mode", [*LOCAL, "GLOBAL"])
@pytest.mark.parametrize("shards", LAYOUTS)
def test_orders_that_stay_in_few_shards_fetch_them_and_global_reads_samples(shards, mode, workers):
    number, each = LAYOUTS[shards]
    layout = sk.Layout([each] * number)
    batches = batches_of(layout, workers, **LOCAL[mode](each) if mode in LOCAL else {"shuffle": True})
    choice = choose_fetch(shards_of(layout, batches), layout.sizes, 1000, workers)
    assert choice.by_shards == (mode in LOCAL or shards == "one")


def test_a_wide_window_fetches_shards_if_the_cache_can_hold_them():
    layout = sk.Layout([100] * 200)
    batches = batches_of(layout, 1, shuffle=sk.Shuffle.PARTIAL, partial_size=1600)
    assert choose_fetch(shards_of(layout, batches), layout.sizes, 64).by_shards
    assert not choose_fetch(shards_of(layout, batches), layout.sizes, 4).by_shards


def test_no_more_batches_are_inspected_than_needed():
    layout = sk.Layout([4 * MAX_SAMPLES] * 8)
    yielded = []

    def endless():
        while True:
            yielded.append(1)
            yield np.zeros(1 << 16, dtype=np.int64)

    assert not choose_fetch(endless(), layout.sizes, 8).by_shards
    assert len(yielded) <= 1 + 2 * 4 * MAX_SAMPLES // (1 << 16)
    del yielded[:]
    assert choose_fetch(endless(), np.array([1000] * 8), 8).by_shards
    assert len(yielded) == 1


def test_costs_equal_a_count_by_hand():
    layout = sk.Layout([4, 4, 2])
    batches = [np.array([0, 1, 5]), np.array([3, 9, 8, 9]), np.array([4, 2])]
    shards, ranges = epoch_costs(layout, batches, shard_bytes=np.array([400, 800, 100]))
    # 0-1, 5; 3, 8-9; 2, 4: a border between shards parts 3 from 4. A pad is read once.
    assert ranges == FetchCosts(6, 2 * 100 + 200 + 100 + 2 * 50 + 100 + 200)
    assert shards == FetchCosts(3, 1300)
    assert shards.cost == 1300 + 3 * 2**20  # a request counts as a MiB
    in_small_cache, _ = epoch_costs(layout, batches, shard_bytes=np.array([400, 800, 100]), cached_shards=1)
    assert in_small_cache.requests > 3


def test_a_full_cache_evicts_the_least_recently_used_shard():
    layout, used = sk.Layout([1] * 5), np.random.default_rng(4).integers(0, 5, 200)
    for capacity in range(1, 6):
        cached, fetched = [], 0
        for shard in used.tolist():
            fetched += shard not in cached
            cached = [*(other for other in cached if other != shard), shard][-capacity:]
        shards, _ = epoch_costs(layout, [[shard] for shard in used], cached_shards=capacity)
        assert shards.requests == fetched


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tgz"])
def test_a_cache_holds_as_many_shards_as_fit_and_half_as_many_compressed_ones(tmp_path, suffix):
    (tmp_path / f"0{suffix}").write_bytes(bytes(1000))
    parts = 1 if suffix == ".tar" else 2
    with served(tmp_path) as server:
        for shards in (1, 3):
            for limit, expected in ((1000 * parts * shards - 1, shards - 1), (1000 * parts * shards, shards)):
                remote = RemoteOptions(cache=tmp_path / "cache", max_cache_bytes=limit)
                options = TarOptions("raise", None, False, Cache.of(None, remote), "auto", 1, 1)
                url, storage = f"{server.url}/0{suffix}", RemoteStorage(remote)
                assert Shards((url,), storage, options).cache_capacity() == expected
        url = f"{server.url}/missing{suffix}"
        assert Shards((url,), storage, options).cache_capacity() == 1


MANY_SHARDS, IN_A_SHARD = 32, 60
SAMPLER = sk.DistributedSampler(shuffle="partial", partial_size=2 * IN_A_SHARD, seed=7)


@pytest.mark.parametrize(
    ("before", "now", "steps", "batch_size", "sample_bytes", "expected"),
    [
        *(
            pytest.param(*ranks, step * 120, 4, 1000, True, id=f"small, {ranks}, {step}")
            for ranks in ((2, 3), (3, 2), (4, 6))
            for step in (0, 1)
        ),
        # One in eight samples of a shard: fetching all of it would take eight times the bytes.
        pytest.param(2, 16, 3, 2, 4 << 20, False, id="little of every shard"),
        # The last samples of an epoch are too few for an estimate.
        pytest.param(2, 3, 59, 16, 1 << 20, False, id="the end of an epoch"),
    ],
)
def test_ranks_that_share_lanes_fetch_shards_or_read_large_samples_one_by_one(
    before, now, steps, batch_size, sample_bytes, expected
):
    layout = sk.Layout([IN_A_SHARD] * MANY_SHARDS)
    previous = sk.Loader(layout, SAMPLER, batch_size=batch_size, world=sk.World(before, 0))
    for rank in range(now):
        loader = sk.Loader(layout, SAMPLER, batch_size=batch_size, world=sk.World(now, rank))
        loader.load_state_dict(previous.state_dict(step=steps))
        shards = (layout.file_of(loader.ids(step)) for step in range(loader.steps_left))
        choice = choose_fetch(shards, layout.sizes, MANY_SHARDS, 1, IN_A_SHARD * sample_bytes)
        assert choice.by_shards == expected, rank


FEW = {"lengths": LENGTHS, "max_shards": 4}
PLAN = [np.arange(3 * number, 3 * number + 3) for number in range(20)]


def prefetch_threads():
    """The threads of this process that prefetch."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("samplerkit-read-ahead")}


class Batch(list):
    """A list, to which there may be weak references."""


class Reads:
    """Reads batches, and records them and which of them are still in memory."""

    def __init__(self):
        self.read: list[list[int]] = []
        self.references: list[weakref.ref[Batch]] = []
        self.threads: list[str] = []
        self.may_continue = threading.Event()
        self.may_continue.set()

    def __call__(self, ids):
        self.may_continue.wait(60)
        self.read.append(ids.tolist())
        self.threads.append(threading.current_thread().name)
        batch = Batch(ids.tolist())
        self.references.append(weakref.ref(batch))
        return batch

    def alive(self):
        return sum(reference() is not None for reference in self.references)


@pytest.fixture(name="start")
def fixture_start():
    """Starts prefetching, and returns the batches with their `Reads`; all are closed at the end."""
    opened = []

    def start():
        reads = Reads()
        opened.append(BatchesAhead(reads, iter(PLAN)))
        return opened[-1], reads

    yield start
    for batches in opened:
        batches.close()


def test_a_batch_is_freed_after_it_was_returned(start):
    batches, reads = start()
    for ids in PLAN[:-1]:
        batches.read(ids)
        wait_until(lambda: len(reads.read) == len(reads.references))
        # One that is prefetched, and one that was just returned.
        assert reads.alive() <= 2
    batches.read(PLAN[-1])
    wait_until(lambda: reads.alive() == 0)


def test_unexpected_batches_are_read_at_once_and_nothing_is_prefetched_for_them(start):
    batches, reads = start()
    wait_until(lambda: len(reads.read) == 1)
    for number in range(9):
        assert batches.read(np.array([90 + number])) == [90 + number]
    assert reads.read == [[0, 1, 2], *([90 + number] for number in range(9))]


def test_batches_are_searched_no_further_than_to_one_without_ids_before_they_are_needed():
    empty, taken = np.zeros(0, np.int64), []
    upcoming = (taken.append(ids) or ids for part in PLAN for ids in [empty] * 40 + [part])
    batches = BatchesAhead(Reads(), upcoming)
    for number, ids in enumerate(PLAN):
        assert len(taken) <= 41 * number + 2
        assert batches.read(ids) == ids.tolist()
    batches.close()


def test_a_batch_that_is_left_out_does_not_end_prefetching(start):
    batches, reads = start()
    for ids in PLAN[1:]:
        assert batches.read(ids) == ids.tolist()
    assert reads.threads[-1] != "MainThread"


@pytest.mark.parametrize("waits", [False, True])
def test_prefetching_ends_when_it_is_closed_even_during_a_read(start, waits):
    before = prefetch_threads()
    batches, reads = start()
    wait_until(lambda: len(reads.read) == 1)
    reads.may_continue.clear()
    batches.read(PLAN[0])
    (thread,) = prefetch_threads() - before
    closing = threading.Thread(target=batches.close, kwargs={"waits": waits})
    closing.start()
    reads.may_continue.set()
    closing.join(60)
    wait_until(lambda: not thread.is_alive())
    assert len(reads.read) <= 2
    wait_until(lambda: reads.alive() == 0)


# Tests of a whole dataset.


def keys(dataset, ids):
    return [int(sample["__key__"]) for sample in dataset.__getitems__(ids)]


def in_order():
    """Batches that go through the shards one after another."""
    return [np.arange(start, start + 6) for start in range(0, SHARDS * EACH, 6)]


def test_switching_between_shards_and_samples_leaves_nothing_open(tmp_path, server):
    rng = np.random.default_rng(1)
    everywhere = [rng.choice(SHARDS * EACH, 16, replace=False) for _ in range(6)]
    with remote(server, tmp_path, **FEW) as dataset:
        before = prefetch_threads()
        for _ in range(3):
            dataset.expect(iter(in_order()))
            reading = dataset._source._processes.current().open_files
            shards = reading._open
            assert (reading._fetches_shards, reading._batches) == (True, None)
            wait_until(lambda shards=shards: len(shards._contents) >= 2)
            assert keys(dataset, in_order()[0]) == list(range(6))
            dataset.expect(iter(everywhere))
            assert not reading._fetches_shards
            wait_until(lambda shards=shards: not any(thread.is_alive() for thread in shards._threads))
            assert shards._contents == {}
            for ids in everywhere[:2]:
                assert keys(dataset, ids) == ids.tolist()
        dataset.expect(iter(in_order()))
    wait_until(lambda: prefetch_threads() <= before)
