"""Trains with torchdata's StatefulDataLoader, which saves the state of our sampler with each batch.

torchrun --standalone --nproc-per-node 2 docs/trainers/train_torchdata.py FOLDER
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path

import torch
import torch.distributed as dist

# Imported before the process group is created. Otherwise its default arguments keep the group alive, and
# gloo's threads may abort the process at exit.
import torch.distributed.nn.functional
from digits import Digits, Ledger, accuracy, end_process_group, make_network
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchdata.stateful_dataloader import StatefulDataLoader

import samplerkit as sk

# torchdata 0.11 uses functions that torch 2.13 deprecates.
warnings.filterwarnings("ignore", message="'set_vital' is deprecated")


def train(folder: Path, epochs: int) -> None:
    """Trains to the end, from the last checkpoint if there is one."""
    rank, dataset = dist.get_rank(), Digits()
    sampler = sk.TorchSampler(sk.RandomSampler(seed=7), dataset)  # takes the rank from the process group
    batches = sk.TorchBatchSampler(sampler, batch_size=32)
    loader = StatefulDataLoader(dataset, batch_sampler=batches, num_workers=2)

    network = make_network()
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    ledger, step, first = Ledger(folder, rank), 0, 0
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        first, step = saved["epoch"], saved["step"]
        if rank == 0:
            print(f"continues in epoch {first}, step {step}", flush=True)

    for epoch in range(first, epochs):
        sampler.set_epoch(epoch)  # keeps a restored position
        for images, labels, ids in loader:
            ledger.write(epoch, step, ids)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            step += 1
            if step % 5 == 0 and rank == 0:
                state = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
                state |= {"loader": loader.state_dict(), "epoch": epoch, "step": step}
                with (folder / "checkpoint.new").open("wb") as file:
                    torch.save(state, file)
                    os.fsync(file.fileno())  # on disk before it is renamed
                (folder / "checkpoint.new").replace(checkpoint)  # atomic: the old file or the new one
        if rank == 0:
            print(f"epoch {epoch}: {step} steps, test accuracy {accuracy(network):.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="folder for checkpoints and ledgers")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the processes share the CPU
    dist.init_process_group("gloo")
    train(options.folder, options.epochs)
    end_process_group()
