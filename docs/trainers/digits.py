"""What the examples in this folder share: data, a network, an ending, a ledger. Replace them by your own.

The data are scikit-learn's handwritten digits. The ledger records which samples each rank's loop received, so
that you can check them. With `DIGITS_KILL=1:18` it kills rank 1 in step 18, once, to show how a run resumes.
"""

from __future__ import annotations

import gc
import json
import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn

SAMPLES = 1437
"""Training samples; the other 360 are test samples. Odd, so that two ranks cannot share them evenly."""


class Digits:
    """Images of 8 x 8 pixels: sample i is (image, label, i)."""

    def __init__(self, *, train: bool = True) -> None:
        images, labels = load_digits(return_X_y=True)
        chosen = slice(SAMPLES) if train else slice(SAMPLES, None)
        self.images = torch.from_numpy(images[chosen] / 16).float()
        self.labels = torch.from_numpy(labels[chosen])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        return self.images[index], self.labels[index], index


def make_network() -> nn.Sequential:
    """Makes the same small network in every process."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def accuracy(network: nn.Module) -> float:
    """Returns the accuracy of a network on the test samples."""
    test = Digits(train=False)
    with torch.no_grad():
        return float((network(test.images).argmax(dim=1) == test.labels).float().mean())


def end_process_group() -> None:
    """Destroys the process group, if there is one, and so ends the threads of gloo.

    A thread of gloo may still hold a tensor of the last collective, and needs the GIL to free it; a thread
    that does so while Python exits aborts the process. A DistributedDataParallel model refers to the group,
    and is part of a reference cycle; if it is freed after the group, it waits for the threads while it holds
    the GIL, and hangs. So call this after the function that made the model has returned.
    """
    gc.collect()
    if dist.is_initialized():
        dist.destroy_process_group()


class Ledger:
    """Records what one rank's training loop received, a line for each step.

    Args:
        folder: receives the file `rank-R.jsonl`; a resumed run appends to it.
        rank: of this process.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder = folder
        self.rank = rank
        self.start: int | None = None

    def write(self, epoch: int, step: int, ids: torch.Tensor) -> None:
        """Adds a step: the number of optimizer steps before it, and the ids of its samples."""
        self.start = step if self.start is None else self.start
        line = {"start": self.start, "epoch": epoch, "step": step, "ids": ids.tolist()}
        with (self.folder / f"rank-{self.rank}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        self.strike(step)

    def strike(self, step: int) -> None:
        """Kills this process if `DIGITS_KILL` names the step."""
        now = f"{self.rank}:{step}"
        killed = self.folder / f"killed-{now.replace(':', '-')}"
        kills = os.environ.get("DIGITS_KILL", "").split(",")
        for kill in kills if not killed.exists() else []:
            if kill.removesuffix(":agent") == now:
                killed.touch()
                if kill.endswith(":agent"):  # the torchrun of this process, as if its node had failed
                    os.kill(os.getppid(), signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
