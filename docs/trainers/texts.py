"""What the examples with texts share: texts of different lengths, and a network. Put your own in their place.

The texts are made up: four letters in five follow from the one before them and from the author. A network
that tells the next letter begins with a loss of 3.5, that of 32 letters, and learns towards 1.2.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

import samplerkit as sk

LETTERS, AUTHORS = 32, 4
NO_TARGET = -100
"""What targets are padded with: torch's losses leave it out."""

BATCHES = sk.TokenBatches(2048, pool=1)
"""Of 2,048 padded letters at most. The whole set is one window, so that epochs do not differ in batches."""

COLLATE = sk.PadCollate(fields=["letters", "targets"], value={"targets": NO_TARGET}, masks={})


class Texts:
    """Made-up texts: sample i is a dict of `letters`, the `targets` that follow them, and its `id`.

    Args:
        size: how many.
        seed: other texts for another one.

    Attributes:
        lengths: of the texts, by which batches are made.
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
    """A small transformer that tells the next letter, the same in every process."""

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
        """Gives scores of shape (texts, longest, LETTERS)."""
        longest = letters.shape[1]
        # Padding stands behind, so what looks back only needs no mask of it.
        ahead = torch.full((longest, longest), -math.inf).triu(1)
        hidden = self.letters(letters) + self.places(torch.arange(longest))
        for layer in self.layers:
            hidden = layer(hidden, src_mask=ahead, is_causal=True)
        return self.out(hidden)


def loss_sum(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The sum of the losses of all letters that are no padding."""
    return nn.functional.cross_entropy(
        scores.flatten(0, 1), targets.flatten(), ignore_index=NO_TARGET, reduction="sum"
    )


@torch.no_grad()
def loss_on_new_texts(network: nn.Module) -> float:
    """Gives the loss a letter of texts that were not trained on."""
    texts = Texts(100, seed=1)
    total = 0.0
    for index in range(len(texts)):
        sample = texts[index]
        letters, targets = (torch.as_tensor(sample[name])[None] for name in ("letters", "targets"))
        total += float(loss_sum(network(letters), targets))
    return total / float(texts.lengths.sum())
