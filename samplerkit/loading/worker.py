"""Randomness in workers, and workers that never outlive the process they work for."""

from __future__ import annotations

import hashlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.util
import os
import random
import shutil
import signal
import struct
import tempfile
import threading
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from samplerkit.errors import ArgumentValueError, WorkerError
from samplerkit.order import arguments

_PERSON = b"samplerkit"

_FOLDER_OF = "samplerkit_tempdir_of"

_PREFIX = "pymp-"
_LONGEST_FOLDER = 107 - len("/listener-01234567")
"""Bytes of a folder in which the sockets of `multiprocessing` can be: the path of one has 107 at most."""

_LONGEST_BASE = _LONGEST_FOLDER - len(f"/{_PREFIX}01234567")

_SHORT_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  # each process makes a folder of its own there
"""Where such a folder is made when that for temporary files has too long a name."""


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
    content = struct.pack("<QQQ", arguments.seed(seed), arguments.epoch(epoch), sample)
    words = hashlib.blake2b(content, digest_size=16, salt=b"sample", person=_PERSON).digest()
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


def prepare_for_workers() -> None:
    """Makes the folder for the sockets of this process and its workers, which share one that serves.

    A worker's own would stay behind when the worker is killed. One that a process has from the one that
    started it is not its own: what is left of the job goes on using it.

    Raises:
        WorkerError: the temporary folder has too long a name for sockets, and there is no other one.
    """
    config = _process_config()
    present = config.get("tempdir")
    if present is None or len(os.fsencode(present)) > _LONGEST_FOLDER:
        config["tempdir"] = _made_for_sockets()
        config[_FOLDER_OF] = os.getpid()
        multiprocessing.util.Finalize(None, _remove_folder, (config["tempdir"],), exitpriority=-100)


def _made_for_sockets() -> str:
    # Workers that meet a longer name end in the middle of a batch, and the loop waits for them.
    wanted = tempfile.gettempdir()
    for base in (wanted, *_SHORT_FOLDERS):
        if len(os.fsencode(base)) <= _LONGEST_BASE:
            with suppress(OSError):
                return tempfile.mkdtemp(prefix=_PREFIX, dir=base)
    problem = f"is no folder for the sockets of workers, whose path may have {_LONGEST_BASE} bytes"
    raise WorkerError("TMPDIR", problem, wanted, mend="set TMPDIR to a shorter one that can be written to")


def _remove_folder(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _process_config()["tempdir"] = None


def _process_config() -> dict[str, Any]:
    """What this process hands on to those that it starts by `multiprocessing`."""
    config: dict[str, Any] = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    return config


def end_with_parent() -> None:
    """Ends this worker process as soon as the process that started it is gone, however that ended.

    torch's own check takes up to five seconds. And nothing else ends it: where a queue sends SIGTERM to all
    processes of a job, as Slurm does, the workers go on, so that the loop can finish its step and save.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def leave_no_folder() -> None:
        config = _process_config()
        is_gone = bool(multiprocessing.connection.wait([parent.sentinel], 0))
        if is_gone and config.get(_FOLDER_OF) == parent.pid:
            shutil.rmtree(config["tempdir"], ignore_errors=True)

    def wait() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        leave_no_folder()
        os._exit(1)

    # torch's own loop may end the process while the thread is in the middle of it.
    multiprocessing.util.Finalize(None, leave_no_folder, exitpriority=-100)

    def end_if_parent_asks() -> None:
        while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent.pid:
            pass
        os._exit(128 + signal.SIGTERM)

    if hasattr(signal, "sigwaitinfo"):
        # First of all: a thread that is there before would still be ended by the signal.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=end_if_parent_asks, name="samplerkit-sigterm", daemon=True).start()
    threading.Thread(target=wait, name="samplerkit-parent", daemon=True).start()
