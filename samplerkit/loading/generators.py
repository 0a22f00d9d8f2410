"""The process-wide random generators of torch, numpy and Python, seeded for each draw."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from samplerkit.order.draws import Draw


def seed_generators(draw: Draw, role: str = "seeds") -> None:
    """Seeds torch's generator of the CPU, numpy's legacy state and Python's for a draw.

    Args:
        draw: for which.
        role: what for: its sample, or something else.
    """
    first, second, third = struct.unpack("<QQQ", draw.digest(role, 24))
    # Not `torch.manual_seed`: a hundred times as slow, and it would seed the model's devices as well.
    torch.default_generator.manual_seed(first)
    random.seed(second)
    np.random.seed(third % 2**32)  # noqa: NPY002  # the legacy state is what other people's code draws from


@contextmanager
def kept_generators() -> Iterator[None]:
    """Gives back the states that these generators had before: a training loop draws from them too."""
    before = torch.default_generator.get_state(), random.getstate(), np.random.get_state(legacy=False)  # noqa: NPY002
    try:
        yield
    finally:
        torch.default_generator.set_state(before[0])
        random.setstate(before[1])
        np.random.set_state(before[2])  # noqa: NPY002
