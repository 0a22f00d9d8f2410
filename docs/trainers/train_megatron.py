"""Trains like Megatron-LM with `--dataloader-type external`, which requests batches and a state to save.

python docs/trainers/train_megatron.py FOLDER
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from digits import Digits
from loop import start
from megatron.core import parallel_state
from megatron.core.rerun_state_machine import RerunDataIterator

import samplerkit as sk

EPOCHS = 2


class External:
    """The training dataloader, as your dataset provider returns it.

    Args:
        loader: a loader of the micro-batches of this data-parallel rank.
    """

    def __init__(self, loader: sk.Loader) -> None:
        self.loader = loader
        self.batches = iter(loader)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self.loader.remaining:  # Megatron counts steps, not epochs
            self.batches = iter(self.loader)
        return next(self.batches)

    def save_state(self) -> dict[str, Any]:
        """Returns what Megatron saves for each data-parallel rank in `--dataloader-save`; all are equal."""
        return self.loader.state_dict()


def main() -> None:
    """Trains to the end."""
    loop = start()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # by torchrun in Megatron
    parallel_state.initialize_model_parallel()
    ranks = parallel_state.get_data_parallel_world_size()
    world = sk.World(ranks, parallel_state.get_data_parallel_rank())  # ranks of one replica read the same
    loader = sk.Loader(Digits(), sk.RandomSampler(seed=7), batch_size=32 // ranks, world=world)
    if loop.data is not None:
        loader.load_state_dict(loop.data)

    batches = RerunDataIterator(iter(External(loader)))  # Megatron's wrapper
    for _ in range(loop.steps, EPOCHS * len(loader)):
        epoch = loop.steps // len(loader)
        if loop.train(epoch, *next(batches)):
            loop.save(batches.iterable.save_state())
    loop.end()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
