"""Draws all panels of some runs into one PNG file or HTML page, and makes the page of `plot --open`.

That page shows the order while the reader changes mode, ranks, files and blocks. It computes the ids itself
with `order.js`, a second implementation of the algorithm in `samplerkit.order`. They agree for good, since
that algorithm must not change. All pages are self-contained.
"""

from __future__ import annotations

import base64
import html
import io
import json
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from samplerkit.errors import ArgumentValueError, NotSupportedError
from samplerkit.inspect.pictures.panels import PANELS, Panel, png_figure
from samplerkit.inspect.pictures.plot_data import PlotData, plot_data
from samplerkit.inspect.view import RunView

KINDS = (".png", ".html")
MAX_RUNS = 4
"""The most runs side by side; more would be too small to see."""


def draw(runs: dict[str, Any], path: str | Path, *, epoch: int = 0) -> None:
    """Draws runs side by side into a file.

    Args:
        runs: 1 to 4 loaders or configs, by the names that the pictures show.
        path: the path of the file: `.png`, or `.html` for a page with pictures for light and dark screens.
        epoch: the epoch that is drawn.

    Raises:
        ArgumentValueError: the path has another extension, or there are no or too many runs.
        DatasetError: matplotlib is not installed.
    """
    path = Path(path)
    if path.suffix.lower() not in KINDS:
        raise ArgumentValueError("path", f"must end in {' or '.join(KINDS)}", str(path))
    if not 1 <= len(runs) <= MAX_RUNS:
        raise ArgumentValueError("runs", f"must be 1 to {MAX_RUNS}", len(runs))
    shown = plot_data(runs, epoch)
    if path.suffix.lower() == ".png":
        _draw_stacked(shown, path)
    else:
        path.write_text(_page(shown), encoding="utf-8")


def _panels_of(runs: list[PlotData]) -> list[tuple[Panel, list[PlotData]]]:
    """Returns the panels that have anything to show, each with the runs that it shows."""
    shown = [(panel, [run for run in runs if panel.is_shown(run)]) for panel in PANELS]
    return [(panel, drawn) for panel, drawn in shown if drawn]


def _width(runs: list[PlotData]) -> float:
    return max(8.0, 4.4 * len(runs))


def _draw_stacked(runs: list[PlotData], path: Path) -> None:
    chosen = _panels_of(runs)
    heights = [panel.height for panel, _ in chosen]
    with png_figure(path, _width(runs), sum(heights), "light") as figure:
        parts = figure.subfigures(len(chosen), 1, height_ratios=heights, squeeze=False)[:, 0]
        for part, (panel, drawn) in zip(parts, chosen, strict=True):
            part.suptitle(panel.draw(part, drawn), x=0.01, ha="left")


def _page(runs: list[PlotData]) -> str:
    page = (files(__package__) / "page.html").read_text(encoding="utf-8")
    head, section, end = page.split("<!-- section -->\n")
    names = ", ".join(html.escape(run.name) for run in runs)
    sections = [_filled(section, _parts(panel, drawn)) for panel, drawn in _panels_of(runs)]
    return _filled(head, {"names": names, "rows": "".join(map(_row, runs))}) + "".join(sections) + end


def _filled(template: str, parts: dict[str, str]) -> str:
    for name, part in parts.items():
        template = template.replace(f"<!-- {name} -->", part)
    return template


def _parts(panel: Panel, runs: list[PlotData]) -> dict[str, str]:
    """Returns the parts of a section of the page: a picture for each kind of screen, and its texts."""
    parts = {"caption": html.escape(panel.caption)}
    for theme in ("dark", "light"):
        file = io.BytesIO()
        with png_figure(file, _width(runs) if panel.by_column else 8.0, panel.height, theme) as figure:
            # The heading is outside of the picture, so that it stays when a narrow screen scrolls sideways.
            parts["heading"] = html.escape(panel.draw(figure, runs))
        parts[theme] = base64.b64encode(file.getvalue()).decode()
    return parts


def _row(run: PlotData) -> str:
    layout, shuffle = run.view.layout, run.view.shuffle
    batches, mixing = run.figures.batches, run.figures.mixing
    cells = (
        run.name,
        run.view.fingerprint,
        "" if shuffle is None else shuffle.value.upper(),
        f"{layout.num_samples:,}",
        f"{layout.num_files:,}",
        f"{run.view.num_ranks:,}",
        f"{run.view.batch_size:,}" if batches is None else f"{batches.mean:,.1f}",
        f"{run.figures.steps[1]:,}",
        "" if mixing is None else f"{mixing.value:.3f}",
    )
    return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>\n"


MAX_SAMPLES: Final = 2**31 - 1
"""The page computes with 32-bit integers."""

MAX_FILES: Final = 10_000
MAX_RANKS: Final = 1024

_PARTS = ("explorer.css", "order.js", "figures.js", "pictures.js", "explorer.js")


@dataclass(frozen=True)
class Settings:
    """Initial settings of the page, mostly named like the samplers' arguments.

    Args:
        mode: the value of the shuffle mode.
        ranks: the number of ranks.
        sizes: samples in each file.
        batch: samples per rank and step.
        partial_size: samples in a block of PARTIAL.
        adaptive_threshold: the largest dataset that ADAPTIVE shuffles with GLOBAL.
        pools: the passes of PARTIAL, 1 or 2.
        lanes: the number of lanes; None for the number of ranks.
        seed: the seed as text, since JavaScript's numbers are exact only up to 2^53.
        epoch: the epoch.
    """

    mode: str = "partial"
    ranks: int = 4
    sizes: tuple[int, ...] = (120,) * 16
    batch: int = 4
    partial_size: int = 180
    adaptive_threshold: int = 1920
    pools: int = 1
    lanes: int | None = None
    seed: str = "7"
    epoch: int = 0

    @classmethod
    def of(cls, view: RunView, epoch: int = 0) -> Settings:
        """Returns the settings for a run.

        Args:
            view: the run.
            epoch: the epoch that is shown first.

        Raises:
            NotSupportedError: the run is not a single sampler with a shuffle mode that reads all samples, of
                which there are at least 4 and fewer than 2^31; or it has too many files or ranks.
        """
        sampler, layout = view.run.sampler, view.layout
        plain, deal = view.order_source.plain, sampler.chain.deal
        fits = 4 <= len(layout) <= MAX_SAMPLES and layout.sizes.size <= MAX_FILES
        is_plain = view.recipe is None and (deal is None or deal.offset < 0)
        if plain is None or not (is_plain and fits and view.num_ranks <= MAX_RANKS):
            problem = (
                "shows one sampler with a shuffle mode, which reads all of 4 to 2^31 - 1 samples, in at most "
                "10,000 files and on at most 1,024 ranks"
            )
            hint = "draw it: use -o order.html without --open"
            raise NotSupportedError("--open", problem, sampler, hint=hint)
        mode = plain.mode
        return cls(
            mode.shuffle.value,
            view.num_ranks,
            tuple(layout.sizes.tolist()),
            view.batch_size,
            min(mode.partial_size, MAX_SAMPLES),
            min(mode.adaptive_threshold, MAX_SAMPLES),
            mode.pools,
            mode.lanes,
            str(plain.seed),
            epoch,
        )


def page_of(settings: Settings | None = None) -> str:
    """Makes the page.

    Args:
        settings: the initial settings; None for a small example.

    Returns:
        Self-contained HTML.

    Example:
        >>> page = page_of(Settings(mode="files", ranks=2))
        >>> '"mode": "files", "ranks": 2' in page, "https://" in page
        (True, False)
    """
    folder = files(__package__)
    page = (folder / "explorer.html").read_text(encoding="utf-8")
    for name in _PARTS:
        page = page.replace(f"/* {name} */", (folder / name).read_text(encoding="utf-8").strip())
    return page.replace("/* settings */", json.dumps(asdict(settings or Settings())))
