"""Saves a checkpoint and exits on SIGTERM, and resumes when it is started again.

python docs/examples/train_until_stopped.py FOLDER

Slurm sends SIGTERM before it ends a job, and `--requeue` starts it again: a batch script needs only
`#SBATCH --requeue` and `#SBATCH --signal=TERM@60`. This example runs in one process; under torchrun, let only
rank 0 write the checkpoint.
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn

import samplerkit as sk


def train(folder: Path, epochs: int = 3) -> bool:
    """Trains from the last checkpoint; returns whether training is complete."""
    stop_asked = []
    signal.signal(
        signal.SIGTERM, lambda *_: stop_asked.append(True)
    )  # only a flag: the step is finished first

    torch.manual_seed(0)
    inputs = torch.randn(600, 2)
    dataset = torch.utils.data.TensorDataset(inputs, (inputs.prod(dim=1) > 0).long(), torch.arange(600))
    network = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)

    with sk.Loader(dataset, sk.RandomSampler(seed=1), batch_size=10) as loader:
        checkpoint = folder / "checkpoint.pt"
        if checkpoint.exists():
            saved = torch.load(checkpoint, weights_only=True)
            network.load_state_dict(saved["network"])
            optimizer.load_state_dict(saved["optimizer"])
            loader.load_state_dict(saved["loader"])
            print(f"continues in epoch {loader.epoch}", flush=True)
        while loader.epoch < epochs:
            for batch_inputs, targets, ids in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(network(batch_inputs), targets).backward()
                optimizer.step()
                time.sleep(0.01)  # a real step takes longer
                with (folder / "ledger.txt").open("a") as ledger:
                    ledger.writelines(f"{loader.epoch} {number}\n" for number in ids.tolist())
                if stop_asked:
                    state = {
                        "network": network.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "loader": loader.state_dict(),  # counts this batch too
                    }
                    with (folder / "checkpoint.new").open("wb") as file:
                        torch.save(state, file)
                        os.fsync(file.fileno())  # on disk before it is renamed
                    (folder / "checkpoint.new").replace(checkpoint)  # atomic: the old file or the new one
                    print(f"stopped in epoch {loader.epoch}", flush=True)
                    return False
    print("done", flush=True)
    return True


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    train(target)
