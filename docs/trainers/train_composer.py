"""Trains with Composer, whose checkpoints keep the loader's state by a callback.

python docs/trainers/train_composer.py FOLDER
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from composer import Callback, ComposerModel, DataSpec, Logger, State, Trainer
from digits import Digits, Ledger, accuracy, make_network
from torch import nn

import samplerkit as sk

EPOCHS = 2


class Classifier(ComposerModel):
    """A network and its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.network = make_network()

    def forward(self, batch: Any) -> torch.Tensor:
        return self.network(batch[0])

    def loss(self, outputs: torch.Tensor, batch: Any, *_: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, batch[1])


class KeepLoader(Callback):
    """Composer saves a callback's `state_dict`, and restores it."""

    def __init__(self, loader: sk.Loader, ledger: Ledger) -> None:
        self.loader, self.ledger = loader, ledger

    def state_dict(self) -> dict[str, Any]:
        return {"loader": self.loader.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loader.load_state_dict(state["loader"])

    def after_dataloader(self, state: State, logger: Logger) -> None:
        self.ledger.write(state.timestamp.epoch.value, state.timestamp.batch.value, state.batch[2])


def main() -> None:
    """Trains to the end, from the last checkpoint if there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="folder for checkpoints and the ledger")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    model = Classifier()
    loader = sk.Loader(Digits(), sk.RandomSampler(seed=7), batch_size=32)
    trainer = Trainer(
        model=model,
        optimizers=torch.optim.Adam(model.parameters(), lr=0.01),
        train_dataloader=DataSpec(loader, get_num_samples_in_batch=lambda batch: len(batch[1])),
        max_duration=f"{EPOCHS}ep",
        callbacks=KeepLoader(loader, Ledger(folder, 0)),
        spin_dataloaders=False,  # the loader resumes by itself, so Composer need not skip batches
        save_folder=str(folder / "checkpoints"),
        save_interval="5ba",
        run_name="digits",
        autoresume=True,
        device="cpu",
        progress_bar=False,
    )
    trainer.fit()
    print(
        f"{trainer.state.timestamp.batch.value} steps, test accuracy {accuracy(model.network):.3f}",
        flush=True,
    )
    trainer.close()


if __name__ == "__main__":
    main()
