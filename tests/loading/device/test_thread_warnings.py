"""What is measured of loading in a thread, and when it is said."""

from __future__ import annotations

import ctypes
import itertools
import os
import random
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from samplerkit.loading.device import thread_warnings
from samplerkit.loading.device.loader import DeviceLoader
from samplerkit.loading.device.thread_warnings import JUDGED_LOADS, LoadingThreadWarning, watched_loads

HAS_GIL = getattr(sys, "_is_gil_enabled", lambda: True)()
with_gil = pytest.mark.skipif(not HAS_GIL, reason="no thread takes from others what all have at once")


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.setattr(thread_warnings, "_SAID", set())


class Made(torch.utils.data.Dataset):
    """Sample i is whatever a function makes of it."""

    def __init__(self, make, size=30):
        self.make, self.size = make, size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        self.make()
        return index


def said(make, step=lambda: None, size=30, epochs=2, **options):
    """What is said of some epochs."""
    loader = DeviceLoader(torch.utils.data.DataLoader(Made(make, size), batch_size=1, **options), "cpu")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(epochs):
            for _ in loader:
                step()
    found = [w for w in caught if issubclass(w.category, LoadingThreadWarning)]
    assert all(w.filename.endswith("device/loader.py") or w.filename == __file__ for w in found)
    return [str(w.message) for w in found]


def in_python(seconds=0.015):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(100))


def watched(loads, clock=time.thread_time):
    """What is found of loads that this thread runs, with a clock of what it computed in each."""
    watch = watched_loads()
    for load in loads:
        next(watch)
        before = clock()
        load()
        if found := watch.send(clock() - before):
            return found
    return ()


ROWS = torch.rand(600, 600)


def in_torch():
    until = time.thread_time() + 0.015
    while time.thread_time() < until:
        ROWS @ ROWS


def standing(seconds=0.008):
    """Stands still and has the interpreter, as a thread does that loses its processor there."""
    ctypes.PyDLL(None).usleep(int(1e6 * seconds))


@with_gil
def test_a_load_in_pure_python_is_warned_of_once():
    (message,) = said(in_python, lambda: time.sleep(0.002))
    assert "takes the interpreter" in message
    assert "num_workers" in message


@pytest.mark.skipif(HAS_GIL, reason="loads in Python take it from the loop")
def test_without_a_gil_a_load_in_pure_python_takes_nothing_from_the_loop():
    assert said(in_python, lambda: time.sleep(0.002)) == []


@pytest.fixture
def crowd():
    """Lets four processes that never rest share one processor with this one."""
    if not Path("/proc/thread-self/schedstat").exists():
        pytest.skip("this system does not report how long a thread waits for a processor")
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(processors)})  # of this thread, and of what it begins
    others = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(4)]
    yield
    for other in others:
        other.kill()
        other.wait()
    os.sched_setaffinity(0, processors)


@with_gil
@pytest.mark.usefixtures("crowd")
def test_what_is_said_of_a_load_does_not_depend_on_how_busy_the_machine_is():
    assert said(lambda: time.sleep(0.005), size=14, epochs=1) == []
    (message,) = watched([lambda: in_python(0.008)] * 60)
    assert "takes the interpreter" in message


@with_gil
def test_a_load_in_pure_python_that_is_also_made_to_stand_is_warned_of():
    (message,) = watched([lambda: (in_python(0.008), standing())] * 100)
    assert "takes the interpreter" in message


@with_gil
def test_a_thread_that_only_later_computes_much_is_warned_of_too():
    quiet = [lambda: time.sleep(0.002)] * (JUDGED_LOADS + 1)
    (message,) = watched([*quiet, *[lambda: in_python(0.02)] * 60])
    assert "takes the interpreter" in message
    assert watched(quiet) == ()


def test_a_thread_that_computes_little_is_not_looked_at():
    loads = [*[lambda: None] * (JUDGED_LOADS + 1), *[lambda: in_python(0.02)] * 13]
    assert watched(loads, clock=lambda: 0.0) == (), "its clock says that nothing was computed"


def always_busy():
    """A clock that is 20 ms later whenever it is asked, whatever was computed."""
    return itertools.count(step=0.02).__next__


def test_a_thread_that_waits_and_has_the_interpreter_is_not_taken_for_one_that_computes():
    loads = [lambda: (standing(0.01), time.sleep(0.002))] * 30
    assert watched(loads, clock=always_busy()) == ()


def test_one_long_wait_for_the_interpreter_proves_nothing():
    loads = [lambda: time.sleep(0.003)] * 60
    # One call to C, in which nobody else gets the interpreter.
    loads[JUDGED_LOADS + 3] = lambda: (sum(range(5_000_000)), time.sleep(0.003))
    assert watched(loads, clock=always_busy()) == ()


def draws():
    time.sleep(0.01)  # the second load has begun
    torch.rand(3)
    random.random()
    np.random.rand()  # noqa: NPY002  # what user code does


def waits():
    time.sleep(0.002)


FREE = {
    "a load that waits": (lambda: time.sleep(0.005), waits, {}),
    "a load that computes in torch": (in_torch, waits, {}),
    "pure Python in a worker": (in_python, waits, {"num_workers": 1}),
    "torch's own shuffle under a loop that draws": (
        lambda: time.sleep(0.05),
        draws,
        {"shuffle": True, "size": 4},
    ),
    "a loop that draws": (lambda: time.sleep(0.001), draws, {}),
    "a sampler that draws its epoch": (
        lambda: None,
        waits,
        {"sampler": torch.utils.data.WeightedRandomSampler([1.0] * 30, 30)},
    ),
    "a generator of one's own": (lambda: random.Random(3).random(), waits, {}),
    "random numbers in a worker": (random.random, waits, {"num_workers": 1}),
}


@pytest.mark.parametrize(("make", "step", "options"), FREE.values(), ids=FREE.keys())
def test_there_is_no_false_alarm(make, step, options):
    assert said(make, step, **options) == []


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (lambda: torch.rand(2), "torch"),
        (np.random.rand, "numpy"),  # what user code does
        (random.random, "random"),
    ],
)
def test_drawing_from_a_process_wide_generator_in_the_thread_is_warned_of_once(draw, name):
    (message,) = said(draw, shuffle=True)
    assert f"random generator of {name}," in message
