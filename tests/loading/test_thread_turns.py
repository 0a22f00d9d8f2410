"""How many threads make batches at once: as many as is quicker, and never for ever the other."""

from __future__ import annotations

import threading
import time

import pytest

import samplerkit as sk
from samplerkit.loading.workers import loader_workers
from samplerkit.loading.workers.thread_pool import (
    HANDOVER,
    LONG_BATCH,
    LONGEST_PAUSE,
    TRIAL_BATCHES,
    ThreadSchedule,
)
from tests.loading.test_worker_threads import Meeting
from tests.loading.worker_kinds import GivenSeconds, beside


def warming_up(threads):
    """How many batches are not measured at first."""
    return ThreadSchedule(threads)._to_skip


def lived(turns, alone, together, batches):
    """Makes batches that take so many seconds alone, or together; tells how many were made alone."""
    made_alone = 0
    for _ in range(batches):
        made_alone += turns.at_once == 1
        turns.count_batch(turns.trial, alone if turns.at_once == 1 else together)
    return made_alone


@pytest.mark.parametrize("threads", [2, 4, 16])
@pytest.mark.parametrize("times_alone", [0.2, 0.5, 1, 1.2, 3, 16])
def test_the_quicker_way_is_found_and_hardly_left_again(threads, times_alone):
    turns, together = ThreadSchedule(threads), 0.01
    made_alone = lived(turns, times_alone * together / threads, together, 20_000)
    if times_alone <= 1:  # where both are alike, one thread is enough
        assert turns.at_once == 1
        assert made_alone > 19_700
    else:
        assert turns.at_once == threads
        assert made_alone < 300


def test_what_changes_in_mid_run_is_found_too():
    turns = ThreadSchedule(2)
    lived(turns, 0.002, 0.01, 5_000)
    assert turns.at_once == 1
    lived(turns, 0.01, 0.01, 2 * LONGEST_PAUSE)
    assert turns.at_once == 2
    lived(turns, 0.002, 0.01, 2 * LONGEST_PAUSE)
    assert turns.at_once == 1


def test_nothing_is_tried_where_a_batch_takes_long_or_one_thread_is_all_there_is():
    assert lived(ThreadSchedule(4), 0.001, 1.1 * LONG_BATCH, 3_000) == 0
    turns = ThreadSchedule(1)
    lived(turns, 0.01, 0.01, 3_000)
    assert turns.trial == 0


def test_batches_that_were_begun_before_a_change_say_nothing_of_it():
    turns = ThreadSchedule(2)
    before = turns.trial
    lived(turns, 0.002, 0.01, warming_up(2) + TRIAL_BATCHES)
    assert turns.at_once == 1
    assert turns.trial != before
    for _ in range(100):
        turns.count_batch(before, 9.0)
    assert lived(turns, 0.002, 0.01, TRIAL_BATCHES) == TRIAL_BATCHES
    assert turns.at_once == 1


def stepped(turns, seconds):
    for _ in range(TRIAL_BATCHES):
        turns.count_step(seconds)


def test_the_loop_makes_small_batches_itself_while_it_has_nothing_else_to_do():
    turns = ThreadSchedule(4)
    stepped(turns, 0.0)
    assert not turns.loop_makes, "no thread was seen to make a batch alone: it may wait for another one"
    lived(turns, 0.002, 0.01, warming_up(4) + 2 * TRIAL_BATCHES)
    assert turns.loop_makes
    stepped(turns, 2 * HANDOVER)
    assert not turns.loop_makes
    stepped(turns, HANDOVER / 2)
    assert turns.loop_makes
    turns.give_up()
    assert not turns.loop_makes
    assert turns.at_once == 4


class Crowd:
    """Knows how often two read at once."""

    def __init__(self, size):
        self.size, self.reading, self.crowds = size, 0, []
        self.lock = threading.Lock()

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        with self.lock:
            self.reading += 1
            is_crowd = self.reading > 1
        time.sleep(0.001)
        with self.lock:
            self.reading -= 1
        self.crowds.append(is_crowd)
        return index


def test_threads_that_hinder_one_another_take_turns_and_the_next_epoch_knows_it(monkeypatch):
    monkeypatch.setattr(loader_workers, "ThreadSchedule", GivenSeconds)
    dataset, sampler = Crowd(60), sk.RandomSampler(seed=3)
    with sk.Loader(dataset, sampler, batch_size=1, collate_fn=list, **beside("2 threads")) as loader:
        for epoch in range(2):
            assert [index for [index] in loader] == list(sampler.order(60, epoch))
    first, second = dataset.crowds[:60], dataset.crowds[60:]
    assert sum(first) <= warming_up(2) + TRIAL_BATCHES + 1
    assert sum(second) <= TRIAL_BATCHES + 3  # a look whether it still is so


def test_samples_that_wait_for_other_threads_are_waited_for_only_shortly():
    sampler = sk.RandomSampler(seed=3)
    with sk.Loader(Meeting(400), sampler, batch_size=2, collate_fn=list, **beside("2 threads")) as loader:
        assert [index for batch in loader for index, _ in batch] == list(sampler.order(400))
