"""Draws the pictures of batches, of packs, and of which documents are read when.

Run it with `python -m tests.benchmarks.pictures_of_batches`. They come out the same each time, so a picture
that changes is a plan or an order that changed.
"""

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import samplerkit as sk
from samplerkit.inspect.pictures.panels import TEXT, draw_documents
from samplerkit.inspect.pictures.plot_data import plot_data
from samplerkit.order.typing import Ids
from tests.benchmarks.pictures_of_orders import WIDTH, keep, small_png
from tests.corpora import write_tokens

BUDGET, BATCH_SIZE = 32_768, 64
SAMPLES, RANKS, STEPS = 100_000, 4, 12
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


def draw_batches() -> bytes:
    """Draws both, the tokens of their batches above and the lengths in them below."""
    # Web text in tokens, as in C4.
    drawn = np.random.default_rng(0).lognormal(5.65, 1.02, SAMPLES)
    lengths = np.clip(drawn, 8, 4096).astype(np.int64)
    return small_png(WIDTH, 4.6, partial(_draw_both, lengths))


def _draw_both(lengths: Ids, figure: Any) -> None:
    grid = figure.subplots(2, 2, sharex=True, sharey="row")
    chosen = {f"batch_size={BATCH_SIZE}": plain(lengths), f"TokenBatches({BUDGET:,})": budgeted(lengths)}
    for column, (title, batches) in enumerate(chosen.items()):
        is_left = column == 0
        _draw_tokens(grid[0, column], [lengths[ids] for ids in batches], title, is_left=is_left)
        _draw_lengths(grid[1, column], [lengths[ids] for ids in batches], is_left=is_left)
    grid[0, 1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.02))
    grid[1, 1].legend(title="rank", markerscale=4, loc="upper left", bbox_to_anchor=(1.01, 1.02))


def _places() -> np.ndarray[Any, Any]:
    """The places of batches: those of a step side by side, with a gap between steps."""
    number = np.arange(RANKS * STEPS)
    return number // RANKS + (number % RANKS - (RANKS - 1) / 2) / (RANKS + 1)


def _draw_tokens(axes: Any, batches: list[Ids], title: str, *, is_left: bool) -> None:
    tokens = np.array([batch.sum() for batch in batches]) / THOUSAND
    padded = np.array([batch.size * batch.max() for batch in batches]) / THOUSAND
    width = 1 / (RANKS + 1)
    axes.bar(_places(), tokens, width, color="C0", label="tokens", linewidth=0)
    axes.bar(_places(), padded - tokens, width, tokens, color="C1", label="padding", linewidth=0)
    axes.axhline(BUDGET / THOUSAND, color=TEXT, linewidth=0.8, linestyle="--", label="budget")
    axes.set(title=title, ylabel="thousand tokens in a batch" if is_left else "")


def _draw_lengths(axes: Any, batches: list[Ids], *, is_left: bool) -> None:
    for rank in range(RANKS):
        numbers = range(rank, len(batches), RANKS)
        places = np.concatenate([np.full(batches[number].size, _places()[number]) for number in numbers])
        values = np.concatenate([batches[number] for number in numbers])
        axes.scatter(places, values, s=1.5, color=f"C{rank}", linewidths=0, label=str(rank))
    axes.set_yscale("log")
    axes.set(xlabel="step", ylabel="length of a sample" if is_left else "")


SEQ_LEN, ROWS = 2048, 16

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


def draw_packs() -> bytes:
    """Draws the three side by side."""
    return small_png(WIDTH, 3.6, partial(_draw_three, lengths_of()))


def _draw_three(lengths: Ids, figure: Any) -> None:
    grid = figure.subplots(1, 3, sharex=True, sharey=True)
    chosen = {"one a row": alone, "cut as they come": wrapped, f"PackBatches({SEQ_LEN})": packed}
    for axes, (title, make) in zip(grid, chosen.items(), strict=True):
        _draw_packs(axes, make(lengths), title)
    grid[0].set_ylabel("pack")
    grid[0].invert_yaxis()  # of all three, which share it
    grid[2].legend(loc="upper left", bbox_to_anchor=(1.01, 1.02))


def _draw_packs(axes: Any, rows: Bars, title: str) -> None:
    for is_cut, label in ((False, "whole document"), (True, "part of one")):
        bars = [
            (row, begin, count)
            for row, parts in enumerate(rows)
            for begin, count, cut in parts
            if cut == is_cut
        ]
        places, begins, counts = zip(*bars, strict=True) if bars else ((), (), ())
        colour = f"C{int(is_cut)}"
        axes.barh(places, counts, 0.8, begins, color=colour, label=label, edgecolor="white", linewidth=0.5)
    tokens = sum(count for parts in rows for _, count, _ in parts)
    axes.set_xlim(0, SEQ_LEN)
    axes.set(title=f"{title}: {100 * tokens / (SEQ_LEN * len(rows)):.0f} %", xlabel="token")


CORPORA = {"web-0": 60, "web-1": 60, "code": 30}
"""Documents of each file."""


def runs_of_documents(folder: Path) -> dict[str, sk.Loader]:
    """Gives the two runs, by the titles of their panels."""
    lengths = np.random.default_rng(5)
    for name, documents in CORPORA.items():
        sizes = np.clip(lengths.lognormal(6.5, 1.2, documents), 10, 20_000).astype(int)
        write_tokens(folder / name, (np.zeros(size, dtype=np.uint16) for size in sizes))
    files = {"web": [folder / "web-0", folder / "web-1"], "code": folder / "code"}
    data = sk.TokenDataset(files, 128, documents="idx", seed=1)
    by_tokens = sk.MixtureSampler({"web": None, "code": None}, weights={"web": 1, "code": 1}, seed=7)
    samplers = {
        'RandomSampler(shuffle="infile")': sk.RandomSampler(shuffle="infile", seed=7),
        "MixtureSampler, as much code as web": by_tokens,
    }
    return {
        title: sk.Loader(data, sampler, batch_size=4, world=sk.World(2, 0))
        for title, sampler in samplers.items()
    }


def draw_documents_read() -> bytes:
    """Draws both side by side."""
    with tempfile.TemporaryDirectory() as folder:
        runs = plot_data(runs_of_documents(Path(folder)))
        return small_png(WIDTH, 4.6, lambda figure: draw_documents(figure, runs))


PICTURES = {"batches.png": draw_batches, "packs.png": draw_packs, "documents.png": draw_documents_read}


def main() -> None:
    """Draws them."""
    for name, draw in PICTURES.items():
        keep(name, draw())


if __name__ == "__main__":
    main()
