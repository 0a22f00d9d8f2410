"""The command `samplerkit demo`: the effect of each shuffle mode on a training, and of a killed rank."""

import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import islice, product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import torch
import typer

from samplerkit.cli import demo_training as training
from samplerkit.cli.demo_training import LaunchError, launch, ledger_lines
from samplerkit.cli.opening import FromOne
from samplerkit.cli.printing import PrintedTable, Result, writing
from samplerkit.config.config import load_config

NUM_RANKS, EPOCHS = 2, 10
"""Of the comparison: processes, and passes over the data, few enough for a weak shuffle to show."""

FIRST_RANKS, SECOND_RANKS, RESUMED_EPOCHS, GLOBAL_BATCH = 3, 2, 4, 48
"""Of `--resume`: processes of the first and the second run, passes, and samples of all ranks per step."""

KILLED_IN = 43
"""A step of the second epoch, three after a checkpoint."""


def demo(
    seeds: FromOne = 3,
    resume: bool = False,
    keep: Annotated[Path | None, typer.Option(file_okay=False)] = None,
) -> Result:
    """Train on real data with each shuffle mode, in two processes, and show what each one costs.

    Options:
        seeds: number of trainings for each shuffle mode.
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
        if resume:
            return resume_demo(folder, scratch, sum(sizes))
        return _compare(config, scratch, sum(sizes), seeds)


Row = dict[str, Any]
"""Results of a shuffle mode over all seeds: lowest and highest count of an epoch; of files, for each rank."""


def _compare(path: Path, scratch: Path, num_samples: int, seeds: int) -> Result:
    """Trains with each shuffle mode and seed, and shows the accuracy and the files opened."""
    started = time.monotonic()
    config = path.read_text(encoding="utf-8")
    typer.echo(
        f"Handwritten digits: {num_samples:,} training samples, in files sorted by digit. Two\n"
        f"processes train a network by this config, with each `shuffle` in turn:\n\n{config}",
        err=True,
    )
    modes = training.MODES
    trainings = [{"shuffle": mode, "seed": seed, "epochs": EPOCHS} for mode in modes for seed in range(seeds)]
    accuracies = iter(launch(NUM_RANKS, path.parent, scratch, trainings))
    rows = {mode: row_of(scratch, mode, [*islice(accuracies, seeds)], num_samples) for mode in modes}
    seconds, device = round(time.monotonic() - started, 1), str(training.device_of(0))
    result = {"config": config, "samples": num_samples, "rows": [*rows.values()]}
    of_seeds = f"the median of {seeds} seeds" if seeds > 1 else "one seed"
    note = f"(Accuracy: {of_seeds}. Counts: of an epoch. Device: {device}. {seconds:.0f} s.)"
    columns = ("shuffle", "test\naccuracy", "samples\nseen", "repeated", "missing")
    files = (f"files opened\nby rank {rank}" for rank in range(NUM_RANKS))
    table = PrintedTable((*columns, *files), [line_of(row) for row in rows.values()], ("shuffle",))
    return Result({**result, "device": device, "seconds": seconds}, [table, "", f"{summary(rows)}\n{note}"])


def row_of(ledgers: Path, mode: str, accuracies: Sequence[float], num_samples: int) -> Row:
    """Summarizes the trainings with one mode.

    Args:
        ledgers: the folder in which each rank logged the samples of each step.
        mode: the mode.
        accuracies: the accuracy of each training, in percent.
        num_samples: samples of the training part.
    """
    seen: list[Any] = []  # the ids that all ranks received, of each epoch of each training
    opened: list[Any] = []  # the files that each rank opened, of the same
    for seed in range(len(accuracies)):
        ranks = [ledger_lines(ledgers, mode, seed, rank) for rank in range(NUM_RANKS)]
        epochs = [[[line for line in rank if line["epoch"] == at] for rank in ranks] for at in range(EPOCHS)]
        seen += [np.concatenate([line["ids"] for rank in ranks for line in rank]) for ranks in epochs]
        files_read = [[rank[-1]["files_read"] for rank in ranks] for ranks in epochs]
        opened += np.diff(files_read, axis=0, prepend=0).tolist()
    distinct = [np.unique(ids).size for ids in seen]
    orders = [np.concatenate(seen[at : at + EPOCHS]) for at in range(0, len(seen), EPOCHS)]
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


def line_of(row: Row) -> list[str]:
    """Formats a row of the table."""
    counts = (row["seen"], row["repeated"], row["missing"], *row["files_opened"])
    return [row["mode"], f"{row['accuracy']:.1f}%", *map(_shown, counts)]


def summary(rows: Mapping[str, Row]) -> str:
    """Describes the finished table in two sentences."""
    mixed, files = rows["global"], rows["files"]
    opened, opened_mixed = (_shown(row["files_opened"][0]) for row in (files, mixed))
    return (
        f"The files are sorted by digit. GLOBAL mixes all samples and reaches {mixed['accuracy']:.1f}%;\n"
        f"FILES reads file after file and reaches {files['accuracy']:.1f}%, and rank 0 opens {opened} files\n"
        f"an epoch in place of {opened_mixed}."
    )


def _extent(counts: Iterable[int]) -> dict[str, int]:
    values = list(counts)
    return {"low": min(values), "high": max(values)}


def _shown(extent: Mapping[str, int]) -> str:
    low, high = extent["low"], extent["high"]
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


def resume_demo(folder: Path, scratch: Path, num_samples: int) -> Result:
    """Runs the job twice, and shows how many samples were delivered, lost and repeated.

    Raises:
        LaunchError: a run failed for another reason than the kill.
    """
    started, checkpoint = time.monotonic(), scratch / "checkpoint.pt"
    both = {"shuffle": "partial", "seed": 7, "epochs": RESUMED_EPOCHS, "checkpoint": checkpoint}
    typer.echo(
        f"Handwritten digits: {num_samples:,} samples, {RESUMED_EPOCHS} epochs, {GLOBAL_BATCH} samples a "
        f"step, a checkpoint of\nnetwork, optimizer and loader every {training.SAVED_EVERY} steps.\n"
        f"Run 1: {FIRST_RANKS} ranks. In step {KILLED_IN} the last one is killed by SIGKILL ...",
        err=True,
    )
    first = {**both, "batch_size": GLOBAL_BATCH // FIRST_RANKS, "killed_in": KILLED_IN}
    try:
        launch(FIRST_RANKS, folder, scratch / "first", [first])
    except LaunchError:
        # The kill is expected; what counts is whether there is a checkpoint to resume from.
        if not checkpoint.exists():
            raise
    else:
        raise LaunchError("samplerkit: rank 2: should have been killed, but was not")
    saved = torch.load(checkpoint, weights_only=True)
    place = f"epoch {saved['loader']['epoch']}, position {saved['loader']['position']:,}"
    typer.echo(
        f"The job ended. The last checkpoint is that of step {saved['step']}: {place}.\n"
        f"Run 2: {SECOND_RANKS} ranks resume from it ...",
        err=True,
    )
    second = {**both, "batch_size": GLOBAL_BATCH // SECOND_RANKS}
    (accuracy,) = launch(SECOND_RANKS, folder, scratch / "second", [second])
    counts = counted(scratch, saved["step"], num_samples)
    rows = [(number, *map("{:,}".format, run.values())) for number, run in enumerate(counts["runs"], start=1)]
    text = (
        f"Relative to the checkpoint: {counts['delivered']:,} delivered "
        f"({RESUMED_EPOCHS} epochs of {num_samples:,} samples),\n"
        f"{counts['lost']:,} lost, {counts['repeated']:,} repeated.\n"
        "What came after the checkpoint was lost with the network's weights, and was read\nagain.\n"
        f"(Test accuracy {accuracy:.1f}%. {time.monotonic() - started:.0f} s.)"
    )
    is_failure = bool(counts["lost"] or counts["repeated"])
    table = PrintedTable(("run", "ranks", "samples received", "after the checkpoint, so replayed"), rows)
    return Result({**counts, "accuracy": accuracy}, [table, "", text], is_failure=is_failure)


def counted(folder: Path, saved_step: int, num_samples: int) -> dict[str, Any]:
    """Counts the samples in the ledgers of both runs.

    Args:
        folder: the folder with a folder of each run.
        saved_step: the step of the first run after which the last checkpoint was saved.
        num_samples: samples of an epoch.

    Returns:
        `runs`: for each run its ranks, the samples it received, and those after the last checkpoint, which
        are read again; and the samples that both runs together delivered, lost and repeated, relative to the
        checkpoint.
    """
    delivered: Counter[tuple[int, int]] = Counter()
    runs = []
    for run, ranks, steps in (("first", FIRST_RANKS, saved_step), ("second", SECOND_RANKS, sys.maxsize)):
        ledgers = [ledger_lines(folder / run, "partial", 7, rank) for rank in range(ranks)]
        kept = [sample for ledger in ledgers for line in ledger[:steps] for sample in _samples(line)]
        replayed = sum(len(_samples(line)) for ledger in ledgers for line in ledger[steps:])
        runs.append({"ranks": ranks, "received": len(kept) + replayed, "replayed": replayed})
        delivered.update(kept)
    expected = Counter(product(range(RESUMED_EPOCHS), range(num_samples)))
    lost, repeated = (expected - delivered).total(), (delivered - expected).total()
    return {"runs": runs, "delivered": delivered.total(), "lost": lost, "repeated": repeated}


def _samples(line: dict[str, Any]) -> list[tuple[int, int]]:
    """Returns epoch and id of each sample of a step, without pads."""
    return [(line["epoch"], id) for id, is_pad in zip(line["ids"], line["pads"], strict=True) if not is_pad]
