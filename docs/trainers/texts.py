"""What the examples with texts share: texts of different lengths, and a network. Replace them by your own.

The texts are random: four letters in five follow from the previous letter and the author. A network that
predicts the next letter starts with a loss of 3.5, which is ln 32, and can reach 1.2.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

import samplerkit as sk

LETTERS, AUTHORS = 32, 4
NO_TARGET = -100
"""The padding of targets, which torch's losses ignore."""

BATCHES = sk.TokenBatches(2048, pool=1)
"""Batches of at most 2,048 padded letters. The set is one window, so all epochs have equally many batches."""

COLLATE = sk.PadCollate(fields=["letters", "targets"], value={"targets": NO_TARGET}, masks={})


class Texts:
    """Random texts: sample i is a dict of `letters`, the `targets` that follow them, and its `id`.

    Args:
        size: the number of texts.
        seed: the seed of the texts.

    Attributes:
        lengths: the lengths of the texts, from which batches are made.
    """

    def __init__(self, size: int = 1200, seed: int = 0) -> None:
        drawn = np.random.default_rng(seed).lognormal(3.6, 0.8, size)
        self.lengths = np.clip(drawn, 4, 256).astype(np.int64)
        self._seed = seed

    def __len__(self) -> int:
        return self.lengths.size

    def __getitem__(self, index: int) -> dict[str, object]:
        rng = np.random.default_rng([self._seed, index])
        author, letter = int(rng.integers(AUTHORS)), int(rng.integers(LETTERS))
        letters = np.empty(self.lengths[index] + 1, dtype=np.int64)
        noise = rng.integers(LETTERS, size=letters.size)
        slips = rng.random(letters.size) < 0.2
        for place in range(letters.size):
            letters[place] = letter
            letter = int(noise[place]) if slips[place] else (5 * letter + 2 * author + 1) % LETTERS
        return {"letters": letters[:-1], "targets": letters[1:], "id": index}


class Reader(nn.Module):
    """A small transformer that predicts the next letter, with equal parameters in every process."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.letters = nn.Embedding(LETTERS, width)
        self.places = nn.Embedding(512, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.out = nn.Linear(width, LETTERS)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        """Returns logits of shape (texts, longest, LETTERS)."""
        longest = letters.shape[1]
        # Padding is at the end, so causal attention needs no padding mask.
        ahead = torch.full((longest, longest), -math.inf).triu(1)
        hidden = self.letters(letters) + self.places(torch.arange(longest))
        for layer in self.layers:
            hidden = layer(hidden, src_mask=ahead, is_causal=True)
        return self.out(hidden)


def loss_sum(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns the sum of the losses of all letters except padding."""
    return nn.functional.cross_entropy(
        scores.flatten(0, 1), targets.flatten(), ignore_index=NO_TARGET, reduction="sum"
    )


@torch.no_grad()
def loss_on_new_texts(network: nn.Module) -> float:
    """Returns the loss per letter on texts that were not used for training."""
    texts = Texts(100, seed=1)
    total = 0.0
    for index in range(len(texts)):
        sample = texts[index]
        letters, targets = (torch.as_tensor(sample[name])[None] for name in ("letters", "targets"))
        total += float(loss_sum(network(letters), targets))
    return total / float(texts.lengths.sum())
