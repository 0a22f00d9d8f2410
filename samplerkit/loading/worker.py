"""Randomness in workers, and workers that never outlive the process they work for."""

from __future__ import annotations

import hashlib
import multiprocessing
import multiprocessing.connection
import os
import random
import struct
import threading

import numpy as np
import torch

_PERSON = b"samplerkit"


def sample_rng(seed: int, epoch: int, sample: int) -> np.random.Generator:
    """Gives a random generator for the augmentation of one sample in one epoch.

    It depends on nothing else, so that a sample is augmented alike after a resume, on another rank, and in
    another worker.

    Args:
        seed: any integer in [0, 2^64).
        epoch: the epoch, from 0.
        sample: the id of the sample.

    Returns:
        A numpy generator (Philox).

    Example:
        >>> sample_rng(7, 0, 123).integers(100) == sample_rng(7, 0, 123).integers(100)
        np.True_
    """
    words = hashlib.blake2b(
        struct.pack("<QQQ", seed, epoch, sample), digest_size=16, salt=b"sample", person=_PERSON
    ).digest()
    return np.random.Generator(np.random.Philox(key=np.frombuffer(words, dtype="<u8")))


def seed_worker(seed: int, epoch: int, rank: int, worker: int) -> None:
    """Seeds the random state of this worker process: that of torch, numpy and Python.

    Each (seed, epoch, rank, worker) gets a state of its own, so that no two workers augment alike.
    """
    digest = hashlib.blake2b(
        struct.pack("<QQQQ", seed, epoch, rank, worker), digest_size=24, salt=b"worker", person=_PERSON
    ).digest()
    first, second, third = struct.unpack("<QQQ", digest)
    torch.manual_seed(first)
    random.seed(second)
    np.random.seed(third % 2**32)  # noqa: NPY002  # the legacy state is what other people's code draws from


def end_with_parent() -> None:
    """Ends this worker process as soon as the process that started it is gone, however that ended.

    torch's own check takes up to five seconds.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=wait, name="samplerkit-parent", daemon=True).start()
