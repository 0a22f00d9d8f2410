"""One training of the demo, as each rank runs it."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from samplerkit.cli.demo.configs import config_path
from samplerkit.cli.demo.data import training_files
from samplerkit.cli.demo.dataset import NpzFiles
from samplerkit.cli.demo.events import EpochCount, Training, epoch_done, tell
from samplerkit.cli.demo.gather import gather
from samplerkit.config.config import load_config
from samplerkit.errors import ConfigError
from samplerkit.order.shuffle import Shuffle

EPOCHS = 10
"""Passes over the training part: few enough that a weak shuffle shows."""

LEARNING_RATE = 0.005
"""Falls to zero in a line over the training."""


@dataclass(frozen=True)
class Job:
    """What a rank needs to know.

    Args:
        folder: holds `data` and `configs`.
        rank: this process.
        device: where the network lives.
    """

    folder: Path
    rank: int
    device: torch.device


def train(job: Job, mode: Shuffle, seed: int) -> Training:
    """Trains a network in the order of a shuffle mode, and counts what the training loops received.

    Args:
        job: this rank of the job.
        mode: which config to load.
        seed: the seed of the order and of the network.

    Returns:
        What happened; only rank 0 knows the accuracy, the others say 0.
    """
    dataset, loader = _loaded(job, mode, seed)
    torch.manual_seed(seed)
    network = digit_network().to(job.device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    steps = EPOCHS * len(loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    digest, epochs = blake2b(digest_size=8), []
    for _ in range(EPOCHS):
        received = []
        dataset.files_opened = 0
        for pixels, labels, ids in loader:
            received.append(ids.numpy())
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(pixels.to(job.device)), labels.to(job.device))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        epochs.append(_count(np.concatenate(received), dataset, job.device, digest))
        if job.rank == 0:
            tell(epoch_done(mode.value))
    accuracy = accuracy_of(network, job) if job.rank == 0 else 0.0
    return Training(mode.value, seed, accuracy, digest.hexdigest(), tuple(epochs), str(job.device))


def _loaded(job: Job, mode: Shuffle, seed: int) -> tuple[NpzFiles, DataLoader[Any]]:
    written = load_config(config_path(job.folder / "configs", mode)).to_dict()
    written["sampler"]["seed"] = seed
    config = load_config(written)
    if config.dataset is None:
        raise ConfigError("dataset", "is missing", mend="say how many samples each file holds")
    dataset = NpzFiles(training_files(job.folder / "data"), config.dataset)
    return dataset, config.dataloader(dataset)


def digit_network() -> nn.Module:
    """Makes the small network that reads digits of 8 by 8 pixels."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def _count(
    received: np.ndarray[Any, Any], dataset: NpzFiles, device: torch.device, digest: Any
) -> EpochCount:
    ids_of_ranks = gather(received, device)
    opened = gather(np.array([dataset.files_opened]), device)
    for ids in ids_of_ranks:
        digest.update(ids.astype("<i8").tobytes())
    times_seen = np.bincount(np.concatenate(ids_of_ranks), minlength=len(dataset))
    seen, distinct = int(times_seen.sum()), int(np.count_nonzero(times_seen))
    return EpochCount(
        seen=seen,
        repeated=seen - distinct,
        missing=len(dataset) - distinct,
        files_opened=tuple(int(count[0]) for count in opened),
    )


@torch.no_grad()
def accuracy_of(network: nn.Module, job: Job) -> float:
    """Gives the share of right answers on the test set, in percent."""
    with np.load(job.folder / "data" / "test.npz", allow_pickle=False) as file:
        pixels = torch.from_numpy(file["pixels"]).float() / 16
        labels = torch.from_numpy(file["labels"])
    answers = network(pixels.to(job.device)).argmax(dim=1).cpu()
    return 100 * float((answers == labels).float().mean())
