"""Where pictures are drawn: matplotlib without a window, in a light and a dark theme."""

from __future__ import annotations

import io
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from samplerkit.errors import SamplerkitError

DOTS_PER_INCH = 160
"""Text of 9 points then stands 20 pixels high."""


class MissingMatplotlibError(SamplerkitError, ImportError):
    """Pictures need matplotlib, which comes with the extra `plot`."""


@dataclass(frozen=True)
class Theme:
    """Colours that can be told apart on their background, by people who see red and green alike too.

    Args:
        background: of the picture.
        text: of words and axes.
        faint: of grids and borders of files.
        lines: for ranks and configs, one after another.
        diverging: the name of matplotlib's colour map, whose middle is the background.
    """

    background: str
    text: str
    faint: str
    lines: tuple[str, ...]
    diverging: str


LIGHT = Theme(
    "#ffffff",
    "#1f2328",
    "#c4ccd4",
    ("#0072b2", "#e08e00", "#009e73", "#c0569a", "#d5400e", "#3fa7dd", "#7a5fc0", "#7f7f7f"),
    "RdBu_r",
)
"""For paper and bright screens."""

DARK = Theme(
    "#0d1117",
    "#e6edf3",
    "#3d444d",
    ("#5aa9e6", "#f2b134", "#2cc295", "#e58fc4", "#f58055", "#9adcf7", "#b3a3ee", "#b5b5b5"),
    "berlin",
)
"""For dark screens."""


def new_figure(width: float, height: float, theme: Theme) -> Any:
    """Makes a figure of matplotlib.

    Raises:
        MissingMatplotlibError: matplotlib is not installed.
    """
    try:
        # An extra: all else works without it.
        module = import_module("matplotlib.figure")
    except ImportError as error:
        hint = 'install it with: pip install "samplerkit[plot]"'
        raise MissingMatplotlibError("plot", "needs matplotlib, which is not installed", hint=hint) from error
    return module.Figure(figsize=(width, height), layout="constrained", facecolor=theme.background)


def png_of(figure: Any) -> bytes:
    """Gives a figure as a PNG file."""
    stream = io.BytesIO()
    # No program, version or date in it: the same picture is the same file.
    figure.savefig(stream, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    return stream.getvalue()


def dress(axes: Any, theme: Theme, title: str, across: str, up: str) -> None:
    """Gives axes their title, names and colours."""
    axes.set_facecolor(theme.background)
    axes.set_title(title, color=theme.text, fontsize=10, loc="left")
    axes.set_xlabel(across, color=theme.text, fontsize=9)
    axes.set_ylabel(up, color=theme.text, fontsize=9)
    axes.tick_params(colors=theme.text, labelsize=8)
    for spine in axes.spines.values():
        spine.set_color(theme.faint)


def head(figure: Any, theme: Theme, text: str) -> None:
    """Writes a heading above a figure."""
    figure.suptitle(text, color=theme.text, fontsize=11, fontweight="bold", x=0.01, ha="left")


def legend(axes: Any, theme: Theme, **options: Any) -> None:
    """Gives axes a legend in the theme's colours."""
    made = axes.legend(
        fontsize=8,
        labelcolor=theme.text,
        facecolor=theme.background,
        edgecolor=theme.faint,
        framealpha=0.9,
        title_fontsize=8,
        **options,
    )
    made.get_title().set_color(theme.text)
