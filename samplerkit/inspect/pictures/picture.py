"""Draws all panels of some runs into one PNG file, or into one self-contained HTML page."""

from __future__ import annotations

import base64
import html
import io
from importlib.resources import files
from pathlib import Path
from typing import Any

from samplerkit.errors import ArgumentValueError
from samplerkit.inspect.pictures.panels import PANELS, Panel, png_figure
from samplerkit.inspect.pictures.plot_data import PlotData, plot_data

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
