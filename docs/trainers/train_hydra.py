"""Trains by a Hydra config of the sampler, the loader and the number of epochs.

python docs/trainers/train_hydra.py [epochs=3] [loader.batch_size=16] [sampler=chain]
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import os
from pathlib import Path

import hydra
import torch
from digits import Digits, Ledger, accuracy, make_network
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import nn

import samplerkit as sk


@hydra.main(config_path="hydra_config", config_name="train", version_base="1.3")
def train(config: DictConfig) -> None:
    """Trains to the end, from the last checkpoint if there is one."""
    folder = Path(config.folder)
    folder.mkdir(parents=True, exist_ok=True)
    # Hydra's instantiate could make a single sampler; this also nests samplers, and names wrong keys.
    sampler = sk.load_config({"sampler": config.sampler}).sampler
    loader = instantiate(config.loader)(Digits(), sampler)
    network = make_network()
    optimizer = torch.optim.Adam(network.parameters(), lr=config.learning_rate)
    ledger, step = Ledger(folder, loader.world.rank), 0

    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])  # an error if the config now has another sampler or seed
        step = saved["step"]
        print(f"continues in epoch {loader.epoch}, step {step}", flush=True)

    with loader:
        for epoch in range(loader.epoch, config.epochs):
            for images, labels, ids in loader:
                ledger.write(epoch, step, ids)
                optimizer.zero_grad()
                nn.functional.cross_entropy(network(images), labels).backward()
                optimizer.step()
                step += 1
                if step % 5 == 0:
                    state = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
                    state |= {"loader": loader.state_dict(), "step": step}
                    with (folder / "checkpoint.new").open("wb") as file:
                        torch.save(state, file)
                        os.fsync(file.fileno())  # on disk before it is renamed
                    (folder / "checkpoint.new").replace(checkpoint)
            print(f"epoch {epoch}: {step} steps, test accuracy {accuracy(network):.3f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    train()
