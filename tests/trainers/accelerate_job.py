"""Wirings of Accelerate and our samplers; each rank writes what it received in two epochs.

Run as `torchrun --nproc-per-node RANKS -m tests.trainers.accelerate_job FOLDER WIRING...`.
"""

import sys
from pathlib import Path
from typing import Any

# Imported before there is a process group: docs/trainers/train_accelerate.py says why.
import torch.distributed.nn.functional  # noqa: F401
from accelerate import Accelerator
from torch.utils.data import DataLoader

import samplerkit as sk

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "trainers"))
from digits import SAMPLES, Digits, Ledger, end_process_group  # an example, which is no package

BATCH_SIZE, EPOCHS = 32, 2
BATCHES = sk.TokenBatches(1000, lengths=[4 + number % 60 for number in range(SAMPLES)], pool=1)
"""As if the images had these lengths."""


def wired(wiring: str, accelerator: Any) -> Any:
    """Makes the loader of a wiring."""
    digits, recipe = Digits(), sk.RandomSampler(seed=7)
    if wiring == "loader":
        return sk.Loader(digits, recipe, batch_size=BATCH_SIZE)
    if wiring == "loader_tokens":
        return sk.Loader(digits, recipe, batches=BATCHES, tail="split")
    everything = sk.World(1, 0)  # Accelerate deals
    if wiring == "prepared":
        sampler = sk.TorchSampler(recipe, digits, world=everything)
        return accelerator.prepare(DataLoader(digits, BATCH_SIZE, sampler=sampler))
    if wiring == "prepared_batches":
        batches = sk.TorchBatchSampler(sk.TorchSampler(recipe, digits, world=everything), BATCH_SIZE)
        return accelerator.prepare(DataLoader(digits, batch_sampler=batches))
    if wiring == "prepared_tokens":
        sampler = sk.TorchSampler(recipe, digits, world=everything)
        batches = sk.TorchBatchSampler(sampler, batches=BATCHES)
        return accelerator.prepare(DataLoader(digits, batch_sampler=batches))
    return accelerator.prepare(DataLoader(digits, BATCH_SIZE, sampler=sk.TorchSampler(recipe, digits)))


def main(folder: Path, *wirings: str) -> None:
    """Reads two epochs by each wiring."""
    accelerator = Accelerator(cpu=True)
    for wiring in wirings:
        (folder / wiring).mkdir(exist_ok=True)
        loader = wired(wiring, accelerator)
        ledger, step = Ledger(folder / wiring, accelerator.process_index), 0
        for epoch in range(EPOCHS):
            if hasattr(loader, "set_epoch"):
                loader.set_epoch(epoch)
            for _, _, ids in loader:
                ledger.write(epoch, step, ids)
                step += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
    end_process_group()
