"""Nothing is left behind, and nothing grows."""

from __future__ import annotations

import gc
import os

import pytest
import torch
from torch.utils.data import DataLoader

from samplerkit.loading.device.loader import DeviceLoader
from tests.loading.device.kinds import loading_threads
from tests.waiting import wait_until


def descriptors():
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0  # noqa: PTH112, PTH208  # a count


@pytest.mark.parametrize("run_ahead", [False, True])
@pytest.mark.parametrize("make", [lambda: list(torch.arange(6).split(2)), lambda: DataLoader(range(6), 2)])
def test_nothing_grows_over_hundreds_of_epochs(make, run_ahead):
    loader = DeviceLoader(make(), "cpu", run_ahead=run_ahead)

    def epochs(count):
        for _ in range(count):
            assert sum(1 for _ in loader) == 3
        gc.collect()

    epochs(70)
    threads, files, grown = len(loading_threads()), descriptors(), []
    for _ in range(3):
        objects = len(gc.get_objects())
        epochs(150)
        grown.append(len(gc.get_objects()) - objects)
    assert len(loading_threads()) == threads
    # What an earlier test left in this process may be closed meanwhile, or open a file for a moment.
    wait_until(lambda: descriptors() <= files)
    # What every epoch leaves behind is an object at least, every time. Bytes would not do: tables of the
    # process double, and what replaces an object from before the tracing counts as new.
    assert min(grown) < 75
    loader.close()
