"""The panels of a picture: order, batches by length, files read together, mixing, files of a batch.

Each function draws on a figure, and returns the heading.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from samplerkit.inspect.costs import spread_over
from samplerkit.inspect.pictures.plot_data import EPOCHS, MAX_PARTS, WINDOW_BATCHES, Counts, PlotData
from samplerkit.order.typing import Ids
from samplerkit.storage.files.packages import extra

FAINT, TEXT = "C8", "C9"
"""Colours of matplotlib's cycle for grids and for text, after those of ranks and configs."""


@contextmanager
def png_figure(file: Any, width: float, height: float, theme: str) -> Iterator[Any]:
    """Makes a matplotlib figure, and writes it as a PNG file at the end of the `with` block.

    Args:
        file: the file, or its path.
        width: width in inches.
        height: height in inches.
        theme: `light` or `dark`, the name of a style sheet in this folder.

    Raises:
        DatasetError: matplotlib is not installed.
    """
    figures, style = (extra(f"matplotlib.{name}", "plot") for name in ("figure", "style"))
    sheets = [Path(__file__).with_name(f"{name}.mplstyle") for name in ("pictures", theme)]
    with style.context(sheets):
        figure = figures.Figure(figsize=(width, height), layout="constrained")
        yield figure
        # No program, version or date in the metadata, so that equal pictures are equal files.
        figure.savefig(file, format="png", metadata={"Software": None})


DrawPanel = Callable[[Any, list[PlotData]], str]
"""Draws on a figure, and returns the heading."""


@dataclass(frozen=True)
class Panel:
    """A panel of the picture.

    Args:
        draw: draws the panel on a figure, and returns its heading.
        height: height in inches.
        is_shown: returns whether a run has anything to show in the panel.
        by_column: whether each run has its own column, so that more runs need more width.
    """

    draw: DrawPanel
    height: float
    is_shown: Callable[[PlotData], bool]
    by_column: bool

    @property
    def caption(self) -> str:
        """An explanation of the panel, in a sentence or two."""
        return " ".join((self.draw.__doc__ or "").partition("\n\n")[2].split())


PANELS: list[Panel] = []
"""All panels, from top to bottom."""


def panel(
    height: float, is_shown: Callable[[PlotData], bool] = lambda _: True, *, by_column: bool = True
) -> Callable[[DrawPanel], DrawPanel]:
    """Registers a function as a panel; its docstring without the first line is the caption."""

    def register(draw: DrawPanel) -> DrawPanel:
        PANELS.append(Panel(draw, height, is_shown, by_column))
        return draw

    return register


_MAX_RANKS = 8
_MAX_BORDERS = 100
_MAX_NAMES = 12
_THOUSANDS = "{x:,.7g}"
"""The format of steps and ids: in full below 1e7."""

_LARGEST_RATIO = 3
"""The largest ratio of co-occurrence that has its own colour, as a power of two."""


@panel(4.6)
def draw_orders(figure: Any, runs: list[PlotData]) -> str:
    """Draws step against sample id, coloured by rank, with the borders of files; one column per run.

    Each point is a sample that a rank reads. A full shuffle is an even cloud; stairs and bands are files that
    are read one after another.
    """
    for axes, run in zip(_columns(figure, len(runs)), runs, strict=True):
        layout, shuffle = run.view.layout, run.view.shuffle
        _draw_points(axes, run.view.num_ranks, layout.starts[1:-1], *run.points)
        mode = "no shuffle mode" if shuffle is None else shuffle.value.upper()
        axes.set(title=f"{run.name}: {mode}", xlabel="step", ylabel="sample id")
        axes.set_ylim(-0.01 * layout.num_samples, 1.01 * max(1, layout.num_samples))
    return f"Samples read in each step (epoch {runs[0].epoch}; lines: borders of files)"


@panel(4.6, lambda run: run.documents_read is not None)
def draw_documents(figure: Any, runs: list[PlotData]) -> str:
    """Draws step against document, file above file, coloured by rank; one column per run of tokens.

    Each point is a part of a document in a window that a rank reads. A full shuffle of windows is an even
    cloud; a long document is read in many steps.
    """
    for axes, run in zip(_columns(figure, len(runs)), runs, strict=True):
        if run.documents_read is None:
            continue
        (steps, ranks, read_files, read_places), are_known = run.documents_read
        files, file_index = np.unique(read_files, return_inverse=True)
        sizes = np.zeros(files.size, dtype=np.int64)
        np.maximum.at(sizes, file_index, read_places + 1)
        begins = np.cumsum(sizes) - sizes
        places = begins[file_index] + read_places
        _draw_points(axes, run.view.num_ranks, begins[1:], steps, places, ranks)
        unit = "document" if are_known else "token"
        axes.set(title=run.name, xlabel="step", ylabel=unit if files.size == 1 else f"{unit}, file by file")
        if files.size > 1:
            shown = spread_over(files.size, _MAX_NAMES)
            labels = [f"file {file}" for file in files[shown]]
            axes.set_yticks((begins + sizes / 2)[shown], labels)
    return f"Documents read in each step (epoch {runs[0].epoch}; lines: borders of files)"


@panel(3.9, lambda run: run.has_lengths)
def draw_batches(figure: Any, runs: list[PlotData]) -> str:
    """Draws each batch of samples of different lengths from shortest to longest, coloured by rank.

    Each line is a batch, from its shortest to its longest sample: short lines waste little padding. If the
    lines of a step are at the same height, the step costs the same on all ranks.
    """
    for axes, run in zip(_columns(figure, len(runs)), runs, strict=True):
        steps, ranks, low, high = run.batches
        for colour, mask, _ in _by_colour(run.view.num_ranks, ranks):
            # Lines of the ranks of a step are drawn side by side, so that none hides another.
            x = steps[mask] + 0.7 * (ranks[mask] / run.view.num_ranks - 0.5)
            axes.vlines(x, low[mask], high[mask], color=colour, linewidth=1.1, alpha=0.8)
            axes.scatter(x, high[mask], s=3, color=colour, linewidths=0)
        axes.set_yscale("log", base=2)
        axes.xaxis.set_major_formatter(_THOUSANDS)
        axes.yaxis.set_major_formatter(_THOUSANDS)
        axes.grid(axis="y")
        batches = run.figures.batches
        text = "" if batches is None else f"{batches.efficiency or 0:.3f} of the padded tokens are tokens"
        axes.set(title=f"{run.name}: {text}", xlabel="step", ylabel="length, shortest to longest")
    return f"Batches by length (epoch {runs[0].epoch}; dots: what samples are padded to; colours: ranks)"


@panel(3.9)
def draw_together(figure: Any, runs: list[PlotData]) -> str:
    """Draws how often files are read together, relative to a full shuffle; one column per run.

    Which files are read together in neighbouring batches. An even field is a full shuffle; a strong diagonal
    means that batches hold one file at a time.
    """
    # A single square is drawn in the left half, and not in the middle of a wide figure.
    place = figure if len(runs) > 1 else figure.subfigures(1, 2)[0]
    columns = _columns(place, len(runs))
    for axes, run in zip(columns, runs, strict=True):
        values = np.clip(run.together, -_LARGEST_RATIO, _LARGEST_RATIO)
        image = axes.imshow(
            values,
            vmin=-_LARGEST_RATIO,
            vmax=_LARGEST_RATIO,
            origin="lower",
            interpolation="nearest",
            aspect="auto",
        )
        # The constrained layout respects the aspect of the box, and not that of the image.
        axes.set_box_aspect(1)
        part = "file" if run.view.layout.has_files else "part"
        part = part if run.layout.num_files <= MAX_PARTS else f"group of {part}s"
        axes.set(title=run.name, xlabel=part, ylabel=part)
        # File numbers are integers.
        axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        axes.yaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    bar = place.colorbar(image, ax=columns, shrink=0.85, ticks=range(-_LARGEST_RATIO, _LARGEST_RATIO + 1))
    bar.ax.set_yticklabels(["1/8 or less", "1/4", "1/2", "as often", "2x", "4x", "8x or more"])
    return f"Files read together within {WINDOW_BATCHES} steps, relative to a full shuffle ({EPOCHS} epochs)"


@panel(3.6, lambda run: run.figures.mixing is not None, by_column=False)
def draw_mixing(figure: Any, runs: list[PlotData]) -> str:
    """Draws the mixing against the size of the window, all runs in one plot.

    Where the curve is low, samples of a window of that size are as similar to one another as neighbours in
    storage.
    """
    axes = _columns(figure, 1)[0]
    axes.axhline(1.0, color=FAINT, linewidth=1, linestyle="--", label="a full shuffle")
    for run in runs:
        mixing = run.figures.mixing
        if mixing is None:
            continue
        windows, values, errors = np.array([astuple(point) for point in mixing.curve]).T
        axes.errorbar(
            windows,
            values,
            yerr=2 * errors,
            color=f"C{run.number}",
            marker="o",
            markersize=4,
            linewidth=1.6,
            capsize=2,
            label=f"{run.name}: {mixing.value:.2f} on average",
        )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(_THOUSANDS)
    axes.grid()
    axes.set_ylim(0, 1.12)
    axes.set(xlabel="window, samples (the smallest is one global batch)", ylabel="mixing, from 0 to 1")
    axes.legend(loc="lower right")
    return "Mixing: how close a window comes to a full shuffle (bars: 2 standard errors)"


@panel(3.0, lambda run: run.view.layout.has_files and run.files_of_batches[0].size > 0, by_column=False)
def draw_files_of_batches(figure: Any, runs: list[PlotData]) -> str:
    """Draws the number of files in a batch over the epoch, all runs with files in one plot.

    The cost of reading: each file of a batch has to be open, or in the cache.
    """
    shuffled: dict[float, list[str]] = {}
    for run in runs:
        shuffled.setdefault(round(run.figures.files_of_a_shuffled_batch, 1), []).append(run.name)
    levels = {}
    for count, names in shuffled.items():
        run_names = "" if len(shuffled) == 1 else f" of {', '.join(names)}"
        levels[f"a full shuffle{run_names}: {count}"] = count
    _draw_counts(figure, [(run, run.files_of_batches) for run in runs], "files", levels)
    return "Files per batch (mean over ranks)"


@panel(3.0, lambda run: bool(run.documents_of_batches[1].any()), by_column=False)
def draw_documents_of_batches(figure: Any, runs: list[PlotData]) -> str:
    """Draws the number of documents in a batch of windows of tokens over the epoch, all runs in one plot.

    Documents in a batch, whole or in part: few where windows of one document are read together.
    """
    _draw_counts(figure, [(run, run.documents_of_batches) for run in runs], "documents", {})
    return "Documents per batch of windows (mean over ranks)"


def _draw_counts(
    figure: Any, curves: list[tuple[PlotData, Counts]], unit: str, levels: dict[str, float]
) -> None:
    """Draws counts of batches against the step, and levels to compare them with."""
    axes = _columns(figure, 1)[0]
    for run, (steps, counts) in curves:
        label = f"{run.name}: {counts.mean():.1f} on average"
        axes.plot(steps, counts, color=f"C{run.number}", linewidth=1.6, label=label)
    for label, count in levels.items():
        axes.axhline(count, color=TEXT, linewidth=1, linestyle="--", zorder=0, label=label)
    # Room at the top: a count that is the same in all steps would be drawn on the frame.
    axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
    axes.grid()
    axes.set(xlabel="step", ylabel=f"{unit} in a batch of one rank")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))


def _draw_points(axes: Any, num_ranks: int, borders: Ids, steps: Ids, places: Ids, ranks: Ids) -> None:
    """Draws a point for each read, coloured by rank, and the borders of files."""
    for colour, mask, label in _by_colour(num_ranks, ranks):
        axes.scatter(steps[mask], places[mask], s=2, color=colour, linewidths=0, label=label, alpha=0.8)
    for border in borders.tolist() if borders.size < _MAX_BORDERS else ():
        axes.axhline(border, color=FAINT, linewidth=0.6, zorder=0)
    axes.xaxis.set_major_formatter(_THOUSANDS)
    axes.yaxis.set_major_formatter(_THOUSANDS)
    many = num_ranks > _MAX_RANKS
    axes.legend(
        title="ranks" if many else "rank",
        markerscale=5,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.13),
        ncols=4 if many else _MAX_RANKS,
        columnspacing=1.2,
        handletextpad=0.2,
    )


def _by_colour(num_ranks: int, ranks: Ids) -> Iterator[tuple[str, Any, str]]:
    """Yields each colour, a mask of the marks with this colour, and a label with the colour's ranks."""
    groups = min(num_ranks, _MAX_RANKS)
    for group in range(groups):
        first = -(-group * num_ranks // groups)
        last = -(-(group + 1) * num_ranks // groups) - 1
        label = str(first) if first == last else f"{first} to {last}"
        yield f"C{group}", (first <= ranks) & (ranks <= last), label


def _columns(figure: Any, count: int) -> list[Any]:
    return list(figure.subplots(1, count, squeeze=False)[0])
