"""Trains with timm's collating, prefetching and normalizing, around a loader that resumes in mid-epoch.

python docs/trainers/train_timm.py FOLDER
"""

from __future__ import annotations

import numpy as np
import torch
from digits import Digits
from loop import start
from timm.data.loader import PrefetchLoader, fast_collate

import samplerkit as sk

EPOCHS = 2


class Images:
    """A dataset as timm's collating requires it: an image of bytes, and a target, here its number."""

    def __init__(self, digits: Digits) -> None:
        self.digits = digits

    def __len__(self) -> int:
        return len(self.digits)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        pixels = (self.digits.images[index] * 255).to(torch.uint8).numpy()
        return pixels.reshape(1, 8, 8).repeat(3, axis=0), index


def main() -> None:
    """Trains to the end."""
    loop, digits = start(), Digits()
    loader = sk.Loader(Images(digits), sk.RandomSampler(seed=7), batch_size=32, collate_fn=fast_collate)
    if loop.data is not None:
        loader.load_state_dict(loop.data)
    batches = PrefetchLoader(loader, mean=(0, 0, 0), std=(1, 1, 1), device=torch.device("cpu"))

    while (epoch := loader.epoch) < EPOCHS:
        for step, (images, ids) in enumerate(batches, 1):
            if loop.train(epoch, images[:, 0].flatten(1), digits.labels[ids], ids):
                # timm reads one batch ahead: save the state after the steps of this loop.
                loop.save(loader.state_dict(step=step))
        loader.load_state_dict(loader.state_dict())  # all batches of the epoch were received
    loop.end()


if __name__ == "__main__":
    main()
