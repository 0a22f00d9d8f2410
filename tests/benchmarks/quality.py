"""What the quality figures predict: digits in files, more than twenty orders, eight seeds.

Run it with `python -m tests.benchmarks.quality`. It prints Markdown, as it stands in docs/quality.md, and
draws docs/images/quality.png. It takes some two minutes on two cores.
"""

from __future__ import annotations

import time
from pathlib import Path

from samplerkit.inspect.quality import storage_mixing
from tests.benchmarks.quality_picture import draw
from tests.benchmarks.report import print_header, print_row, versions
from tests.campaigns.digit_orders import (
    BATCH_SIZE,
    EPOCHS,
    SEEDS,
    Trained,
    correlation,
    layout_of,
    permuted_on_disk,
    sorted_digits,
    train_all,
    unsorted,
)

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "quality.png"
TITLES = {"mixing": "mixing", "label_mixing": "label mixing"}


def experiments() -> dict[str, list[Trained]]:
    """Trains in every order of every arrangement of the digits."""
    digits = sorted_digits()
    size = len(digits.labels)
    found = {f"sorted, {files} files": train_all(digits, layout_of(files, size)) for files in (8, 20, 60)}
    found["sorted, 20 files permuted on disk"] = train_all(*permuted_on_disk(digits, layout_of(20, size)))
    found["unsorted, 20 files"] = train_all(unsorted(digits), layout_of(20, size), 2 * SEEDS)
    return found


def report_correlations(found: dict[str, list[Trained]]) -> None:
    """Prints the rank correlations, and the range of the accuracy."""
    print_header("digits", "orders", "accuracy", "figure", "with accuracy", "with loss area")
    for title, trained in found.items():
        accuracy = [float(one.accuracy.mean()) for one in trained]
        span = f"{min(accuracy):.1f} to {max(accuracy):.1f} %"
        for figure, name in TITLES.items():
            with_accuracy, with_loss = (correlation(trained, figure, o) for o in ("accuracy", "loss_area"))
            print_row(title, len(trained), span, name, with_accuracy, with_loss)
    pooled = [one for title, trained in found.items() if "unsorted" not in title for one in trained]
    with_accuracy, with_loss = (correlation(pooled, "label_mixing", o) for o in ("accuracy", "loss_area"))
    print_row("all sorted ones together", len(pooled), "", "label mixing", with_accuracy, with_loss)


def report_orders(trained: list[Trained]) -> None:
    """Prints each order with its figures and what came of it, the worst mixed first."""
    print_header("order", "mixing", "label mixing", "accuracy", "loss area")
    for one in sorted(trained, key=lambda one: one.mixing):
        figures = f"{one.mixing:.2f}", f"{one.label_mixing:.2f}"
        print_row(one.name, *figures, f"{one.accuracy.mean():.1f} %", f"{one.loss_area.mean():.2f}")


def main() -> None:
    """Runs the experiments, prints the tables and draws the picture."""
    started = time.perf_counter()
    found = experiments()
    what = f"batches of {BATCH_SIZE}, {EPOCHS} epochs, {SEEDS} seeds"
    seconds = time.perf_counter() - started
    print(f"{versions('numpy', 'torch', 'samplerkit')}; {what}; {seconds:.0f} seconds.\n")
    report_correlations(found)
    print("\nThe orders over 20 files of sorted digits:\n")
    report_orders(found["sorted, 20 files"])
    stored = unsorted(sorted_digits())
    layout = layout_of(20, len(stored.labels))
    print(f"\nUnsorted: {storage_mixing(layout, BATCH_SIZE, stored.labels.numpy())}")
    draw(found, PICTURE)


if __name__ == "__main__":
    main()
