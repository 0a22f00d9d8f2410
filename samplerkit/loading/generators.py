"""Random generators: one for a sample; those of the process, seeded, and restored."""

import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

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
        ArgumentTypeError: an argument is not an integer.
        ArgumentValueError: one is negative or too large.

    Example:
        >>> sample_rng(7, 0, 123).integers(100) == sample_rng(7, 0, 123).integers(100)
        np.True_
    """
    sample = arguments.below("sample", sample, 2**64, "must be in [0, 2^64)")
    return Draw(arguments.seed("seed", seed), arguments.epoch(epoch), sample).rng("sample")


def seed_worker(seed: int, epoch: int, rank: int, worker: int) -> None:
    """Seeds the random state of this worker process: that of torch, numpy and Python.

    Each (seed, epoch, rank, worker) gets its own state, so that no two workers augment in the same way.
    """
    seed_generators(Draw(seed, epoch, rank), f"worker {worker}")
    torch.manual_seed(torch.initial_seed())  # also the generators of devices


def seed_generators(draw: Draw, role: str = "seeds") -> None:
    """Seeds torch's generator of the CPU, numpy's legacy state and Python's for a draw.

    Args:
        draw: the draw.
        role: its use: its sample, or something else.
    """
    of_torch, of_python, of_numpy = struct.unpack("<QQQ", draw.digest(role, 24))
    # Not `torch.manual_seed`: a hundred times as slow, and it would seed the model's devices as well.
    torch.default_generator.manual_seed(of_torch)
    random.seed(of_python)
    np.random.seed(of_numpy % 2**32)  # noqa: NPY002  # the legacy state is what other people's code draws from


@contextmanager
def preserved_generators() -> Iterator[None]:
    """Restores the states that the process-wide generators had: torch's of the CPU, numpy's and Python's.

    A training loop draws from them too.
    """
    of_torch, of_python = torch.default_generator.get_state(), random.getstate()
    of_numpy = np.random.get_state(legacy=False)  # noqa: NPY002  # the state that user code draws from
    try:
        yield
    finally:
        torch.default_generator.set_state(of_torch)
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002
