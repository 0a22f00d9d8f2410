"""The quality figures by their definition: every pair of positions of an epoch, distance by distance."""

from typing import Any

import numpy as np

import samplerkit as sk


def pair_means(values: Any, windows: tuple[int, ...], of_pairs: Any) -> np.ndarray[Any, Any]:
    """The weighted mean of a function of pairs in each window, for each epoch.

    Args:
        values: of each epoch; shape (epochs, n).
        windows: their sizes.
        of_pairs: gives a number for each pair, from two arrays.

    Returns:
        float64 of shape (epochs, windows).
    """
    size, widest = values.shape[1], max(windows)
    weights = np.array(
        [[max(0, w - d) * (size - d) if d else 0 for d in range(widest)] for w in windows], dtype=float
    )
    means = np.zeros((len(values), widest))
    for distance in range(1, widest):
        means[:, distance] = of_pairs(values[:, distance:], values[:, :-distance]).mean(axis=1)
    return means @ weights.T / weights.sum(axis=1)


def epochs_of(sampler: sk.Sampler, layout: sk.Layout, epochs: int) -> Any:
    """The orders of some epochs; shape (epochs, n)."""
    return np.stack([np.asarray(sampler.undealt_order(layout, epoch)) for epoch in range(epochs)])


def file_mixing(sampler: sk.Sampler, layout: sk.Layout, windows: tuple[int, ...], epochs: int) -> Any:
    """File mixing, for each epoch: shape (epochs,)."""
    return group_mixing(sampler, layout, layout.file_of(np.arange(len(layout))), windows, epochs)


def group_mixing(
    sampler: sk.Sampler, layout: sk.Layout, groups: Any, windows: tuple[int, ...], epochs: int
) -> Any:
    """The mixing of the groups of samples, such as files or labels, for each epoch: shape (epochs,)."""
    together = pair_means(groups[epochs_of(sampler, layout, epochs)], windows, np.equal)
    equal = (groups[:, None] == groups[None, :]).sum() - groups.size
    return ((1 - together) / (1 - equal / (groups.size * (groups.size - 1)))).mean(axis=1)


def spread(sampler: sk.Sampler, layout: sk.Layout, windows: tuple[int, ...], epochs: int) -> Any:
    """Spread, for each epoch: shape (epochs,)."""
    apart = pair_means(epochs_of(sampler, layout, epochs), windows, lambda one, other: np.abs(one - other))
    everyone = np.arange(len(layout))
    mean = np.abs(everyone[:, None] - everyone[None, :]).sum() / (len(layout) * (len(layout) - 1))
    return (apart / mean).mean(axis=1)
