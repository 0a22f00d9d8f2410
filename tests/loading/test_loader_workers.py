"""The workers of a loader: what they draw, how they fail, and how they end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint

import samplerkit as sk
from tests.loading.numbers import Numbers, as_lists, ids_of, numbers_loader
from tests.loading.worker_kinds import THREADS, beside
from tests.own_seconds import OwnSeconds
from tests.programs import Program
from tests.waiting import alive, threads_of_loaders, wait_until


class Drawn(Numbers):
    """Sample i is what three random generators give in its process."""

    def __getitem__(self, index):
        return torch.rand(()).item(), np.random.random(), random.random()  # noqa: NPY002


class Broken(Numbers):
    """Sample 7 cannot be read."""

    def __getitem__(self, index):
        if index == 7:
            raise OSError("sample 7 is damaged")
        return index


def test_workers_draw_differently_and_alike_after_a_restart():
    def drawn(rank):
        loader = sk.Loader(
            Drawn(8),
            sk.RandomSampler(seed=1),
            batch_size=2,
            num_workers=2,
            world=sk.World(2, rank),
            collate_fn=as_lists,
        )
        with loader:
            return [list(loader) for _ in range(2)]

    once, again, other = drawn(0), drawn(0), drawn(1)
    assert once == again
    values = [value for epochs in (once, other) for epoch in epochs for batch in epoch for value in batch]
    assert len({v for value in values for v in value}) == 3 * len(values)


@pytest.mark.parametrize("workers", [0, 2, "2 threads"])
def test_an_error_of_the_dataset_is_raised_at_its_position(workers):
    loader = sk.Loader(Broken(20), sk.SequentialSampler(), batch_size=3, **beside(workers))
    received = []
    with loader, pytest.raises(OSError, match="sample 7 is damaged"):
        for batch in loader:
            received += batch.tolist()
    assert received == [0, 1, 2, 3, 4, 5]
    assert loader.state_dict()["position"] == 6


@pytest.mark.parametrize("workers", [2, "2 threads"])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("end", ["close", "break"])
def test_closing_and_breaking_end_the_workers(workers, persistent, end):
    loader = numbers_loader(60, persistent_workers=persistent, **beside(workers))
    batches = iter(loader)
    next(batches)
    pids, threads = loader.worker_pids, threads_of_loaders()
    assert (len(pids), len(threads)) == ((2, 0) if workers == 2 else (0, 2))
    if end == "break":
        del batches
        assert (threads_of_loaders(), alive(pids)) == ((threads, pids) if persistent else ([], []))
        if persistent:
            assert len(ids_of(loader)) == 20  # the same workers, from the beginning
            assert (threads_of_loaders(), loader.worker_pids) == (threads, pids)
    if end == "close" or persistent:
        loader.close()
    assert (threads_of_loaders(), alive(pids)) == ([], [])
    if end == "close":
        with pytest.raises(sk.StateError, match="close"):
            next(batches)
    assert len(ids_of(loader)) == 20
    loader.close()


class Stuck(Numbers):
    """From the fifth on, samples come when they are let go."""

    def __init__(self, size):
        super().__init__(size)
        self.let_go = threading.Event()

    def __getitem__(self, index):
        if index >= 4:
            self.let_go.wait()
        return index


def stuck_loader(**options):
    return sk.Loader(Stuck(20), sk.SequentialSampler(), batch_size=2, **options)


@pytest.mark.parametrize(
    "options",
    [{"num_workers": 2}, THREADS, {**THREADS, "device": "cpu"}, {**THREADS, "persistent_workers": True}],
)
def test_a_break_waits_no_longer_than_two_seconds_for_a_sample_that_hangs(options):
    loader = stuck_loader(**options)
    for _ in loader:
        pids = loader.worker_pids
        with OwnSeconds() as own:
            loader.close()
        break
    assert own.seconds < 2
    assert alive(pids) == []
    loader.dataset.let_go.set()
    wait_until(lambda: not threads_of_loaders())
    assert [i for batch in loader for i in batch.tolist()] == list(range(20))
    loader.close()


@pytest.mark.parametrize(("workers", "seconds"), [(2, 5), ("2 threads", 0.2)])
def test_a_batch_that_does_not_come_in_time_is_a_typed_error(no_longer_than, workers, seconds):
    no_longer_than(60)
    loader, received = stuck_loader(timeout=seconds, **beside(workers)), []
    with pytest.raises(sk.WorkerError, match=f"timeout: is over, .* got {seconds}"):
        for batch in loader:
            received += batch.tolist()
    assert received == [0, 1, 2, 3]
    loader.dataset.let_go.set()


INTERRUPTED = """
import json, sys, time, samplerkit as sk
options = json.loads(sys.argv[1])
loader = sk.Loader(range(10_000), sk.SequentialSampler(), batch_size=2, **options)
try:
    for batch in loader:
        print("step", flush=True)
        time.sleep(0.01)
except KeyboardInterrupt:
    print(json.dumps([loader.step, loader.state_dict()]), flush=True)
"""


@pytest.mark.parametrize("workers", [2, "2 threads"])
def test_ctrl_c_ends_the_loop_within_two_seconds_and_the_state_is_valid(workers):
    with Program(["-c", INTERRUPTED, json.dumps(beside(workers))], stdout=subprocess.PIPE) as process:
        for _ in range(5):
            process.stdout.readline()
        with OwnSeconds([process.pid]) as own:
            os.killpg(process.pid, signal.SIGINT)
            printed = process.stdout.read().splitlines()
        assert process.wait(timeout=60) == 0
    step, state = json.loads(printed[-1])
    assert own.seconds < 2
    assert state["position"] == 2 * step
    resumed = sk.Loader(range(10_000), sk.SequentialSampler(), batch_size=2)
    resumed.load_state_dict(state)
    assert next(iter(resumed)).tolist() == [2 * step, 2 * step + 1]
