"""What comes is known still when several threads begin its batches out of turn."""

from __future__ import annotations

import threading

import numpy as np

import samplerkit as sk
from samplerkit.storage.ahead.uses import MOST_MISTAKES, MOST_OVERTAKEN, NEVER, Uses
from tests.loading.worker_kinds import beside

BATCHES = [np.arange(10 * file, 10 * file + 4) for file in range(60)]


def in_a_thread(call):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_a_batch_that_is_begun_before_its_turn_takes_nothing_from_the_one_before():
    uses = Uses(iter(BATCHES), lambda ids: ids // 10, 8)
    in_a_thread(lambda: uses.begin(BATCHES[1]))
    assert [uses.next_use(file) for file in (0, 1, 2)] == [0, 1, 2]
    uses.begin(BATCHES[0])
    uses.end()
    assert [uses.next_use(file) for file in (0, 1, 2)] == [NEVER, 1, 2]
    for batch in BATCHES[2:20]:
        uses.begin(batch)
        uses.end()
    assert uses.is_right
    assert uses.next_use(20) == 20


def test_one_that_many_have_overtaken_is_taken_not_to_come():
    uses = Uses(iter(BATCHES), lambda ids: ids // 10, 60)
    for batch in BATCHES[1 : MOST_OVERTAKEN + 2]:
        uses.begin(batch)
        uses.end()
    assert uses.is_right
    assert uses.next_use(0) == NEVER
    for _ in range(MOST_MISTAKES):
        uses.begin(BATCHES[0])
    assert not uses.is_right


def test_threads_with_room_for_few_files_read_each_file_once_an_epoch(tmp_path):
    for number in range(20):
        np.savez(tmp_path / f"{number:02}.npz", x=np.arange(10) + number * 10)
    dataset = sk.FileDataset(str(tmp_path / "*.npz"), "npz", max_files=5, progress=False)
    sampler = sk.RandomSampler(shuffle="partial", partial_size=15, seed=7)
    with dataset, sk.Loader(dataset, sampler, batch_size=4, **beside("3 threads")) as loader:
        for epoch in (1, 2, 3):
            read = [index for batch in loader for index in batch["x"].tolist()]
            assert read == sampler.order(dataset, epoch - 1)[:].tolist()
        assert loader.stats.dataset.files_read <= 3 * 20 + 3  # what an epoch leaves in memory may go
        assert loader.stats.dataset.peak_files <= 5
