"""Trains a `datasets.Dataset` with Hugging Face's Trainer, and resumes from its last checkpoint.

torchrun --standalone --nproc-per-node 2 docs/trainers/train_transformers.py FOLDER
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import datasets
import torch

# Imported before the process group is created. Otherwise its default arguments keep the group alive, and
# gloo's threads may abort the process at exit.
import torch.distributed.nn.functional
from digits import Digits, Ledger, accuracy, end_process_group, make_network
from torch import nn
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import samplerkit as sk
from samplerkit.compat.huggingface import use_loader


class DigitsTrainer(Trainer):
    """A Trainer that records what it received, so that you can check it."""

    def compute_loss(self, model: nn.Module, inputs: Any, *_: Any, **__: Any) -> torch.Tensor:
        self.ledger.write(int(self.state.epoch or 0), self.state.global_step, inputs["id"])
        return nn.functional.cross_entropy(model(inputs["image"]), inputs["label"])


def train(folder: Path, epochs: int) -> None:
    """Trains to the end, from the last checkpoint if there is one."""
    digits = Digits()
    columns = {"image": digits.images.numpy(), "label": digits.labels.numpy(), "id": range(len(digits))}
    dataset = datasets.Dataset.from_dict(columns).with_format("torch")
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=epochs,
        per_device_train_batch_size=32,
        learning_rate=0.01,
        save_steps=5,
        save_total_limit=3,
        seed=7,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = DigitsTrainer(make_network(), arguments, train_dataset=dataset)
    loader = sk.Loader(dataset, sk.RandomSampler(seed=7), batch_size=32, num_workers=1)
    use_loader(trainer, loader)  # it deals to the ranks, and the Trainer saves its state
    trainer.ledger = Ledger(folder, arguments.process_index)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(folder)))
    if trainer.is_world_process_zero():
        print(f"{trainer.state.global_step} steps, test accuracy {accuracy(trainer.model):.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="folder for checkpoints and ledgers")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the processes share the CPU
    train(options.folder, options.epochs)
    end_process_group()
