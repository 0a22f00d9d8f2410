"""Spearman's rank correlation, with a bootstrap interval over orders and seeds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tests.campaigns.digit_orders import Trained

RESAMPLES = 2000
OUTCOMES = {"accuracy": 1, "loss_area": -1}
"""What is measured, and whether more of it is better."""


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
