"""A data loader for torchtitan, whose state fits any data-parallel degree.

torchtitan's trainer requires a GPU; this loop uses the loader as that trainer does.

python docs/trainers/train_torchtitan.py FOLDER
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from digits import Digits
from loop import start
from torch.distributed import checkpoint
from torchtitan.components.dataloader import BaseDataLoader, DataloaderExhaustedError

import samplerkit as sk


class OrderedDataLoader(BaseDataLoader):
    """The loader that `config.dataloader.build` of torchtitan makes, for one data-parallel rank."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        """The config of the order, in addition to torchtitan's."""

        seed: int = 7
        epochs: int = 2

    def __init__(
        self, config: Config, *, dp_rank: int, dp_world_size: int, local_batch_size: int, **_: Any
    ) -> None:
        self.loader = sk.Loader(
            Digits(),
            sk.RandomSampler(seed=config.seed),
            batch_size=local_batch_size,
            world=sk.World(dp_world_size, dp_rank),
        )
        self.epochs = config.epochs

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        while self.loader.epoch < self.epochs:
            for images, labels, ids in self.loader:
                yield {"input": images, "ids": ids}, labels
        raise DataloaderExhaustedError

    def state_dict(self) -> dict[str, Any]:
        return {"samplerkit": self.loader.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict:
            self.loader.load_state_dict(state_dict["samplerkit"])


def main() -> None:
    """Trains to the end."""
    loop = start()
    built = OrderedDataLoader.Config().build(dp_rank=0, dp_world_size=1, local_batch_size=32, seq_len=64)
    path = loop.folder / f"step-{loop.steps}"
    if path.exists():
        checkpoint.load({"dataloader": built}, checkpoint_id=path)
    try:
        for inputs, labels in built:
            epoch = built.loader.epoch
            if loop.train(epoch, inputs["input"], labels, inputs["ids"]):
                checkpoint.save({"dataloader": built}, checkpoint_id=loop.folder / f"step-{loop.steps}")
                loop.save(None)
    except DataloaderExhaustedError:
        loop.end()


if __name__ == "__main__":
    main()
