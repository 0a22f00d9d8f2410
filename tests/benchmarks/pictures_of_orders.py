"""Draws the pictures of the pages on samplers and shuffle modes.

Run it with `python -m tests.benchmarks.pictures_of_orders`. Each shows which sample is read in which step and
by which rank. They come out the same each time, so a picture that changes is an order that changed.
"""

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from PIL import Image

import samplerkit as sk
from samplerkit.inspect.pictures.panels import FAINT, TEXT, png_figure
from samplerkit.inspect.pictures.plot_data import PlotData, plot_data
from tests.chains import under

FOLDER = Path(__file__).parents[2] / "docs" / "images"
SHADES = 8
"""Steps from a colour to the background, for smooth letters and points."""

WIDTH, HEIGHT = 7.6, 2.5
"""Inches; a page is about 7 inches wide."""

MODE_FILES = sk.Layout([120] * 16)
SAMPLER_FILES = sk.Layout([60] * 8)
LISTED = [*range(420, 300, -1), *range(60, 180)]


@dataclass(frozen=True)
class Orders:
    """What one panel shows.

    Args:
        title: of the panel.
        sampler: the recipe.
        layout: what it reads.
        shows: how far below the root the sampler of the panel is.
        ranks: of the job.
        batch_size: samples a rank and step.
    """

    title: str
    sampler: sk.Sampler
    layout: sk.Layout = SAMPLER_FILES
    ranks: int = 2
    batch_size: int = 4
    shows: int = 0

    @property
    def about(self) -> sk.Sampler:
        """The sampler that the panel is about."""
        return self.sampler._links()[self.shows]

    @property
    def shown(self) -> PlotData:
        """The run as pictures see it."""
        loader = sk.Loader(
            self.layout,
            self.sampler,
            batch_size=self.batch_size,
            world=sk.World(self.ranks, 0),
            tail="ragged",
        )
        return plot_data({self.title: loader})[0]


def _mode(shuffle: str, title: str = "", layout: sk.Layout = MODE_FILES, **more: Any) -> Orders:
    return Orders(
        title or shuffle.upper(), sk.DistributedSampler(shuffle=shuffle, seed=7, **more), layout, ranks=4
    )


MODES = {
    "false": [_mode("false")],
    "global": [_mode("global")],
    "partial": [_mode("partial", "PARTIAL, partial_size=180", partial_size=180)],
    "files": [_mode("files")],
    "infile": [_mode("infile")],
    "adaptive": [
        _mode("adaptive", "ADAPTIVE, adaptive_threshold=1920", adaptive_threshold=1920, partial_size=180),
        _mode("adaptive", "ADAPTIVE, adaptive_threshold=1919", adaptive_threshold=1919, partial_size=180),
    ],
}


SAMPLERS = {
    "sequential": Orders("SequentialSampler(start_index=60)", sk.SequentialSampler(start_index=60)),
    "random": Orders("RandomSampler(seed=7)", sk.RandomSampler(seed=7)),
    "subset": Orders("SubsetSampler([420, 419, ..., 301, 60, 61, ..., 179])", sk.SubsetSampler(LISTED)),
    "subset_random": Orders(
        "SubsetRandomSampler([420, 419, ..., 301, 60, 61, ..., 179], seed=7)",
        sk.SubsetRandomSampler(LISTED, seed=7),
    ),
    "weighted_random": Orders(
        "WeightedRandomSampler(range(480), seed=7)", sk.WeightedRandomSampler(range(480), seed=7)
    ),
    "pk": Orders(
        "PKSampler(40, labels=...): 8 classes of 60 samples",
        sk.PKSampler(40, seed=7, labels=np.repeat(np.arange(8), 60)),
    ),
    "iter": Orders(
        "IterSampler(...): every fourth sample, and from the second on again, ...",
        sk.IterSampler([number for first in range(4) for number in range(first, 480, 4)]),
    ),
    "mixture": Orders(
        "MixtureSampler([4, 3, 2, 1], seed=7)",
        sk.MixtureSampler([4, 3, 2, 1], num_samples=480, seed=7),
        sk.Layout([120] * 4),
    ),
    "repeat": Orders(
        "RepeatSampler(3, num_samples=480) over RandomSampler(seed=7)",
        under(sk.RepeatSampler(3, num_samples=480), sk.RandomSampler(seed=7)),
    ),
    "repeat_factor": Orders(
        "RepeatFactorSampler([1] * 420 + [4] * 60), shuffled by a RandomSampler above",
        under(sk.RandomSampler(seed=7), sk.RepeatFactorSampler([1] * 420 + [4] * 60, seed=7)),
        shows=1,
    ),
    "window": Orders(
        'WindowSampler(12, stride=4) under RandomSampler(shuffle="files", lanes=2)',
        under(sk.RandomSampler(shuffle="files", lanes=2, seed=7), sk.WindowSampler(12, stride=4)),
        shows=1,
    ),
    "block": Orders(
        "BlockSampler(4, seed=7): blocks of 12 windows, in pools of 4 blocks",
        sk.BlockSampler(4, seed=7, windows_per_block=12),
    ),
    "fold": Orders(
        "FoldSampler(4, 1, by_files=True), seed=7, under a RandomSampler",
        under(sk.RandomSampler(seed=7), sk.FoldSampler(4, 1, by_files=True, seed=7)),
        shows=1,
    ),
    "distributed": Orders(
        'DistributedSampler(shuffle="files", seed=7)', sk.DistributedSampler(shuffle="files", seed=7), ranks=4
    ),
}


def draw_mode(panels: list[Orders]) -> bytes:
    """Draws one shuffle mode, or two sides of it."""
    return _drawn(WIDTH, HEIGHT, 1, panels)


def draw_tutorial() -> bytes:
    """Draws the two configs of the tutorial side by side."""
    chosen = {"files.yaml": {"shuffle": "files"}, "train.yaml": {"shuffle": "partial", "partial_size": 960}}
    layout = sk.Layout([120] * 40)
    panels = [
        Orders(title, sk.DistributedSampler(seed=7, **mode), layout, batch_size=32)
        for title, mode in chosen.items()
    ]
    return _drawn(WIDTH, 1.2 * HEIGHT, 1, panels)


def draw_mixture() -> bytes:
    """Draws shares of 3 and 1 on four ranks: in one lane, and in a lane for each rank."""
    layout = sk.Layout.tree({"a": 360, "b": 120})
    panels = [
        Orders(f"lanes={lanes}", sk.MixtureSampler([3, 1], 480, lanes=lanes, seed=7), layout, ranks=4)
        for lanes in (1, 4)
    ]
    return _drawn(WIDTH, 1.2 * HEIGHT, 1, panels)


def draw_modes() -> bytes:
    """Draws the modes in one picture, of half as many samples."""
    chosen = {
        "FALSE": {"shuffle": "false"},
        "GLOBAL": {"shuffle": "global"},
        "PARTIAL": {"shuffle": "partial", "partial_size": 90},
        "PARTIAL, two pools": {"shuffle": "partial", "partial_size": 90, "pools": 2},
        "FILES": {"shuffle": "files"},
        "INFILE": {"shuffle": "infile"},
    }
    panels = [_mode(title=title, layout=sk.Layout([60] * 16), **mode) for title, mode in chosen.items()]
    return _drawn(WIDTH, 1.9 * HEIGHT, 2, panels)


def _drawn(width: float, height: float, rows: int, panels: list[Orders]) -> bytes:
    def draw(figure: Any) -> None:
        grid = figure.subplots(rows, len(panels) // rows, squeeze=False, sharex=rows > 1, sharey=rows > 1)
        for number, (axes, orders) in enumerate(zip(grid.flat, panels, strict=True)):
            is_left = number % (len(panels) // rows) == 0
            is_low = number >= len(panels) * (rows - 1) // rows
            _draw(axes, orders, "step" if is_low else "", "sample id" if is_left else "")
        grid[0, -1].legend(title="rank", markerscale=5, loc="upper left", bbox_to_anchor=(1.01, 1.02))

    return small_png(width, height, draw)


def keep(name: str, content: bytes) -> None:
    """Writes a picture of the docs, and says how large it is."""
    (FOLDER / name).write_bytes(content)
    sys.stdout.write(f"{name}: {len(content):,} bytes\n")


def small_png(width: float, height: float, draw: Callable[[Any], object]) -> bytes:
    """Draws a figure in the theme's colours, as a small PNG file."""
    large, stream = io.BytesIO(), io.BytesIO()
    with png_figure(large, width, height, "light") as figure:
        draw(figure)
        palette = _palette()
    image = Image.open(large).convert("RGB")
    image.quantize(palette=palette, dither=Image.Dither.NONE).save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _palette() -> Image.Image:
    """A palette of the theme's own colours: a fourth of the bytes, and no rank in another one's colour."""
    named = (TEXT, FAINT, *(f"C{rank}" for rank in range(4)))
    colours = 255 * np.array([to_rgb(name) for name in named])
    share = np.linspace(0, 1, SHADES)[:, None, None]
    shades = np.rint(colours * (1 - share) + 255 * share).astype(np.uint8)
    palette = Image.new("P", (1, 1))
    palette.putpalette(shades.tobytes())
    return palette


def _draw(axes: Any, orders: Orders, across: str, up: str) -> None:
    steps, ids, ranks = orders.shown.points
    for rank in range(orders.ranks):
        is_rank = ranks == rank
        axes.scatter(steps[is_rank], ids[is_rank], s=3, color=f"C{rank}", linewidths=0, label=str(rank))
    for border in orders.layout.starts[1:-1].tolist():
        axes.axhline(border, color=FAINT, linewidth=0.6, zorder=0)
    axes.set(title=orders.title, xlabel=across, ylabel=up)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylim(-0.02 * len(orders.layout), 1.02 * len(orders.layout))


def pictures() -> dict[str, Callable[[], bytes]]:
    """Gives what draws each picture, by the name of its file."""
    modes = {f"mode_{name}.png": lambda panels=panels: draw_mode(panels) for name, panels in MODES.items()}
    samplers = {
        f"sampler_{name}.png": lambda orders=orders: draw_mode([orders]) for name, orders in SAMPLERS.items()
    }
    drawn = {"modes.png": draw_modes, "tutorial.png": draw_tutorial, "mixture_ranks.png": draw_mixture}
    return {**drawn, **modes, **samplers}


def main() -> None:
    """Draws them all."""
    for name, draw in pictures().items():
        keep(name, draw())


if __name__ == "__main__":
    main()
