"""Trains on a map-style dataset in any number of processes.

torchrun --standalone --nproc-per-node 2 docs/examples/train_own_data.py
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

# Imported before the process group is created. Otherwise its default arguments keep the group alive, and
# gloo's threads may abort the process at exit.
import torch.distributed.nn.functional
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import samplerkit as sk


class Points(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Random data: put your own dataset here. It needs a length and, for file-aware shuffles, a layout."""

    def __init__(self, sizes: list[int], seed: int) -> None:
        random = np.random.default_rng(seed)
        self.inputs = torch.from_numpy(random.normal(size=(sum(sizes), 2)).astype(np.float32))
        self.targets = (self.inputs.prod(dim=1) > 0).long()
        # How many samples are in each file (an .npz, a tar, a row group), for FILES, INFILE and PARTIAL.
        # Leave it out if samples are not in files.
        self.layout = sk.Layout(sizes)

    def __len__(self) -> int:
        return len(self.layout)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inputs[index], self.targets[index]


def accuracy(model: nn.Module, dataset: Points, device: torch.device) -> float:
    """Evaluates each sample of a dataset exactly once, on any number of ranks."""
    # With offset=0 there is no padding, so no sample counts twice. A rank may then have one batch more than
    # another: use no collective inside this loop, but one after it.
    sampler = sk.DistributedSampler(shuffle=False, offset=0)
    loader = DataLoader(dataset, batch_size=100, sampler=sk.TorchSampler(sampler, dataset))
    counts = torch.zeros(2)
    with torch.no_grad(), sk.DeviceLoader(loader, device) as batches:
        for inputs, targets in batches:
            right = (model(inputs).argmax(dim=1) == targets).sum()
            counts += torch.tensor([float(right), len(targets)])
    dist.all_reduce(counts)
    return float(counts[0] / counts[1])


def train() -> None:
    """Trains, and prints the results on rank 0."""
    dataset, held_out = Points([250] * 8, seed=1), Points([501], seed=2)
    config = sk.load_config(Path(__file__).with_name("own_data.yaml"))
    # A torch DataLoader, wrapped by a loader that copies the next batches to the GPU, if there is one, during
    # the training step. (`config.make_loader(dataset)` can also be resumed: see docs/resume.md.)
    loader = sk.DeviceLoader(config.dataloader(dataset))

    network = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2)).to(loader.device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    for epoch in range(8):  # each iteration reads the next epoch; set_epoch is not needed
        samples = 0
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            samples += len(targets)
        measured = accuracy(network, held_out, loader.device)
        if dist.get_rank() == 0:
            world = dist.get_world_size()
            print(f"epoch {epoch}: {samples} samples on each of {world} ranks, test accuracy {measured:.3f}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the processes share the CPU
    torch.manual_seed(0)
    dist.init_process_group("gloo")  # "nccl" with a GPU for each process
    train()  # a function, so that the model is freed before the process group
    dist.destroy_process_group()
