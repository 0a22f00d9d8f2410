"""A factory of DataLoaders for training and evaluation, on one process or many, around the drop-in sampler.

python docs/examples/build_dataloader.py
torchrun --standalone --nproc-per-node 2 docs/examples/build_dataloader.py

The only line to change in such a factory is the import of `DistributedSampler`. With `ALGORITHM = "torch"`
the run reads the same indices as before; with `"samplerkit-1"` it needs no permutation in memory.
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import logging
import os
import random
from functools import partial

import numpy as np
import torch
import torch.distributed
from torch.utils.data import DataLoader

from samplerkit.compat.torch import DistributedSampler

ALGORITHM = "torch"


class Numbers(torch.utils.data.Dataset):
    """Sample i is i; put your own dataset here."""

    def __init__(self, config: dict[str, int], logger: logging.Logger | None = None) -> None:
        self.samples = config["samples"]
        self.epochs_in_one = 1
        if logger is not None:
            logger.info("%d samples", self.samples)

    def merge_all_iters_to_one_epoch(self, merge: bool = True, epochs: int = 1) -> None:
        """Joins several epochs into a long one, so that workers start only once."""
        self.epochs_in_one = epochs if merge else 1

    def __len__(self) -> int:
        return self.samples * self.epochs_in_one

    def __getitem__(self, index: int) -> int:
        return index % self.samples

    @staticmethod
    def collate_batch(samples: list[int]) -> torch.Tensor:
        """Makes a batch of samples."""
        return torch.tensor(samples)


def worker_init_fn(worker: int, seed: int | None) -> None:
    """Seeds the generators of a worker, as factories of this kind do; torch seeds its own by itself.

    All epochs and ranks then start with the same random numbers; with `samplerkit.sample_rng` they do not.
    """
    if seed is not None:
        random.seed(seed + worker)
        np.random.seed(seed + worker)  # noqa: NPY002  # the one that datasets of this kind draw from


def build_dataloader(
    dataset_cfg: dict[str, int],
    batch_size: int,
    dist: bool,
    workers: int = 0,
    seed: int | None = None,
    logger: logging.Logger | None = None,
    training: bool = True,
    merge_all_iters_to_one_epoch: bool = False,
    total_epochs: int = 0,
) -> tuple[Numbers, DataLoader[int], DistributedSampler | None]:
    """Builds dataset, loader and sampler.

    Args:
        dataset_cfg: the config of the dataset.
        batch_size: samples of one process in a step.
        dist: whether this is one of several processes, and the process group is initialised.
        workers: worker processes of the loader.
        seed: the seed of the workers' generators, not of the sampler; None does not seed them.
        logger: logs the size of the dataset.
        training: whether to shuffle.
        merge_all_iters_to_one_epoch: join all epochs into one.
        total_epochs: the number of epochs to join.

    Returns:
        (dataset, loader, sampler); the sampler is None in a single process.
    """
    dataset = Numbers(dataset_cfg, logger)
    if merge_all_iters_to_one_epoch:
        # Before the sampler is created, which reads the length.
        dataset.merge_all_iters_to_one_epoch(merge=True, epochs=total_epochs)
    sampler = None
    if dist and training:
        sampler = DistributedSampler(dataset, algorithm=ALGORITHM)
    elif dist:
        rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        sampler = DistributedSampler(dataset, world_size, rank, shuffle=False)
    loader = DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=sampler,
        shuffle=(sampler is None) and training,
        num_workers=workers,
        collate_fn=dataset.collate_batch,
        pin_memory=torch.cuda.is_available(),
        worker_init_fn=partial(worker_init_fn, seed=seed),
    )
    return dataset, loader, sampler


def main(epochs: int = 2) -> None:
    """Reads some epochs, and then the samples for evaluation."""
    rank = os.environ.get("RANK")
    dist = rank is not None
    if dist:
        torch.distributed.init_process_group("gloo")
    _, loader, sampler = build_dataloader({"samples": 12}, batch_size=3, dist=dist)
    for epoch in range(epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        batches = [batch.tolist() for batch in loader]
        print(f"epoch {epoch}, rank {rank or 0}: {batches}", flush=True)
    _, loader, _ = build_dataloader({"samples": 12}, batch_size=3, dist=dist, training=False)
    batches = [batch.tolist() for batch in loader]
    print(f"evaluation, rank {rank or 0}: {batches}", flush=True)
    if dist:
        torch.distributed.barrier()  # a rank that exits before another one has connected would break it
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
