"""Trains with DistributedDataParallel on any number of processes, and resumes from the last checkpoint.

torchrun --standalone --nproc-per-node 2 docs/trainers/train_ddp.py FOLDER
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import argparse
import os
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


def train(folder: Path, epochs: int) -> None:
    """Trains to the end, from the last checkpoint if there is one."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    network = make_network()
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    ledger, step = Ledger(folder, rank), 0

    # No rank and no number of ranks: the loader takes both from the process group.
    with sk.Loader(Digits(), sk.RandomSampler(seed=7), batch_size=64 // ranks, num_workers=1) as loader:
        checkpoint = folder / "checkpoint.pt"
        if checkpoint.exists():
            saved = torch.load(checkpoint, weights_only=True)
            network.load_state_dict(saved["network"])
            optimizer.load_state_dict(saved["optimizer"])
            loader.load_state_dict(saved["loader"])
            step = saved["step"]
            if rank == 0:
                print(f"continues in epoch {loader.epoch}, step {step}, on {ranks} ranks", flush=True)

        for epoch in range(loader.epoch, epochs):
            for images, labels, ids in loader:
                ledger.write(epoch, step, ids)
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(images), labels).backward()
                optimizer.step()
                step += 1
                if step % 5 == 0 and rank == 0:
                    state = {
                        "network": network.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "loader": loader.state_dict(),  # the same on all ranks
                        "step": step,
                    }
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
    dist.init_process_group("gloo")  # "nccl" with a GPU for each process
    train(options.folder, options.epochs)
    end_process_group()
