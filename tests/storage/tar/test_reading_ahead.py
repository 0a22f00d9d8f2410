"""What is read ahead of shards: it goes when it was used, and ends when something else is told."""

from __future__ import annotations

import threading
import time
import weakref

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.ahead.batches import MOST_BYTES, BatchesAhead, SampleBatch
from samplerkit.storage.ahead.uses import MOST_MISTAKES
from tests.storage.tar.remote_shards import EACH, LENGTHS, SHARDS, remote
from tests.waiting import wait_until

FEW = {"lengths": LENGTHS, "max_shards": 4}
PLAN = [np.arange(3 * number, 3 * number + 3) for number in range(20)]


def readers_ahead():
    """The threads that read ahead in this process."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("samplerkit-read-ahead")}


class Reads:
    """Reads batches, and keeps a ledger of them and of those that are still in memory."""

    def __init__(self, num_bytes=24):
        self.read: list[list[int]] = []
        self.here: list[weakref.ref[SampleBatch]] = []
        self.threads: list[str] = []
        self.num_bytes = num_bytes
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def __call__(self, ids):
        self.may_go_on.wait(60)
        self.read.append(ids.tolist())
        self.threads.append(threading.current_thread().name)
        batch = SampleBatch(ids.tolist(), self.num_bytes)
        self.here.append(weakref.ref(batch))
        return batch

    def alive(self):
        return sum(reference() is not None for reference in self.here)


@pytest.fixture(name="begun")
def fixture_begun():
    """Batches that are read ahead, and what reads them; all is closed at the end."""
    opened = []

    def begin(plan=PLAN, **options):
        reads = Reads(**options)
        opened.append(BatchesAhead(reads, iter(plan)))
        return opened[-1], reads

    yield begin
    for batches in opened:
        batches.close()


def test_a_batch_that_was_handed_out_is_let_go(begun):
    batches, reads = begun()
    for ids in PLAN[:-1]:
        batches.read(ids)
        wait_until(lambda: len(reads.read) == len(reads.here))
        # One that is ahead, and one that just came.
        assert reads.alive() <= 2
    batches.read(PLAN[-1])
    wait_until(lambda: reads.alive() == 0)


def test_batches_that_nobody_expected_are_read_now_and_enough_of_them_end_it(begun):
    batches, reads = begun()
    wait_until(lambda: len(reads.read) == 1)
    for number in range(MOST_MISTAKES):
        assert batches.is_right
        assert batches.read(np.array([90 + number])) == [90 + number]
    assert not batches.is_right
    assert reads.read == [[0, 1, 2], *([90 + number] for number in range(MOST_MISTAKES))]


def test_batches_that_take_much_memory_are_not_read_ahead(begun):
    batches, reads = begun(num_bytes=MOST_BYTES + 1)
    for ids in PLAN[:4]:
        assert batches.read(ids) == ids.tolist()
        time.sleep(0.02)  # in which another one could be read ahead
    assert reads.read == [ids.tolist() for ids in PLAN[:4]]
    assert reads.threads[1:] == ["MainThread"] * 3


@pytest.mark.parametrize("waits", [False, True])
def test_what_reads_ahead_ends_when_it_is_told_also_in_the_middle_of_a_read(begun, waits):
    before = readers_ahead()
    batches, reads = begun()
    wait_until(lambda: len(reads.read) == 1)
    reads.may_go_on.clear()
    batches.read(PLAN[0])
    (mine,) = readers_ahead() - before
    closes = threading.Thread(target=batches.close, kwargs={"waits": waits})
    closes.start()
    reads.may_go_on.set()
    closes.join(60)
    wait_until(lambda: not mine.is_alive())
    assert len(reads.read) <= 2
    wait_until(lambda: reads.alive() == 0)


# Of a whole dataset.


def keys(dataset, ids):
    return [int(sample["__key__"]) for sample in dataset.__getitems__(ids)]


def in_order(first=0):
    """Batches that go through the shards one after another."""
    return [np.arange(start, start + 6) for start in range(first, SHARDS * EACH, 6)]


@pytest.mark.parametrize("share", [1, 4])
def test_the_warning_of_costs_is_of_the_samples_that_an_epoch_has(tmp_path, server, share):
    """A dataset of every fourth sample asks for a fourth of the requests."""
    with remote(server, tmp_path, **FEW, fetch="auto") as dataset:
        chosen = dataset.select(lambda key: int(key) % share == 0, by="key")
        assert len(chosen) == SHARDS * EACH // share
        order = sk.RandomSampler(seed=1).order(chosen)
        chosen.expect(order.chunks(4))
        with pytest.warns(UserWarning, match="reading single samples takes about") as caught:
            chosen.__getitems__(order[:4])
    (told,) = [str(warning.message) for warning in caught if "single samples" in str(warning.message)]
    requests = int(told.partition("takes about ")[2].partition(" ")[0])
    # Four samples at a time, some of one shard side by side.
    assert len(chosen) / 4 <= requests <= len(chosen)


@pytest.mark.filterwarnings("ignore:.*reading single samples takes")
def test_from_shards_to_samples_and_back_nothing_stays_open(tmp_path, server):
    rng = np.random.default_rng(1)
    everywhere = [rng.choice(SHARDS * EACH, 16, replace=False) for _ in range(6)]
    with remote(server, tmp_path, **FEW) as dataset:
        before = readers_ahead()
        for _ in range(3):
            dataset.expect(iter(in_order()))
            reading = dataset._source._processes.here().held
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
    wait_until(lambda: readers_ahead() <= before)
