"""When a load in a thread causes a warning: it draws from a random generator of the process."""

import random
import time
import warnings

import numpy as np
import pytest
import torch

from samplerkit.loading import generators
from samplerkit.loading.device.loader import DeviceLoader
from samplerkit.loading.generators import LoadingThreadWarning
from tests.numbers import Made


@pytest.fixture(autouse=True)
def fresh_warnings():
    generators.warn_once.cache_clear()


def warnings_of(make, step=lambda: None, size=30, epochs=2, **options):
    """The warnings of some epochs of samples, for each of which something is done."""

    def read(index):
        make()
        return index

    batches = torch.utils.data.DataLoader(Made(size, read), batch_size=1, **options)
    loader = DeviceLoader(batches, "cpu")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(epochs):
            for _ in loader:
                step()
    relevant = [w for w in caught if issubclass(w.category, LoadingThreadWarning)]
    assert all(w.filename.endswith("device/wrapped_loader.py") or w.filename == __file__ for w in relevant)
    return [str(w.message) for w in relevant]


def draws():
    time.sleep(0.01)  # the second load has begun
    torch.rand(3)
    random.random()
    np.random.rand()  # noqa: NPY002  # what user code does


def waits():
    time.sleep(0.002)


FREE = {
    "a load that waits": (lambda: time.sleep(0.005), waits, {}),
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
    assert warnings_of(make, step, **options) == []


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (lambda: torch.rand(2), "torch"),
        (np.random.rand, "numpy"),  # what user code does
        (random.random, "random"),
    ],
)
def test_drawing_from_a_process_wide_generator_in_the_thread_warns_once(draw, name):
    (message,) = warnings_of(draw, shuffle=True)
    assert f"random generator of {name}," in message
