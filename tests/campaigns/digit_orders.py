"""The experiment behind the quality figures: one small network, many orders of the same digits.

Handwritten digits, sorted by label, lie in files. A network is trained on them in each of more than twenty
orders, with several seeds each; all networks of a layout are trained at once, as one batched product. What
came of it is correlated by ranks, with a bootstrap interval over orders and seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn import functional

import samplerkit as sk
from samplerkit.inspect.quality import label_mixing, mixing

BATCH_SIZE, EPOCHS, HIDDEN, LEARNING_RATE = 32, 6, 32, 0.2
TEST_EVERY = 5
SEEDS = 8
RESAMPLES = 2000
OUTCOMES = {"accuracy": 1, "loss_area": -1}
"""What is measured, and whether more of it is better."""


@dataclass(frozen=True)
class Digits:
    """The digits, as float tensors of shape (samples, 64) and integer labels; the training part in order."""

    pixels: torch.Tensor
    labels: torch.Tensor
    test_pixels: torch.Tensor
    test_labels: torch.Tensor

    def reordered(self, ids: Any) -> Digits:
        """Gives the digits with another order of the training part."""
        return Digits(self.pixels[ids], self.labels[ids], self.test_pixels, self.test_labels)


def sorted_digits() -> Digits:
    """The digits, the training part sorted by label."""
    digits = load_digits()
    held_out = np.arange(digits.target.size) % TEST_EVERY == 0
    pixels = torch.from_numpy(digits.data.astype(np.float32) / 16)
    labels = torch.from_numpy(digits.target.astype(np.int64))
    train = Digits(pixels[~held_out], labels[~held_out], pixels[held_out], labels[held_out])
    return train.reordered(torch.argsort(train.labels, stable=True))


def permuted_on_disk(digits: Digits, layout: sk.Layout) -> tuple[Digits, sk.Layout]:
    """The same files in an arbitrary order."""
    files = np.random.default_rng(3).permutation(layout.num_files)
    ids = np.concatenate([np.arange(*layout.starts[file : file + 2]) for file in files])
    return digits.reordered(ids), sk.Layout(layout.sizes[files])


def unsorted(digits: Digits) -> Digits:
    """The digits as if they had been collected in no order."""
    return digits.reordered(np.random.default_rng(5).permutation(len(digits.labels)))


def layout_of(num_files: int, num_samples: int) -> sk.Layout:
    """Equal files, as equal as they can be."""
    return sk.Layout([part.size for part in np.array_split(np.arange(num_samples), num_files)])


def orders(num_files: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The orders of one layout, by a name and what a sampler takes."""
    yield "false", {"shuffle": False}
    yield "global", {"shuffle": True}
    for lanes in (1, 2, 4):
        woven = f", {lanes} lanes" if lanes > 1 else ""
        yield f"files{woven}", {"shuffle": "files", "lanes": lanes}
        yield f"infile{woven}", {"shuffle": "infile", "lanes": lanes}
    size = 1437 / num_files
    for factor in (0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4, 6):
        block = round(size * factor)
        if block <= 720:
            yield f"partial {block}", {"shuffle": "partial", "partial_size": block}
    for block in (45, 90, 180, 360, 540, 719):
        yield f"partial {block}", {"shuffle": "partial", "partial_size": block}
    for factor in (0.5, 1, 2):
        block = round(size * factor)
        if block <= 360:
            yield f"partial {block}, 2 pools", {"shuffle": "partial", "partial_size": block, "pools": 2}
            yield f"partial {block}, 4 lanes", {"shuffle": "partial", "partial_size": block, "lanes": 4}


@dataclass(frozen=True)
class Trained:
    """What came of one order.

    Args:
        name: of the order.
        mixing: its mixing.
        label_mixing: its label mixing.
        accuracy: on the test part after the last epoch, in percent; shape (seeds,).
        loss_area: the mean over epochs of the loss on the test part; shape (seeds,).
    """

    name: str
    mixing: float
    label_mixing: float
    accuracy: np.ndarray[Any, Any]
    loss_area: np.ndarray[Any, Any]


def train_all(digits: Digits, layout: sk.Layout, seeds: int = SEEDS, epochs: int = EPOCHS) -> list[Trained]:
    """Trains a network for each order of the layout and each seed."""
    named = dict(orders(layout.num_files))
    samplers = [
        [sk.DistributedSampler(1, 0, seed=seed, **arguments) for seed in range(seeds)]
        for arguments in named.values()
    ]
    flat = [sampler for row in samplers for sampler in row]
    read = [np.stack([np.asarray(s.order(layout, epoch)) for s in flat]) for epoch in range(epochs)]
    losses, accuracy = train(digits, read, seeds)
    labels = digits.labels.numpy()
    shape = (len(named), seeds)
    return [
        Trained(
            name,
            mixing(row[0], layout, BATCH_SIZE).value,
            label_mixing(row[0], layout, BATCH_SIZE, labels).value,
            accuracy[-1].reshape(shape)[number],
            losses.mean(axis=0).reshape(shape)[number],
        )
        for number, (name, row) in enumerate(zip(named, samplers, strict=True))
    ]


def train(digits: Digits, read: list[np.ndarray[Any, Any]], seeds: int) -> tuple[Any, Any]:
    """Trains networks side by side: one hidden layer, plain gradient descent.

    Args:
        digits: what is read.
        read: for each epoch, the ids that each network reads; shape (networks, samples).
        seeds: networks that differ by this many first weights, again and again.

    Returns:
        The loss and the accuracy in percent on the test part; shape (epochs, networks).
    """
    networks = read[0].shape[0]
    weights = [w.requires_grad_() for w in _first_weights(networks, seeds)]
    losses, accuracies = [], []
    steps = sum(-(-ids.shape[1] // BATCH_SIZE) for ids in read)
    step = 0
    for ids in read:
        places = torch.from_numpy(ids)
        for start in range(0, ids.shape[1], BATCH_SIZE):
            batch = places[:, start : start + BATCH_SIZE]
            answers = _answers(digits.pixels[batch], weights)
            loss = functional.cross_entropy(
                answers.flatten(0, 1), digits.labels[batch].flatten(), reduction="sum"
            )
            (loss / batch.shape[1]).backward()
            rate = LEARNING_RATE * (1 - step / steps)
            step += 1
            with torch.no_grad():
                for weight in weights:
                    weight.add_(weight.grad, alpha=-rate)
                    weight.grad = None
        with torch.no_grad():
            answers = _answers(digits.test_pixels.expand(networks, -1, -1), weights)
            expected = digits.test_labels.expand(networks, -1)
            loss = functional.cross_entropy(answers.flatten(0, 1), expected.flatten(), reduction="none")
            losses.append(loss.view(networks, -1).mean(dim=1).numpy())
            right = (answers.argmax(dim=2) == expected).float().mean(dim=1)
            accuracies.append(100 * right.numpy())
    return np.stack(losses), np.stack(accuracies)


def _first_weights(networks: int, seeds: int) -> list[torch.Tensor]:
    def drawn(fan_in: int, *shape: int) -> torch.Tensor:
        each = []
        for seed in range(seeds):
            generator = torch.Generator().manual_seed(1000 * fan_in + seed)
            each.append((torch.rand(*shape, generator=generator) * 2 - 1) / fan_in**0.5)
        return torch.stack(each).repeat(networks // seeds, *(1 for _ in shape))

    return [
        drawn(64, 64, HIDDEN),
        torch.zeros(networks, 1, HIDDEN),
        drawn(HIDDEN, HIDDEN, 10),
        torch.zeros(networks, 1, 10),
    ]


def _answers(pixels: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
    first, first_bias, second, second_bias = weights
    hidden = torch.relu(torch.baddbmm(first_bias, pixels, first))
    return torch.baddbmm(second_bias, hidden, second)


class Correlation(NamedTuple):
    """A rank correlation and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def correlation(trained: list[Trained], figure: str, outcome: str) -> Correlation:
    """Correlates a figure with the mean outcome over seeds; both are drawn again for the interval."""
    figures = np.array([getattr(one, figure) for one in trained])
    outcomes = OUTCOMES[outcome] * np.stack([getattr(one, outcome) for one in trained])
    generator = np.random.default_rng(0)
    drawn = []
    for _ in range(RESAMPLES):
        orders = generator.integers(len(trained), size=len(trained))
        seeds = generator.integers(outcomes.shape[1], size=outcomes.shape[1])
        drawn.append(spearman(figures[orders], outcomes[orders][:, seeds].mean(axis=1)))
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Correlation(spearman(figures, outcomes.mean(axis=1)), float(low), float(high))


def spearman(one: Any, other: Any) -> float:
    """Spearman's rank correlation; ties get their mean rank."""
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: Any) -> np.ndarray[Any, Any]:
    # Figures that differ by rounding only are ties.
    _, which, counts = np.unique(np.round(values, 6), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[which]
