"""Trains with Grain's DataLoader, which reads by an order of samplerkit: random access asks for nothing more.

python docs/trainers/train_grain.py FOLDER
"""

from __future__ import annotations

import json

import grain.python as grain
import torch
from digits import SAMPLES, Digits
from loop import begun

import samplerkit as sk

EPOCHS = 2


class Source(Digits):
    """What Grain reads from: anything with `__len__` and `__getitem__`."""

    def __repr__(self) -> str:
        # Grain compares it when a state is loaded, and Python's own has an address in it.
        return f"Digits({len(self)})"


class OrderSampler:
    """A sampler for Grain: the record of each index, over all epochs one after another."""

    def __init__(self, recipe: sk.Sampler, size: int, epochs: int) -> None:
        self.orders = [recipe.order(size, epoch) for epoch in range(epochs)]
        self.size = size

    def __len__(self) -> int:
        return self.size * len(self.orders)

    def __getitem__(self, index: int) -> grain.RecordMetadata:
        if index >= len(self):
            raise IndexError(index)
        epoch, position = divmod(index, self.size)
        return grain.RecordMetadata(index=index, record_key=int(self.orders[epoch][position]))

    def __repr__(self) -> str:
        # Likewise: the orders name the recipe, its seed and the epochs.
        return f"OrderSampler({self.orders})"


def main() -> None:
    """Trains to the end."""
    loop = begun()
    sampler = OrderSampler(sk.RandomSampler(seed=7), SAMPLES, EPOCHS)
    loader = grain.DataLoader(
        data_source=Source(),
        sampler=sampler,
        operations=[grain.Batch(32)],
        shard_options=grain.NoSharding(),
    )
    batches = iter(loader)
    if loop.data is not None:
        batches.set_state(json.dumps(loop.data).encode())
    for images, labels, ids in batches:
        # Grain's batches run on over the end of an epoch: the first sample tells the epoch.
        epoch = loop.steps * 32 // SAMPLES
        if loop.train(epoch, *(torch.as_tensor(values) for values in (images, labels, ids))):
            loop.save(json.loads(batches.get_state()))
    loop.end()


if __name__ == "__main__":
    main()
