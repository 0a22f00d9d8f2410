"""Random generators: one for a sample; those of the process, seeded, and who draws from them in a thread."""

from __future__ import annotations

import functools
import pickle
import random
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import torch

from samplerkit.errors import ArgumentValueError
from samplerkit.order import arguments
from samplerkit.order.draws import Draw


def sample_rng(seed: int, epoch: int, sample: int) -> np.random.Generator:
    """Returns a random generator for the augmentation of one sample in one epoch.

    It depends on nothing else, so that a sample is augmented in the same way after a resume, on another rank,
    and in another worker.

    Args:
        seed: any integer in [0, 2^64).
        epoch: the epoch, from 0.
        sample: the id of the sample.

    Returns:
        A numpy generator (Philox).

    Raises:
        ArgumentTypeError: an argument is no integer.
        ArgumentValueError: one is negative or too large.

    Example:
        >>> sample_rng(7, 0, 123).integers(100) == sample_rng(7, 0, 123).integers(100)
        np.True_
    """
    sample = arguments.integer("sample", sample)
    if not 0 <= sample < 2**64:
        raise ArgumentValueError("sample", "must be in [0, 2^64)", sample)
    return Draw(arguments.seed("seed", seed), arguments.epoch(epoch), sample).rng("sample")


def seed_worker(seed: int, epoch: int, rank: int, worker: int) -> None:
    """Seeds the random state of this worker process: that of torch, numpy and Python.

    Each (seed, epoch, rank, worker) gets its own state, so that no two workers augment in the same way.
    """
    torch.manual_seed(_seed_others(Draw(seed, epoch, rank).digest(f"worker {worker}", 24)))


def seed_generators(draw: Draw, role: str = "seeds") -> None:
    """Seeds torch's generator of the CPU, numpy's legacy state and Python's for a draw.

    Args:
        draw: the draw.
        role: its use: its sample, or something else.
    """
    # Not `torch.manual_seed`: a hundred times as slow, and it would seed the model's devices as well.
    torch.default_generator.manual_seed(_seed_others(draw.digest(role, 24)))


def _seed_others(digest: bytes) -> int:
    """Seeds Python's generator and numpy's, and returns the seed for torch's."""
    seed, second, third = struct.unpack("<QQQ", digest)
    random.seed(second)
    np.random.seed(third % 2**32)  # noqa: NPY002  # the legacy state is what other people's code draws from
    return int(seed)


def generator_states() -> dict[str, Any]:
    """Returns the states of the process-wide generators: torch's of the CPU, numpy's and Python's."""
    return {
        "torch": torch.default_generator.get_state(),
        "numpy": np.random.get_state(legacy=False),  # noqa: NPY002  # the state that user code draws from
        "random": random.getstate(),
    }


@contextmanager
def preserved_generators() -> Iterator[None]:
    """Restores the states that these generators had before: a training loop draws from them too."""
    before = generator_states()
    try:
        yield
    finally:
        torch.default_generator.set_state(before["torch"])
        random.setstate(before["random"])
        np.random.set_state(before["numpy"])  # noqa: NPY002


DRAWS_RANDOM: Final = (
    "loading draws from the process-wide random generator of {}, in a background thread: "
    "so that its numbers and those of your loop depend on timing; use num_workers >= 1, or a generator "
    "of your own, such as samplerkit.draw_rng()"
)


class LoadingThreadWarning(RuntimeWarning):
    """Loading in a thread makes training depend on timing."""


def watched_loads() -> Iterator[str]:
    """Checks the draws of the first two loads of a thread. It is advanced before and after each load.

    Yields:
        After a load the warning, if any; before a load nothing.
    """
    drawn: list[str] = []
    for number in range(2):
        before = generator_states()
        yield ""
        # In the first load the loop only waits, but a sampler may draw its whole epoch. In the second one the
        # loop may draw too. So draws in both are from the dataset.
        names = _drawn_from(before, allows_seed=number == 0)
        drawn = [name for name in names if number == 0 or name in drawn]
        yield DRAWS_RANDOM.format(", ".join(drawn)) if number and drawn else ""
    while True:
        yield ""


@functools.cache
def warn_once(message: str) -> None:
    """Warns once per process of each finding of `watched_loads`, where a loop asks for a batch."""
    warnings.warn(message, LoadingThreadWarning, stacklevel=3)


def _drawn_from(before: dict[str, Any], *, allows_seed: bool) -> list[str]:
    """The generators that were drawn from since."""
    after = generator_states()
    names = [name for name in ("numpy", "random") if pickle.dumps(before[name]) != pickle.dumps(after[name])]
    if not torch.equal(before["torch"], after["torch"]):
        # torch's own random sampler draws one seed at the start of an epoch, always at the same point.
        generator = torch.Generator()
        generator.set_state(before["torch"])
        torch.empty((), dtype=torch.int64).random_(generator=generator)
        if not (allows_seed and torch.equal(generator.get_state(), after["torch"])):
            names.insert(0, "torch")
    return names
