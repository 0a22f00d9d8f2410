"""The command `samplerkit demo`: the effect of each shuffle mode on a training, and of a killed rank."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console

from samplerkit.cli import demo_training as training
from samplerkit.cli.demo_training import LaunchError, ledger_lines, run_job
from samplerkit.cli.opening import AsJson, FromOne
from samplerkit.cli.printing import PrintedTable, print_table, progress, writing
from samplerkit.config.config import load_config
from samplerkit.order.modes import Shuffle

_LINE = "{:<8}{:>9}{:>9}{:>10}{:>9}{:>14}{:>14}"

HEADINGS = (
    _LINE.format("", "test", "samples", "", "", "files opened", "files opened")
    + "\n"
    + _LINE.format("shuffle", "accuracy", "seen", "repeated", "missing", "by rank 0", "by rank 1")
)

Row = dict[str, Any]
"""Results of a shuffle mode over all seeds: lowest and highest count of an epoch; of files, for each rank."""


def row_of(ledgers: Path, mode: str, accuracies: Sequence[float], num_samples: int) -> Row:
    """Summarizes the trainings with one mode.

    Args:
        ledgers: the folder in which each rank logged the samples of each step.
        mode: the mode.
        accuracies: the accuracy of each training, in percent.
        num_samples: samples of the training part.
    """
    received = [
        [ledger_lines(ledgers, f"{mode}-{seed}", rank) for rank in range(NUM_RANKS)]
        for seed in range(len(accuracies))
    ]
    epochs = [
        [[line for line in rank if line["epoch"] == epoch] for rank in ranks]
        for ranks in received
        for epoch in range(training.EPOCHS)
    ]
    seen = [np.concatenate([line["ids"] for rank in epoch for line in rank]) for epoch in epochs]
    distinct = [np.unique(ids).size for ids in seen]
    opened = [[sum(line["files_opened"] for line in rank) for rank in epoch] for epoch in epochs]
    orders = [np.concatenate(seen[at : at + training.EPOCHS]) for at in range(0, len(seen), training.EPOCHS)]
    rounded = [round(accuracy, 2) for accuracy in accuracies]
    return {
        "mode": mode,
        "accuracy": median(rounded),
        "accuracies": rounded,
        "seen": _extent(ids.size for ids in seen),
        "repeated": _extent(ids.size - count for ids, count in zip(seen, distinct, strict=True)),
        "missing": _extent(num_samples - count for count in distinct),
        "files_opened": [*map(_extent, zip(*opened, strict=True))],
        "orders": [blake2b(ids.astype("<i8").tobytes(), digest_size=8).hexdigest() for ids in orders],
    }


def line_of(row: Row) -> str:
    """Formats a row of the table."""
    counts = (row["seen"], row["repeated"], row["missing"], *row["files_opened"])
    return _LINE.format(row["mode"], f"{row['accuracy']:.1f}%", *map(_shown, counts))


def summary(rows: Mapping[str, Row]) -> str:
    """Describes the finished table in two sentences."""
    mixed, files = (rows[mode.value] for mode in (Shuffle.GLOBAL, Shuffle.FILES))
    opened, opened_mixed = (_shown(row["files_opened"][0]) for row in (files, mixed))
    return (
        f"The files are sorted by digit. GLOBAL mixes all samples and reaches {mixed['accuracy']:.1f}%; "
        f"FILES reads file after file and reaches {files['accuracy']:.1f}%, and rank 0 opens {opened} files "
        f"an epoch in place of {opened_mixed}."
    )


def _extent(counts: Iterable[int]) -> dict[str, int]:
    values = list(counts)
    return {"low": min(values), "high": max(values)}


def _shown(extent: Mapping[str, int]) -> str:
    low, high = extent["low"], extent["high"]
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


NUM_RANKS = 2
"""Processes of the job."""


def demo(
    seeds: FromOne = 3,
    as_json: AsJson = False,
    resume: bool = False,
    keep: Annotated[Path | None, typer.Option(file_okay=False)] = None,
) -> None:
    """Train on real data with each shuffle mode, in two processes, and show what each one costs.

    Options:
        seeds: number of trainings for each shuffle mode.
        as_json: print one JSON object per line.
        resume: kill a rank in the middle of an epoch instead, and resume with another number of ranks.
        keep: keep data and config in this folder. An existing config there is used unchanged.
    """
    # These signals run every `finally`, as Ctrl-C does, so that nothing is left behind.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    with TemporaryDirectory(prefix="samplerkit-demo-") as temporary:
        scratch = Path(temporary)
        folder = scratch / "demo" if keep is None else keep.absolute()
        with writing("--keep"):
            sizes = training.write_digits(folder / "data")
            config = training.write_config(folder, sizes)
        load_config(config)  # reports a mistake in an edited config before the launch
        num_samples = sum(sizes)
        if resume:
            resume_demo(folder, scratch, num_samples, as_json=as_json)
        else:
            _compare(folder, scratch, num_samples, seeds, is_kept=keep is not None, as_json=as_json)


def _compare(
    folder: Path, scratch: Path, num_samples: int, seeds: int, *, is_kept: bool, as_json: bool
) -> None:
    """Runs the job and prints its rows."""
    started = time.monotonic()

    def show(text: str, **event: Any) -> None:
        if as_json:
            typer.echo(json.dumps(event))
        else:
            Console(width=80, highlight=False, markup=False).print(text)

    place = str(folder) if is_kept else "a temporary folder."
    config = (folder / training.CONFIG).read_text(encoding="utf-8")
    text = (
        f"Handwritten digits: {num_samples:,} training samples, in files sorted by digit, in\n{place}\n"
        f"Two processes train a network by this config, with each `shuffle` in turn:\n\n{config}\n{HEADINGS}"
    )
    show(text, event="start", config=config, folder=place, samples=num_samples)
    rows: dict[str, Row] = {}
    accuracies: list[float] = []
    device = ""
    job = run_job(NUM_RANKS, scratch, training.train_modes, folder, scratch, seeds)
    with closing(job) as events, progress() as bar:
        for number, event in enumerate(events, start=1):
            mode, device = event["mode"], event["device"]
            bar(f"trained: {mode}", number, seeds * len(training.MODES))
            accuracies.append(event["accuracy"])
            if len(accuracies) == seeds:
                rows[mode] = row = row_of(scratch, mode, accuracies, num_samples)
                show(line_of(row), event="row", **row)
                accuracies = []
    seconds = round(time.monotonic() - started, 1)
    trainings = f"the median of {seeds} seeds" if seeds > 1 else "one seed"
    note = f"(Accuracy: {trainings}. Counts: of an epoch. Device: {device}. {seconds:.0f} s.)"
    show(f"\n{summary(rows)}\n{note}", event="end", modes=[*rows], device=device, seconds=seconds)


FIRST_RANKS, SECOND_RANKS = 3, 2
KILLED_IN = 43
"""A step of the second epoch, three after a checkpoint."""


def resume_demo(folder: Path, scratch: Path, num_samples: int, *, as_json: bool) -> None:
    """Runs the job twice, and prints how many samples were delivered, lost and repeated.

    Raises:
        LaunchError: a run failed for another reason than the kill.
    """
    started = time.monotonic()
    for old in (*folder.glob("*.jsonl"), *folder.glob(f"{training.CHECKPOINT}*")):
        old.unlink()
    console = Console(stderr=as_json)
    console.print(
        f"Handwritten digits: {num_samples:,} samples, {training.RESUMED_EPOCHS} epochs, "
        f"{training.GLOBAL_BATCH} samples a step, a checkpoint of network, optimizer and loader every "
        f"{training.SAVED_EVERY} steps.\n"
        f"Run 1: {FIRST_RANKS} ranks. In step {KILLED_IN} the last one is killed by SIGKILL ..."
    )
    try:
        _run(folder, scratch / "first", FIRST_RANKS, "first", KILLED_IN)
    except LaunchError:
        # The kill is expected; what counts is whether there is a checkpoint to resume from.
        if not (folder / training.CHECKPOINT).exists():
            raise
    else:
        raise LaunchError("rank 2", "was to be killed and was not", report="")
    saved = torch.load(folder / training.CHECKPOINT, weights_only=True)
    loader = saved["loader"]
    console.print(
        f"The job ended. The last checkpoint is that of step {saved['step']}: epoch {loader['epoch']}, "
        f"position {loader['position']:,}.\n"
        f"Run 2: {SECOND_RANKS} ranks resume from it ..."
    )
    accuracy = _run(folder, scratch / "second", SECOND_RANKS, "second", 0)
    counts = counted(folder, saved["step"], num_samples)
    if as_json:
        typer.echo(json.dumps({"event": "ledger", **counts, "accuracy": accuracy}))
    else:
        console.print()
        columns = ("run", "ranks", "samples received", "after the checkpoint, so replayed")
        rows = [[f"{count:,}" for count in run.values()] for run in counts["runs"]]
        print_table(PrintedTable(columns, [(number, *row) for number, row in enumerate(rows, start=1)]))
        console.print(
            f"\nRelative to the checkpoint: {counts['delivered']:,} delivered "
            f"({training.RESUMED_EPOCHS} epochs of {num_samples:,} samples), {counts['lost']:,} lost, "
            f"{counts['repeated']:,} repeated.\n"
            "What came after the checkpoint was lost with the network's weights, and both read it again.\n"
            f"(Test accuracy {accuracy:.1f}%. {time.monotonic() - started:.0f} s.)"
        )
    if counts["lost"] or counts["repeated"]:
        raise typer.Exit(1)


def counted(folder: Path, saved_step: int, num_samples: int) -> dict[str, Any]:
    """Counts the samples in the ledgers of a folder.

    Args:
        folder: the folder of the ledgers.
        saved_step: the step of the first run after which the last checkpoint was saved.
        num_samples: samples of an epoch.

    Returns:
        `runs`: for each run its ranks, the samples it received, and those after the last checkpoint, which
        are read again; and the samples that both runs together delivered, lost and repeated, relative to the
        checkpoint.
    """
    delivered: Counter[tuple[int, int]] = Counter()
    runs = []
    for run, ranks, kept_steps in (("first", FIRST_RANKS, saved_step), ("second", SECOND_RANKS, None)):
        received = replayed = 0
        lines = [line for rank in range(ranks) for line in enumerate(ledger_lines(folder, run, rank))]
        for step, batch in lines:
            ids = np.array(batch["ids"])[~np.array(batch["pads"], dtype=bool)]
            received += ids.size
            if kept_steps is None or step < kept_steps:
                delivered.update((batch["epoch"], sample) for sample in ids.tolist())
            else:
                replayed += ids.size
        runs.append({"ranks": ranks, "received": received, "replayed": replayed})
    expected = Counter(
        (epoch, sample) for epoch in range(training.RESUMED_EPOCHS) for sample in range(num_samples)
    )
    lost, repeated = (expected - delivered).total(), (delivered - expected).total()
    return {"runs": runs, "delivered": delivered.total(), "lost": lost, "repeated": repeated}


def _run(folder: Path, scratch: Path, ranks: int, run: str, killed_in: int) -> float:
    with closing(run_job(ranks, scratch, training.train_and_save, folder, run, killed_in)) as events:
        return [float(event["accuracy"]) for event in events][-1]
