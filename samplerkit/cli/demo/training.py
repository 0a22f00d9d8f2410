"""What each rank of the demo does: it trains, and writes what its training loop received."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed

# Before the process group exists: DDP imports this module, and ten default arguments in it take hold of the
# group if there is one. Then destroying it does not end gloo's threads, and one that lets go of a tensor
# while Python ends aborts the process (one run in ten or so).
import torch.distributed.nn.functional
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from samplerkit.cli.demo.data import (
    CHECKPOINT,
    EPOCHS,
    GLOBAL_BATCH,
    MODES,
    RESUMED_EPOCHS,
    SAVED_EVERY,
    config_path,
    ledger_path,
)
from samplerkit.config.config import load_config
from samplerkit.errors import ConfigError
from samplerkit.order.modes import Shuffle
from samplerkit.storage.atomic import atomic
from samplerkit.storage.files.dataset import FileDataset

LEARNING_RATE = 0.005

ReportEvent = Callable[[dict[str, Any]], None]


class Trainee:
    """The small network that reads digits of 8 by 8 pixels, with its optimizer and its loader.

    Args:
        folder: where `data` and `configs` are.
        device: where the network is.
        mode: the shuffle mode, by which the config is found.
        seed: of the order and of the network.
        arguments: of the loader, in place of the config's.
    """

    def __init__(
        self, folder: Path, device: torch.device, mode: Shuffle, seed: int, **arguments: Any
    ) -> None:
        torch.manual_seed(seed)
        self._folder, self._device = folder, device
        layers = [nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        layers += [nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)]
        self._network = nn.Sequential(*layers).to(device)
        self._model = DistributedDataParallel(self._network)
        self._optimizer = torch.optim.Adam(self._model.parameters())
        path = config_path(folder / "configs", mode)
        written = load_config(path).to_dict()
        written["sampler"]["seed"] = seed
        written["loader"] |= arguments
        config = load_config(written)
        if not isinstance(config.dataset, FileDataset):
            raise ConfigError("dataset", "must be of kind files", config.dataset, hint=f"see {path.name}")
        self._dataset = config.dataset
        self.loader: Any = config.make_loader(device=device)
        self._saved: dict[str, Any] = {
            "network": self._network,
            "optimizer": self._optimizer,
            "loader": self.loader,
        }

    def steps(self, ledger: Path, epochs: int) -> Iterator[None]:
        """Trains from where the loader is; yields after each step, which is a line of the ledger."""
        with self.loader, ledger.open("w", encoding="utf-8") as file:
            while self.loader.epoch < epochs:
                before = self._dataset.stats.files_read
                for batch in self.loader:  # on the device already, while the step before trained
                    epoch, step = self.loader.epoch, self.loader.step - 1
                    line = {"epoch": epoch, "ids": batch["ids"].tolist()}
                    line["pads"] = self.loader.pads(step).tolist()
                    line["files_opened"] = self._dataset.stats.files_read - before
                    before = self._dataset.stats.files_read
                    print(json.dumps(line), file=file, flush=True)
                    self._learn(batch, LEARNING_RATE * (1 - (epoch + step / len(self.loader)) / epochs))
                    yield

    def _learn(self, batch: dict[str, torch.Tensor], rate: float) -> None:
        """Does one step; pixels are the numbers 0 to 16."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.zero_grad()
        answers = self._model(batch["pixels"].float() / 16)
        nn.functional.cross_entropy(answers, batch["labels"]).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    @torch.no_grad()
    def accuracy(self) -> float:
        """Gives the share of right answers on the test set, in percent."""
        with np.load(self._folder / "data" / "test.npz", allow_pickle=False) as file:
            pixels, labels = (torch.from_numpy(file[name]) for name in ("pixels", "labels"))
        answers = self._network((pixels.float() / 16).to(self._device)).argmax(dim=1).cpu()
        return 100 * float((answers == labels).float().mean())

    def save(self, step: int) -> None:
        """Replaces the checkpoint at once, so that a crash leaves the old one or the new one."""
        if torch.distributed.get_rank() == 0:
            states = {name: part.state_dict() for name, part in self._saved.items()}
            with atomic(self._folder / CHECKPOINT) as file:
                torch.save({**states, "step": step}, file)
        torch.distributed.barrier()

    def load(self) -> None:
        """Resumes from the checkpoint, if there is one."""
        if (self._folder / CHECKPOINT).exists():
            state = torch.load(self._folder / CHECKPOINT, weights_only=True, map_location=self._device)
            for name, part in self._saved.items():
                part.load_state_dict(state[name])


def train_modes(report: ReportEvent, device: torch.device, folder: Path, ledgers: Path, seeds: int) -> None:
    """Trains in the order of each shuffle mode, with each seed."""
    for mode, seed in product(MODES, range(seeds)):
        trainee = Trainee(folder, device, mode, seed)
        ledger = ledger_path(ledgers, f"{mode.value}-{seed}", torch.distributed.get_rank())
        for _ in trainee.steps(ledger, EPOCHS):
            pass
        torch.distributed.barrier()  # all have written
        report({"mode": mode.value, "accuracy": trainee.accuracy(), "device": str(device)})


def train_and_save(report: ReportEvent, device: torch.device, folder: Path, run: str, killed_in: int) -> None:
    """Trains from the last checkpoint on; in step `killed_in`, or never if 0, the last rank kills itself."""
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    trainee = Trainee(folder, device, Shuffle.PARTIAL, 7, batch_size=GLOBAL_BATCH // ranks)
    trainee.load()
    for step, _ in enumerate(trainee.steps(ledger_path(folder, run, rank), RESUMED_EPOCHS), start=1):
        if step % SAVED_EVERY == 0:
            trainee.save(step)
        if step == killed_in and rank == ranks - 1:
            os.kill(os.getpid(), signal.SIGKILL)
    report({"accuracy": trainee.accuracy()})
