"""Wirings of Lightning and our samplers; each rank writes what it received in two epochs.

Run as `python -m tests.trainers.lightning_job FOLDER WIRING...`; Lightning starts the second process.
"""

import sys
from pathlib import Path
from typing import Any

import lightning
import torch
from torch.utils.data import DataLoader, RandomSampler

import samplerkit as sk

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "trainers"))
from digits import SAMPLES, Digits, Ledger, end_process_group, make_network  # an example, which is no package

BATCH_SIZE, EPOCHS = 32, 2
LENGTHS = [4 + number % 60 for number in range(SAMPLES)]
BATCHES = {
    "tokens": sk.TokenBatches(1000, lengths=LENGTHS, pool=1),
    "windows": sk.TokenBatches(1000, lengths=LENGTHS, window=200),
}
"""As if the images had these lengths; with windows, epochs differ in their number of batches."""


class Reader(lightning.LightningModule):
    """Learns a little, and records what it receives."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.network = make_network()
        self.folder = folder

    def on_fit_start(self) -> None:
        self.ledger = Ledger(self.folder, self.trainer.global_rank)

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        images, labels, ids = batch
        self.ledger.write(self.trainer.current_epoch, self.trainer.global_step, ids)
        return torch.nn.functional.cross_entropy(self.network(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def wired(wiring: str) -> Any:
    """Makes the DataLoader of a wiring."""
    digits, recipe = Digits(), sk.RandomSampler(seed=7)
    if wiring == "torchs_random":
        return DataLoader(digits, BATCH_SIZE, sampler=RandomSampler(digits))
    if wiring in BATCHES:
        return sk.Loader(digits, recipe, batches=BATCHES[wiring], tail="split")
    sampler = sk.TorchSampler(recipe, digits)
    if wiring == "tokens_left_alone":
        return DataLoader(digits, batch_sampler=sk.TorchBatchSampler(sampler, batches=BATCHES["tokens"]))
    if wiring.startswith("sampler"):
        return DataLoader(digits, BATCH_SIZE, sampler=sampler)
    return DataLoader(digits, batch_sampler=sk.TorchBatchSampler(sampler, BATCH_SIZE))


def main(folder: Path, *wirings: str) -> None:
    """Fits by each wiring."""
    for wiring in wirings:
        (folder / wiring).mkdir(exist_ok=True)
        options = {"use_distributed_sampler": False} if wiring.endswith("left_alone") else {}
        limits = {"limit_train_batches": 5} if wiring.endswith("limited") else {}
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=2,
            strategy="ddp",
            max_epochs=EPOCHS,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            **options,
            **limits,
        )
        try:
            trainer.fit(Reader(folder / wiring), wired(wiring))
        except sk.SamplerkitError as error:
            (folder / wiring / f"refused-{trainer.global_rank}.txt").write_text(str(error))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), *sys.argv[2:])
    end_process_group()
