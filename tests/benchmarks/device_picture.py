"""Draws what the benchmark of the device loader measured."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("agg")
from matplotlib import pyplot as plt

COLOURS = {
    "plain, 0 workers": "#c9c9c9",
    "plain, 2 workers": "#8f8f8f",
    "published design": "#d98c5f",
    "DeviceLoader, 0 workers": "#2f6db3",
    "DeviceLoader, 2 workers": "#7fb0e0",
}


def draw(tables: dict[str, dict[str, dict[str, float]]], floor: str, path: Path) -> None:
    """Draws a panel for each table, with a bar for each loader and case.

    Args:
        tables: by title, by T_load / T_train and by loader: total / max(T_load, T_train).
        floor: the name of what is drawn as a line: loads and steps that nothing joins.
        path: of the PNG file.
    """
    widths = [max(2, len(table)) for table in tables.values()]
    figure, panels = plt.subplots(
        1, len(tables), figsize=(12, 4.5), sharey=True, width_ratios=widths, layout="constrained"
    )
    for panel, (title, table) in zip(panels, tables.items(), strict=True):
        for place, (name, colour) in enumerate(COLOURS.items()):
            heights = [values[name] for values in table.values()]
            left = [case + (place - 2) * 0.17 for case in range(len(table))]
            panel.bar(left, heights, 0.16, color=colour, label=name)
            for x, height in zip(left, heights, strict=True):
                label = f"{height:.2f}" if name.startswith("plain") else f"{height:.3f}"
                panel.text(x, height + 0.02, label, ha="center", va="bottom", rotation=90, fontsize=7)
        for case, values in enumerate(table.values()):
            label = "two processes, no loader" if case == 0 else None
            panel.hlines(
                values[floor], case - 0.45, case + 0.45, "black", "dotted", linewidth=1.2, label=label
            )
        panel.axhline(1, color="black", linewidth=0.8)
        panel.set_xticks(range(len(table)), table)
        panel.set_xlim(-0.6, len(table) - 0.4)
        panel.set_xlabel("T_load / T_train")
        panel.set_title(title.replace(", steps", ",\nsteps"), fontsize=10)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("total / max(T_load, T_train)")
    panels[0].set_ylim(0.8, 2.3)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
