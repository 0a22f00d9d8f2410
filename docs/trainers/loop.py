"""What the examples with other loaders share: a network, a checkpoint every five steps, a ledger."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import torch
from digits import Ledger, accuracy, make_network
from torch import nn


class Loop:
    """Trains in one process, and saves what is needed to resume.

    Args:
        folder: receives the checkpoint and the ledger.

    Attributes:
        data: the saved state of the data; None at the start.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.network = make_network()
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=0.01)
        self.ledger = Ledger(folder, 0)
        self.steps, self.data = 0, None
        if (folder / "checkpoint.pt").exists():
            saved = torch.load(folder / "checkpoint.pt", weights_only=True)
            self.network.load_state_dict(saved["network"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.steps, self.data = saved["steps"], saved["data"]

    def train(self, epoch: int, images: torch.Tensor, labels: torch.Tensor, ids: torch.Tensor) -> bool:
        """Takes a step; returns whether to save a checkpoint."""
        self.ledger.write(epoch, self.steps, ids)
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.network(images), labels).backward()
        self.optimizer.step()
        self.steps += 1
        return self.steps % 5 == 0

    def save(self, data: Any) -> None:
        """Saves the network and the state of the data in one atomic step."""
        state = {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}
        with (self.folder / "checkpoint.new").open("wb") as file:
            torch.save({**state, "steps": self.steps, "data": data}, file)
            os.fsync(file.fileno())
        (self.folder / "checkpoint.new").replace(self.folder / "checkpoint.pt")

    def end(self) -> None:
        """Prints the accuracy."""
        print(f"{self.steps} steps, test accuracy {accuracy(self.network):.3f}", flush=True)  # noqa: T201


def start() -> Loop:
    """Parses the command line, and starts or resumes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="folder for the checkpoint and the ledger")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    return Loop(folder)
