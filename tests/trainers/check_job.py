"""The findings of `check` in real trainers, as JSON: the codes of each wiring.

Run as `torchrun --nproc-per-node 2 -m tests.trainers.check_job FOLDER`.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning
import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.state import AcceleratorState
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments

import samplerkit as sk
from samplerkit.compat.huggingface import use_loader
from samplerkit.inspect import check

ROWS = [{"x": torch.tensor([float(number)])} for number in range(64)]


class Model(torch.nn.Module):
    """Learns nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.layer(x).mean()}


class Checked(lightning.LightningModule):
    """Is checked when its training begins."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.codes: list[str] = []

    def on_train_start(self) -> None:
        self.codes = [finding.code for finding in check(self.trainer)]

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        return self.model(**batch)["loss"]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def ours(**options: Any) -> sk.Loader:
    """Makes a loader of the rows."""
    return sk.Loader(ROWS, sk.RandomSampler(seed=7), **(options or {"batch_size": 8}))


def windows() -> sk.Loader:
    """Makes a loader whose epochs differ in their number of batches."""
    lengths = [1 + number % 17 for number in range(64)]
    return ours(batches=sk.TokenBatches(24, lengths=lengths, pool=1, window=20), tail="split")


def in_transformers(loader: sk.Loader, folder: Path, *, by_use_loader: bool) -> Trainer:
    """Passes a loader to the Trainer, by its method or by `use_loader`."""
    arguments = TrainingArguments(str(folder), report_to=[], use_cpu=True, remove_unused_columns=False)
    trainer = Trainer(Model(), arguments, train_dataset=ROWS)
    trainer.get_train_dataloader = lambda: loader
    if by_use_loader:
        use_loader(trainer, loader)
    return trainer


def in_lightning(loader: Any) -> list[str]:
    """Passes a loader to Lightning, and returns the codes when the training begins."""
    module = Checked()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_steps=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, loader)
    return module.codes


def prepared(sampler: Any, **options: bool) -> DataLoader:
    """The DataLoader that Accelerate makes of one."""
    AcceleratorState._reset_state()
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**options))
    return accelerator.prepare(DataLoader(ROWS, 8, sampler=sampler))


def wirings(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yields the name of each, and the codes of its findings."""
    alone = sk.World(1, 0)
    for name, options in {
        "prepared": {},
        "split": {"split_batches": True},
        "dispatched": {"dispatch_batches": True},
    }.items():
        undealt = sk.TorchSampler(sk.RandomSampler(seed=7), ROWS, world=alone)
        yield name, codes(prepared(undealt, **options))
        dealt = sk.TorchSampler(sk.RandomSampler(seed=7), ROWS)
        yield f"{name}, dealt before", codes(prepared(dealt, **options))
    yield "a Loader in a world of one rank", codes(ours(batch_size=8, world=alone))
    yield "a Loader", codes(ours())
    yield "Trainer", codes(in_transformers(ours(), folder, by_use_loader=False))
    yield "Trainer by use_loader", codes(in_transformers(ours(), folder, by_use_loader=True))
    yield "Trainer, windows", codes(in_transformers(windows(), folder, by_use_loader=True))
    yield "Lightning", in_lightning(ours())
    yield "Lightning, windows", in_lightning(windows())
    sampler = torch.utils.data.RandomSampler(ROWS)
    yield "Lightning, torch's sampler", in_lightning(DataLoader(ROWS, 8, sampler=sampler))


def codes(source: Any) -> list[str]:
    """Returns the codes of the findings."""
    return [finding.code for finding in check(source)]


def main(folder: Path) -> None:
    """Writes the findings of rank 1."""
    torch.set_num_threads(1)
    codes_by_wiring = dict(wirings(folder))
    if torch.distributed.get_rank() == 1:
        (folder / "codes.json").write_text(json.dumps(codes_by_wiring))
    torch.distributed.barrier()
    sys.stdout.flush()
    os._exit(0)  # what the trainers hold may outlive the group


if __name__ == "__main__":
    main(Path(sys.argv[1]))
