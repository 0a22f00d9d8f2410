"""Trains on texts of different lengths, in batches with a token budget, with Hugging Face's Trainer.

torchrun --standalone --nproc-per-node 2 docs/trainers/train_text_transformers.py FOLDER
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

# Imported before the process group is created. Otherwise its default arguments keep the group alive, and
# gloo's threads may abort the process at exit.
import torch.distributed.nn.functional
from digits import Ledger, end_process_group
from texts import BATCHES, COLLATE, Reader, Texts, loss_on_new_texts, loss_sum
from torch import nn
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import samplerkit as sk
from samplerkit.compat.huggingface import use_loader


class TextTrainer(Trainer):
    """A Trainer whose batches differ in the number of samples, but hardly in padded letters."""

    def compute_loss(self, model: nn.Module, inputs: Any, *_: Any, **__: Any) -> torch.Tensor:
        self.ledger.write(int(self.state.epoch or 0), self.state.global_step, inputs["id"])
        # Of all ranks, without communication. The mean of their means would weight letters by batch.
        letters = self.loader.tokens(self.loader.step - 1)
        return loss_sum(model(inputs["letters"]), inputs["targets"]) * self.args.world_size / letters


def train(folder: Path, epochs: int) -> None:
    """Trains to the end, from the last checkpoint if there is one."""
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=epochs,
        learning_rate=0.003,
        save_steps=4,
        save_total_limit=3,
        seed=7,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = TextTrainer(Reader(), arguments, train_dataset=Texts())
    # The Trainer reads the number of batches once, and ends all epochs after that many: a plan over the whole
    # set has the same number in each epoch.
    recipe = sk.RandomSampler(seed=7)
    trainer.loader = sk.Loader(Texts(), recipe, batches=BATCHES, tail="split", collate_fn=COLLATE)
    use_loader(trainer, trainer.loader)
    trainer.ledger = Ledger(folder, arguments.process_index)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(folder)))
    if trainer.is_world_process_zero():
        loss = loss_on_new_texts(trainer.model)
        print(f"{trainer.state.global_step} steps, loss on new texts {loss:.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="folder for checkpoints and ledgers")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the processes share the CPU
    train(options.folder, options.epochs)
    end_process_group()
