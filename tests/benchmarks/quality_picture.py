"""Draws the curves of mixing over windows, and what training made of them."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("agg")
from matplotlib import pyplot as plt

import samplerkit as sk
from samplerkit.inspect.quality import mixing
from tests.campaigns.digit_orders import BATCH_SIZE, Trained, layout_of

BAR = 0.5
CURVES = {
    "FALSE": ({"shuffle": False}, "#8f8f8f"),
    "FILES": ({"shuffle": "files"}, "#d98c5f"),
    "PARTIAL, 72: one file": ({"shuffle": "partial", "partial_size": 72}, "#9ecae1"),
    "PARTIAL, 180": ({"shuffle": "partial", "partial_size": 180}, "#5b9bd5"),
    "PARTIAL, 540": ({"shuffle": "partial", "partial_size": 540}, "#2f6db3"),
    "GLOBAL": ({"shuffle": True}, "#1b3a5c"),
}
COLOURS = ("#2f6db3", "#d98c5f", "#4f9a6b", "#9467bd", "#8f8f8f")
MARKERS = "os^Dx"


def draw(found: dict[str, list[Trained]], path: Path) -> None:
    """Draws three panels: mixing against window size, then outcomes against figures.

    Args:
        found: for each arrangement of the digits, what came of each order.
        path: of the PNG file.
    """
    figure, panels = plt.subplots(1, 3, figsize=(13, 5))
    figure.subplots_adjust(left=0.045, right=0.99, top=0.9, bottom=0.27, wspace=0.2)
    layout = layout_of(20, 1437)
    for name, (arguments, colour) in CURVES.items():
        curve = mixing(sk.DistributedSampler(1, 0, **arguments), layout, BATCH_SIZE).curve
        panels[0].plot(
            [p.window for p in curve], [p.value for p in curve], "o-", color=colour, label=name, markersize=4
        )
    panels[0].axhline(BAR, color="black", linewidth=0.8, linestyle="--", label=f"min_quality: {BAR}")
    panels[0].set_xscale("log", base=2)
    panels[0].set_xticks([32, 64, 128, 256, 512], ["32", "64", "128", "256", "512"])
    panels[0].set(xlabel="window, samples", ylabel="mixing", ylim=(-0.03, 1.05))
    panels[0].set_title("mixing in windows of 1 to 16 batches\n(20 files, batches of 32)", fontsize=10)
    panels[0].legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, frameon=False)
    for (title, trained), colour, marker in zip(found.items(), COLOURS, MARKERS, strict=True):
        style = {"color": colour, "marker": marker, "s": 22, "alpha": 0.8, "label": title}
        panels[1].scatter(
            [one.label_mixing for one in trained], [one.accuracy.mean() for one in trained], **style
        )
        panels[2].scatter([one.mixing for one in trained], [one.loss_area.mean() for one in trained], **style)
    panels[1].set(xlabel="label mixing", ylabel="accuracy after the last epoch, %")
    panels[1].set_title("accuracy against label mixing", fontsize=10)
    panels[2].set(xlabel="mixing", ylabel="mean test loss over epochs")
    panels[2].set_title("loss against mixing, which knows no labels", fontsize=10)
    panels[1].legend(fontsize=8, loc="upper center", bbox_to_anchor=(1.1, -0.13), ncols=3, frameon=False)
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
