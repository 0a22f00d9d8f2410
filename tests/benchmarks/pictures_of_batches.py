"""Draws the picture of the page on batches: plain batches beside those of a budget, of the same texts.

Run it with `python -m tests.benchmarks.pictures_of_batches`. It comes out the same each time, so a picture
that changes is a plan that changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import samplerkit as sk
from samplerkit.inspect.pictures.panels import LIGHT, dress, legend, new_figure
from samplerkit.order.typing import Ids
from tests.benchmarks.batches import BATCH_SIZE, BUDGET, text
from tests.benchmarks.pictures_of_orders import WIDTH, keep, small_png_of

NAME = "batches.png"
SAMPLES, RANKS, STEPS = 100_000, 4, 12
HEIGHT = 4.6
THOUSAND = 1000


def plain(lengths: Ids) -> list[Ids]:
    """The first batches of one size."""
    order = sk.RandomSampler(seed=7).order(lengths.size, epoch=0)
    return np.split(order[: RANKS * STEPS * BATCH_SIZE], RANKS * STEPS)


def budgeted(lengths: Ids) -> list[Ids]:
    """The first batches of a budget."""
    plan = sk.TokenBatches(BUDGET, lengths=lengths, abreast=RANKS).plan(
        sk.RandomSampler(seed=7), lengths.size
    )
    return plan.batches(range(RANKS * STEPS))


def draw() -> bytes:
    """Draws both, the tokens of their batches above and the lengths in them below."""
    lengths = text(np.random.default_rng(0), SAMPLES)
    figure = new_figure(WIDTH, HEIGHT, LIGHT)
    grid = figure.subplots(2, 2, sharex=True, sharey="row")
    chosen = {f"batch_size={BATCH_SIZE}": plain(lengths), f"TokenBatches({BUDGET:,})": budgeted(lengths)}
    for column, (title, batches) in enumerate(chosen.items()):
        is_left = column == 0
        _draw_tokens(grid[0, column], [lengths[ids] for ids in batches], title, is_left=is_left)
        _draw_lengths(grid[1, column], [lengths[ids] for ids in batches], is_left=is_left)
    legend(grid[0, 1], LIGHT, loc="upper left", bbox_to_anchor=(1.01, 1.02))
    legend(grid[1, 1], LIGHT, title="rank", markerscale=4, loc="upper left", bbox_to_anchor=(1.01, 1.02))
    return small_png_of(figure)


def _places() -> np.ndarray[Any, Any]:
    """Where batches stand: those of a step side by side, with a gap between steps."""
    number = np.arange(RANKS * STEPS)
    return number // RANKS + (number % RANKS - (RANKS - 1) / 2) / (RANKS + 1)


def _draw_tokens(axes: Any, batches: list[Ids], title: str, *, is_left: bool) -> None:
    tokens = np.array([batch.sum() for batch in batches]) / THOUSAND
    padded = np.array([batch.size * batch.max() for batch in batches]) / THOUSAND
    width = 1 / (RANKS + 1)
    axes.bar(_places(), tokens, width, color=LIGHT.lines[0], label="tokens", linewidth=0)
    axes.bar(_places(), padded - tokens, width, tokens, color=LIGHT.lines[1], label="padding", linewidth=0)
    axes.axhline(BUDGET / THOUSAND, color=LIGHT.text, linewidth=0.8, linestyle="--", label="budget")
    dress(axes, LIGHT, title, "", "thousand tokens in a batch" if is_left else "")


def _draw_lengths(axes: Any, batches: list[Ids], *, is_left: bool) -> None:
    for rank in range(RANKS):
        mine = range(rank, len(batches), RANKS)
        places = np.concatenate([np.full(batches[number].size, _places()[number]) for number in mine])
        values = np.concatenate([batches[number] for number in mine])
        axes.scatter(places, values, s=1.5, color=LIGHT.lines[rank], linewidths=0, label=str(rank))
    axes.set_yscale("log")
    dress(axes, LIGHT, "", "step", "length of a sample" if is_left else "")


def main() -> None:
    """Draws it."""
    keep(NAME, draw())


if __name__ == "__main__":
    main()
