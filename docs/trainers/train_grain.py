"""Trains with Grain's DataLoader, which reads by an order of samplerkit.

python docs/trainers/train_grain.py FOLDER
"""

from __future__ import annotations

import json

import grain.python as grain
import torch
from digits import SAMPLES, Digits
from loop import start

import samplerkit as sk

EPOCHS = 2


class Source(Digits):
    """A source for Grain: anything with `__len__` and `__getitem__`."""

    def __repr__(self) -> str:
        # Grain compares it when a state is loaded; Python's default contains an address.
        return f"Digits({len(self)})"


class OrderSampler:
    """A sampler for Grain: returns the record of each index, over all epochs one after another."""

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
        # For the same reason: the orders name the recipe, its seed and the epochs.
        return f"OrderSampler({self.orders})"


def main() -> None:
    """Trains to the end."""
    loop = start()
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
        # Grain's batches may cross the end of an epoch: the epoch is that of the first sample.
        epoch = loop.steps * 32 // SAMPLES
        if loop.train(epoch, *(torch.as_tensor(values) for values in (images, labels, ids))):
            loop.save(json.loads(batches.get_state()))
    loop.end()


if __name__ == "__main__":
    main()
