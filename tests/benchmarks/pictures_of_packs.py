"""Draws the picture of packs: documents one a row, cut as they come, and packed by best fit.

Run it with `python -m tests.benchmarks.pictures_of_packs`. It comes out the same each time, so a picture
that changes is a plan that changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import samplerkit as sk
from samplerkit.inspect.pictures.panels import LIGHT, dress, legend, new_figure
from samplerkit.order.typing import Ids
from tests.benchmarks.pictures_of_orders import WIDTH, keep, small_png_of

NAME = "packs.png"
SEQ_LEN, ROWS = 2048, 16
HEIGHT = 3.6

Bars = list[list[tuple[int, int, bool]]]
"""Rows of (begin, tokens, whether the document is cut)."""


def lengths_of() -> Ids:
    """The lengths of documents."""
    return np.clip(np.random.default_rng(5).lognormal(6.1, 1.1, 600), 10, 6000).astype(np.int64)


def alone(lengths: Ids) -> Bars:
    """One document a row, cut off where the row ends."""
    return [[(0, min(length, SEQ_LEN), length > SEQ_LEN)] for length in lengths[:ROWS].tolist()]


def wrapped(lengths: Ids) -> Bars:
    """Documents one after another, cut wherever a row ends."""
    rows: Bars = [[] for _ in range(ROWS)]
    at = 0
    for length in lengths.tolist():
        first, last = at // SEQ_LEN, (at + length - 1) // SEQ_LEN
        for row in range(first, min(last, ROWS - 1) + 1):
            begin, end = max(at, row * SEQ_LEN), min(at + length, (row + 1) * SEQ_LEN)
            rows[row].append((begin - row * SEQ_LEN, end - begin, first != last))
        at += length
    return rows


def packed(lengths: Ids) -> Bars:
    """The first packs of a plan."""
    plan = sk.PackBatches(SEQ_LEN, lengths=lengths).plan(sk.RandomSampler(seed=7), lengths.size)
    rows = []
    for number in range(ROWS):
        pack = plan[number]
        begins = np.cumsum(pack.lengths) - pack.lengths
        cut = lengths[pack.ids] > pack.lengths
        rows.append([*zip(begins.tolist(), pack.lengths.tolist(), cut.tolist(), strict=True)])
    return rows


def draw() -> bytes:
    """Draws the three side by side."""
    lengths = lengths_of()
    figure = new_figure(WIDTH, HEIGHT, LIGHT)
    grid = figure.subplots(1, 3, sharex=True, sharey=True)
    chosen = {"one a row": alone, "cut as they come": wrapped, f"PackBatches({SEQ_LEN})": packed}
    for axes, (title, make) in zip(grid, chosen.items(), strict=True):
        _draw(axes, make(lengths), title)
    grid[0].set_ylabel("pack")
    grid[0].invert_yaxis()  # of all three, which share it
    legend(grid[2], LIGHT, loc="upper left", bbox_to_anchor=(1.01, 1.02))
    return small_png_of(figure)


def _draw(axes: Any, rows: Bars, title: str) -> None:
    for is_cut, label in ((False, "whole document"), (True, "part of one")):
        bars = [
            (row, begin, count)
            for row, parts in enumerate(rows)
            for begin, count, cut in parts
            if cut == is_cut
        ]
        places, begins, counts = zip(*bars, strict=True) if bars else ((), (), ())
        colour = LIGHT.lines[int(is_cut)]
        axes.barh(
            places, counts, 0.8, begins, color=colour, label=label, edgecolor=LIGHT.background, linewidth=0.5
        )
    tokens = sum(count for parts in rows for _, count, _ in parts)
    axes.set_xlim(0, SEQ_LEN)
    dress(axes, LIGHT, f"{title}: {100 * tokens / (SEQ_LEN * len(rows)):.0f} %", "token", "")


def main() -> None:
    """Draws it."""
    keep(NAME, draw())


if __name__ == "__main__":
    main()
