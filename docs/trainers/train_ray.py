"""Trains with Ray Train on any number of workers, and resumes from the last checkpoint.

python docs/trainers/train_ray.py FOLDER
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ray
import ray.train
import torch
from digits import Digits, Ledger, accuracy, make_network
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model
from torch import nn

import samplerkit as sk


def train_worker(config: dict[str, Any]) -> None:
    """Trains in one worker; Ray has created the process group."""
    rank, ranks = ray.train.get_context().get_world_rank(), ray.train.get_context().get_world_size()
    network = make_network()
    model = prepare_model(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    ledger, step = Ledger(Path(config["folder"]), rank), 0
    # No rank and no number of workers: the loader takes both from the process group. Do not use
    # `prepare_data_loader` on it.
    loader = sk.Loader(Digits(), sk.RandomSampler(seed=7), batch_size=64 // ranks, num_workers=1)

    checkpoint = ray.train.get_checkpoint()  # of the last report, also after a failure
    if checkpoint is not None:
        with checkpoint.as_directory() as place:
            saved = torch.load(Path(place) / "state.pt", weights_only=True)
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        step = saved["step"]

    with loader:
        for epoch in range(loader.epoch, config["epochs"]):
            for images, labels, ids in loader:
                ledger.write(epoch, step, ids)
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(images), labels).backward()
                optimizer.step()
                step += 1
                if step % 5 == 0:
                    report(
                        rank,
                        {
                            "network": network.state_dict(),
                            "optimizer": optimizer.state_dict(),
                            "loader": loader.state_dict(),
                            "step": step,
                        },
                    )
            if rank == 0:
                print(f"epoch {epoch}: {step} steps, test accuracy {accuracy(network):.3f}", flush=True)


def report(rank: int, state: dict[str, Any]) -> None:
    """Reports a checkpoint to Ray from rank 0; all workers must report."""
    with TemporaryDirectory() as place:
        if rank == 0:
            torch.save(state, Path(place) / "state.pt")
        checkpoint = ray.train.Checkpoint.from_directory(place) if rank == 0 else None
        ray.train.report({"step": state["step"]}, checkpoint=checkpoint)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="folder for checkpoints and ledgers")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    ray.init(num_cpus=options.workers, include_dashboard=False)
    TorchTrainer(
        train_worker,
        train_loop_config={"folder": str(options.folder.absolute()), "epochs": options.epochs},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ray.train.ScalingConfig(num_workers=options.workers),
        run_config=ray.train.RunConfig(
            name="digits",
            storage_path=str(options.folder.absolute() / "ray"),
            failure_config=ray.train.FailureConfig(max_failures=1),
        ),
    ).fit()
