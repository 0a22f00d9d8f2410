"""Draws how the cost of an epoch grows with n."""

import sys
from pathlib import Path
from typing import Any

try:
    import matplotlib as mpl
except ImportError:
    sys.exit("matplotlib is missing: install it to draw the pictures")

mpl.use("agg")
from matplotlib import pyplot as plt

from tests.benchmarks.peers.cases import CELL_SECONDS
from tests.benchmarks.peers.limits import ENDED
from tests.benchmarks.peers.page import NAMES, peers_of

STYLES = {
    "samplerkit": ("#1b5e9c", "o"),
    "torch": ("#d98c5f", "s"),
    "torchdata": ("#b5523b", "^"),
    "grain": ("#4f9a6b", "D"),
    "streaming": ("#9467bd", "v"),
    "mindspore": ("#8f8f8f", "P"),
    "webdataset": ("#c2a83e", "X"),
}
PANELS = (
    ("epoch", "seconds", "time to the first batch of ids, s"),
    ("epoch", "mib", "growth of the memory peak, MiB"),
    ("epoch", "per_second", "ids a second over an epoch"),
    ("resume", "seconds", "resume in mid-epoch, s"),
)
MIN_MIB = 0.5
"""Where a growth of less is drawn."""


def draw(results: dict[str, Any], path: Path) -> None:
    """Draws four panels of figures against n; a cross is a cell that was ended at a limit."""
    figure, panels = plt.subplots(2, 2, figsize=(10, 7.6), layout="constrained")
    for panel, (name, key, title) in zip(panels.flat, PANELS, strict=True):
        for peer in peers_of(results):
            cells = [cell for cell in results["peers"][peer]["curve"] if cell["cell"] == name]
            points = [
                (cell["size"], max(cell[key], MIN_MIB if key == "mib" else 0))
                for cell in cells
                if key in cell
            ]
            if not points:
                continue
            colour, marker = STYLES[peer]
            panel.plot(
                *zip(*points, strict=True), color=colour, marker=marker, markersize=5, label=NAMES[peer]
            )
            ended = next((cell for cell in cells if ENDED in cell), None)
            if ended is not None:
                # A time over the limit is drawn at the limit; of another figure, only where it ends is known.
                size, height = points[-1]
                if key == "seconds" and ended[ENDED].endswith(" s"):
                    panel.plot([size, ended["size"]], [height, CELL_SECONDS], color=colour, linestyle=":")
                    size, height = ended["size"], CELL_SECONDS
                panel.plot(size, height, color=colour, marker="x", markersize=10)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel("n, samples")
        panel.set_title(title, fontsize=10)
        panel.grid(visible=True, alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    handles, names = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False, fontsize=9)
    figure.savefig(path, dpi=120)
    plt.close(figure)
