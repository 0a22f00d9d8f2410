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

from samplerkit.cli.demo.configs import config_path
from samplerkit.cli.demo.events import EpochCount, Training, epoch_done, tell
from samplerkit.cli.demo.gather import gather
from samplerkit.config.config import load_config
from samplerkit.errors import ConfigError
from samplerkit.loading.loader import Loader
from samplerkit.order.shuffle import Shuffle
from samplerkit.storage.files.dataset import FileDataset

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
    opened_before = 0
    torch.manual_seed(seed)
    network = digit_network().to(job.device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    steps = EPOCHS * len(loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    digest, epochs = blake2b(digest_size=8), []
    for _ in range(EPOCHS):
        received = []
        for batch in loader:  # on the device already, while the step before trained
            received.append(batch["ids"].cpu().numpy())
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(scaled(batch["pixels"])), batch["labels"])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        opened = dataset.stats.files_read
        epochs.append(_count(np.concatenate(received), opened - opened_before, dataset, job.device, digest))
        opened_before = opened
        if job.rank == 0:
            tell(epoch_done(mode.value))
    accuracy = accuracy_of(network, job) if job.rank == 0 else 0.0
    return Training(mode.value, seed, accuracy, digest.hexdigest(), tuple(epochs), str(job.device))


def _loaded(job: Job, mode: Shuffle, seed: int) -> tuple[FileDataset, Loader]:
    path = config_path(job.folder / "configs", mode)
    written = load_config(path).to_dict()
    written["sampler"]["seed"] = seed
    config = load_config(written)
    if not isinstance(config.dataset, FileDataset):
        raise ConfigError("dataset", "must be of kind files", config.dataset, mend=f"see {path.name}")
    return config.dataset, config.make_loader(device=job.device)


def scaled(pixels: torch.Tensor) -> torch.Tensor:
    """Gives pixels in [0, 1], float32, of the numbers 0 to 16 in the files."""
    return pixels.float() / 16


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
    received: np.ndarray[Any, Any], files_opened: int, dataset: FileDataset, device: torch.device, digest: Any
) -> EpochCount:
    ids_of_ranks = gather(received, device)
    opened = gather(np.array([files_opened]), device)
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
        pixels = scaled(torch.from_numpy(file["pixels"]))
        labels = torch.from_numpy(file["labels"])
    answers = network(pixels.to(job.device)).argmax(dim=1).cpu()
    return 100 * float((answers == labels).float().mean())
