"""The program that torchrun starts for each rank of `samplerkit demo --resume`."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from samplerkit.cli.demo.data import training_files
from samplerkit.cli.demo.events import tell
from samplerkit.cli.demo.rank import run_rank
from samplerkit.cli.demo.train import LEARNING_RATE, Job, accuracy_of, digit_network, scaled
from samplerkit.loading.loader import Loader
from samplerkit.samplers.distributed import DistributedSampler
from samplerkit.storage.atomic import atomic
from samplerkit.storage.files.dataset import FileDataset

EPOCHS = 4
GLOBAL_BATCH = 48
"""Samples of all ranks in a step: a multiple of both numbers of ranks."""

SAVED_EVERY = 5
"""Steps from one checkpoint to the next."""


def train_and_save(job: Job, run: str, killed_in: int) -> None:
    """Trains from the last checkpoint on, and writes what the loop received to a ledger.

    Args:
        job: this rank of the job.
        run: the name of the run, for its ledger.
        killed_in: the step of this run in which the last rank kills itself; 0 for none.
    """
    ranks = torch.distributed.get_world_size()
    sizes = json.loads((job.folder / "sizes.json").read_text(encoding="utf-8"))
    dataset = FileDataset(training_files(job.folder / "data"), "npz", sizes)
    sampler = DistributedSampler(shuffle="partial", partial_size=180, seed=7)
    torch.manual_seed(7)
    network = digit_network().to(job.device)
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    step = 0
    with (
        Loader(dataset, sampler, batch_size=GLOBAL_BATCH // ranks, device=job.device) as loader,
        (job.folder / f"{run}.{job.rank}.jsonl").open("w", encoding="utf-8") as ledger,
    ):
        _load(job, network, optimizer, loader)
        model = DistributedDataParallel(network)
        while loader.epoch < EPOCHS:
            for batch in loader:
                kept = batch["ids"].cpu()[~torch.from_numpy(loader.pads(loader.step - 1))].tolist()
                ledger.write(json.dumps({"epoch": loader.epoch, "ids": kept}) + "\n")
                ledger.flush()
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(scaled(batch["pixels"])), batch["labels"])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                step += 1
                if step % SAVED_EVERY == 0:
                    _save(job, network, optimizer, loader, (run, step))
                if step == killed_in and job.rank == ranks - 1:
                    os.kill(os.getpid(), signal.SIGKILL)
    if job.rank == 0:
        tell({"event": "trained", "accuracy": accuracy_of(network, job)})


def _save(job: Job, network: nn.Module, optimizer: Any, loader: Loader, saved: tuple[str, int]) -> None:
    """Replaces the checkpoint at once, so that a crash leaves the old one or the new one."""
    if job.rank == 0:
        run, step = saved
        state = {
            "network": network.state_dict(),
            "optimizer": optimizer.state_dict(),
            "loader": loader.state_dict(),
            "run": run,
            "step": step,
        }
        with atomic(job.folder / "checkpoint.pt") as file:
            torch.save(state, file)
    torch.distributed.barrier()


def _load(job: Job, network: nn.Module, optimizer: Any, loader: Loader) -> None:
    checkpoint = job.folder / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True, map_location=job.device)
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])


if __name__ == "__main__":
    run_rank(
        Path(sys.argv[1]), Path(sys.argv[2]), lambda job: train_and_save(job, sys.argv[3], int(sys.argv[4]))
    )
