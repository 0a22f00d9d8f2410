"""Trains in tasks of srun; saves and exits on SIGTERM, and resumes when the job is requeued.

srun --ntasks 2 python docs/trainers/train_slurm.py FOLDER     (with MASTER_ADDR and MASTER_PORT set)
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist

# Imported before the process group is created. Otherwise its default arguments keep the group alive, and
# gloo's threads may abort the process at exit.
import torch.distributed.nn.functional
from digits import Digits, Ledger, accuracy, end_process_group, make_network
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import samplerkit as sk


def train(loader: sk.Loader, folder: Path, epochs: int, stop: list[int]) -> None:
    """Trains to the end, or until SIGTERM."""
    rank = dist.get_rank()
    network = make_network()
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    ledger, step = Ledger(folder, rank), 0
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        step = saved["step"]

    for epoch in range(loader.epoch, epochs):
        for images, labels, ids in loader:
            ledger.write(epoch, step, ids)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            step += 1
            time.sleep(0.02)  # a real step takes longer
            num_stopped = torch.tensor(len(stop))
            dist.all_reduce(num_stopped)  # the tasks may receive the signal in different steps
            if num_stopped and rank == 0:
                state = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
                state |= {"loader": loader.state_dict(), "step": step}
                with (folder / "checkpoint.new").open("wb") as file:
                    torch.save(state, file)
                    os.fsync(file.fileno())  # on disk before it is renamed
                (folder / "checkpoint.new").replace(checkpoint)
                print(f"stopped in epoch {epoch} after {step} steps", flush=True)
            if num_stopped:
                return
        if rank == 0:
            print(f"epoch {epoch}: {step} steps, test accuracy {accuracy(network):.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="folder for checkpoints and ledgers")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the processes share the CPU
    asked_to_stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.append(1))

    # Without a process group, the loader takes rank and world size from Slurm's variables; torch does not.
    with sk.Loader(Digits(), sk.RandomSampler(seed=7), batch_size=32, num_workers=1) as digits:
        dist.init_process_group("gloo", rank=digits.world.rank, world_size=digits.world.world_size)
        train(digits, options.folder, options.epochs, asked_to_stop)
    end_process_group()
