"""Trains with mmengine's Runner: a sampler from its registry, and a hook that saves the state of the data.

python docs/trainers/train_mmengine.py FOLDER
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from digits import Digits
from loop import Loop, start
from mmengine.hooks import Hook
from mmengine.logging import HistoryBuffer
from mmengine.model import BaseModel
from mmengine.registry import DATA_SAMPLERS
from mmengine.runner import Runner
from torch import nn
from torchdata.stateful_dataloader import StatefulDataLoader

import samplerkit as sk


@DATA_SAMPLERS.register_module()
class OrderedSampler(sk.TorchSampler):
    """A sampler for configs: `sampler=dict(type="OrderedSampler", shuffle="global", seed=7)`."""

    def __init__(self, dataset: Any, shuffle: str = "global", seed: int = 0) -> None:
        super().__init__(sk.RandomSampler(shuffle=shuffle, seed=seed), dataset)


# mmengine 0.10 saves its history of losses, whose classes torch 2.6 and newer load only if they are listed.
torch.serialization.add_safe_globals(
    [
        HistoryBuffer,
        np.ndarray,
        np.dtype,
        np._core.multiarray._reconstruct,
        np._core.multiarray.scalar,
        getattr,
    ]
    + [type(np.dtype(kind)) for kind in ("f8", "f4", "i8", "i4")]
)


class KeepData(Hook):
    """Saves the state of the data loader in mmengine's checkpoints."""

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        checkpoint["data"] = runner.train_dataloader.state_dict()

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        runner.train_dataloader.load_state_dict(checkpoint["data"])


class Model(BaseModel):
    """The network, with the interface that mmengine requires."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self.network, self.ledger = loop.network, loop.ledger

    def forward(self, images: torch.Tensor, labels: torch.Tensor, ids: torch.Tensor, mode: str) -> Any:
        runner = self.runner
        self.ledger.write(runner.epoch, runner.iter, ids)
        return {"loss": nn.functional.cross_entropy(self.network(images), labels)}


def main() -> None:
    """Trains to the end."""
    loop, digits = start(), Digits()
    sampler = DATA_SAMPLERS.build({"type": "OrderedSampler", "dataset": digits, "seed": 7})
    # A dict instead would make a plain DataLoader, which cannot resume in mid-epoch.
    loader = StatefulDataLoader(digits, batch_sampler=sk.TorchBatchSampler(sampler, 32), num_workers=1)
    model = Model(loop)
    model.runner = Runner(
        model,
        work_dir=str(loop.folder / "mmengine"),
        train_dataloader=loader,
        train_cfg={"by_epoch": True, "max_epochs": 2},
        optim_wrapper={"optimizer": {"type": "Adam", "lr": 0.01}},
        default_hooks={"checkpoint": {"type": "CheckpointHook", "by_epoch": False, "interval": 5}},
        custom_hooks=[KeepData()],
        resume=True,
        experiment_name="digits",
    )
    model.runner.train()
    loop.steps = model.runner.iter
    loop.end()


if __name__ == "__main__":
    main()
