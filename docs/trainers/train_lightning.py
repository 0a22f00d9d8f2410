"""Trains with Lightning on two processes, and resumes from the last checkpoint, also in mid-epoch.

python docs/trainers/train_lightning.py FOLDER
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import lightning
import torch
from digits import Digits, Ledger, accuracy, end_process_group, make_network
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

import samplerkit as sk


class Classifier(lightning.LightningModule):
    """A network, which does not depend on the order of the data."""

    def __init__(self) -> None:
        super().__init__()
        self.network = make_network()

    def training_step(self, batch: Any, batch_index: int) -> torch.Tensor:
        images, labels, _ = batch
        return nn.functional.cross_entropy(self.network(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


class WriteLedger(lightning.Callback):
    """Records what each rank receives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger: Ledger | None = None

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_index: int) -> None:
        self.ledger = self.ledger or Ledger(self.folder, trainer.global_rank)
        self.ledger.write(trainer.current_epoch, trainer.global_step, batch[2])

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        if trainer.is_global_zero:
            measured = accuracy(module.network)
            print(f"epoch {trainer.current_epoch}: {trainer.global_step} steps, test accuracy {measured:.3f}")


def train(folder: Path, epochs: int, devices: int) -> None:
    """Trains to the end, from the last checkpoint if there is one."""
    # Lightning does not shard loaders other than torch's, and saves the state of any stateful loader in its
    # checkpoints. The loader takes the rank from the process group when it is first used.
    loader = sk.Loader(Digits(), sk.RandomSampler(seed=7), batch_size=64 // devices, num_workers=1)
    checkpoints = ModelCheckpoint(folder, every_n_train_steps=5, save_last=True)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=devices,
        strategy="ddp",
        max_epochs=epochs,
        callbacks=[WriteLedger(folder), checkpoints],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with loader:
        trainer.fit(Classifier(), loader, ckpt_path="last")  # none at the first start


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="folder for checkpoints and ledgers")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--devices", type=int, default=2, help="the number of processes")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the processes share the CPU
    train(options.folder, options.epochs, options.devices)
    end_process_group()
