"""Prefetching of shards: batches are freed once used, and it ends when other batches are expected."""

import threading
import time
import weakref

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.ahead.batches import MAX_BYTES, BatchesAhead, SampleBatch
from samplerkit.storage.ahead.uses import MAX_MISTAKES
from tests.storage.tar.remote_shards import EACH, LENGTHS, SHARDS, remote
from tests.waiting import wait_until

FEW = {"lengths": LENGTHS, "max_shards": 4}
PLAN = [np.arange(3 * number, 3 * number + 3) for number in range(20)]


def prefetch_threads():
    """The threads of this process that prefetch."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("samplerkit-read-ahead")}


class Reads:
    """Reads batches, and records them and which of them are still in memory."""

    def __init__(self, num_bytes=24):
        self.read: list[list[int]] = []
        self.references: list[weakref.ref[SampleBatch]] = []
        self.threads: list[str] = []
        self.num_bytes = num_bytes
        self.may_continue = threading.Event()
        self.may_continue.set()

    def __call__(self, ids):
        self.may_continue.wait(60)
        self.read.append(ids.tolist())
        self.threads.append(threading.current_thread().name)
        batch = SampleBatch(ids.tolist(), self.num_bytes)
        self.references.append(weakref.ref(batch))
        return batch

    def alive(self):
        return sum(reference() is not None for reference in self.references)


@pytest.fixture(name="start")
def fixture_start():
    """Starts prefetching, and returns the batches with their `Reads`; all are closed at the end."""
    opened = []

    def start(**options):
        reads = Reads(**options)
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


def test_unexpected_batches_are_read_at_once_and_many_of_them_end_prefetching(start):
    batches, reads = start()
    wait_until(lambda: len(reads.read) == 1)
    for number in range(MAX_MISTAKES):
        assert batches.is_valid
        assert batches.read(np.array([90 + number])) == [90 + number]
    assert not batches.is_valid
    assert reads.read == [[0, 1, 2], *([90 + number] for number in range(MAX_MISTAKES))]


def test_batches_that_take_much_memory_are_not_prefetched(start):
    batches, reads = start(num_bytes=MAX_BYTES + 1)
    for ids in PLAN[:4]:
        assert batches.read(ids) == ids.tolist()
        time.sleep(0.02)  # in which another one could be prefetched
    assert reads.read == [ids.tolist() for ids in PLAN[:4]]
    assert reads.threads[1:] == ["MainThread"] * 3


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


@pytest.mark.parametrize("share", [1, 4])
def test_the_cost_warning_counts_the_samples_of_an_epoch(tmp_path, server, share):
    """A dataset of every fourth sample makes a fourth of the requests."""
    with remote(server, tmp_path, **FEW, fetch="auto") as dataset:
        selection = dataset.select(lambda key: int(key) % share == 0, by="key")
        assert len(selection) == SHARDS * EACH // share
        order = sk.RandomSampler(seed=1).order(selection)
        selection.expect(order.chunks(4))
        with pytest.warns(UserWarning, match="reading single samples takes about") as caught:
            selection.__getitems__(order[:4])
    (message,) = [str(warning.message) for warning in caught if "single samples" in str(warning.message)]
    requests = int(message.partition("takes about ")[2].partition(" ")[0])
    # Four samples at a time, some of them adjacent in a shard.
    assert len(selection) / 4 <= requests <= len(selection)


@pytest.mark.filterwarnings("ignore:.*reading single samples takes")
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
            wait_until(lambda shards=shards: len(shards._entries.contents) >= 2)
            assert keys(dataset, in_order()[0]) == list(range(6))
            dataset.expect(iter(everywhere))
            assert not reading._fetches_shards
            wait_until(lambda shards=shards: not any(thread.is_alive() for thread in shards._threads))
            assert shards._entries.contents == {}
            for ids in everywhere[:2]:
                assert keys(dataset, ids) == ids.tolist()
            samples = reading._batches
        dataset.expect(iter(in_order()))
        wait_until(lambda: not any(thread.is_alive() for thread in samples._cache._threads))
    wait_until(lambda: prefetch_threads() <= before)
