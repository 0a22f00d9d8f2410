"""`samplerkit demo --resume`: a rank is killed in mid-epoch, and the job goes on with fewer ranks."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import typer
from rich.console import Console
from rich.table import Table

from samplerkit.cli.demo import ledger
from samplerkit.cli.demo.data import GLOBAL_BATCH, SAVED_EVERY, write_digits
from samplerkit.cli.demo.data import RESUMED_EPOCHS as EPOCHS
from samplerkit.cli.demo.launch import LaunchError, run_job

FIRST_RANKS, SECOND_RANKS = 3, 2
KILLED_IN = 43
"""A step of the second epoch, three after a checkpoint."""


@dataclass(frozen=True)
class RunCounts:
    """What one run received; what is `replayed` came after the last checkpoint, and so came again."""

    ranks: int
    received: int
    replayed: int


@dataclass(frozen=True)
class ResumeCounts:
    """What both runs together delivered, relative to the checkpoint between them."""

    runs: tuple[RunCounts, ...]
    delivered: int
    lost: int
    repeated: int


def resume_demo(folder: Path, scratch: Path, *, as_json: bool) -> None:
    """Runs the job twice, and prints what was delivered, lost and repeated.

    Raises:
        LaunchError: a run failed in another way than by the kill.
    """
    started = time.monotonic()
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for left in (*folder.glob("*.jsonl"), *folder.glob("checkpoint.*")):
        left.unlink()
    total = sum(write_digits(folder / "data"))
    console = Console(stderr=as_json)
    console.print(
        f"Handwritten digits: {total:,} samples, {EPOCHS} epochs, {GLOBAL_BATCH} samples a step, a "
        f"checkpoint of network, optimizer and loader every {SAVED_EVERY} steps."
    )
    console.print(f"Run 1: {FIRST_RANKS} ranks. In step {KILLED_IN} the last one is killed by SIGKILL ...")
    _killed_run(folder, scratch / "first")
    saved = torch.load(folder / "checkpoint.pt", weights_only=True)
    loader = saved["loader"]
    console.print(
        f"The job ended. The last checkpoint is that of step {saved['step']}: epoch {loader['epoch']}, "
        f"position {loader['position']:,}."
    )
    console.print(f"Run 2: {SECOND_RANKS} ranks go on from it ...")
    accuracy = _run(folder, scratch / "second", SECOND_RANKS, "second", 0)
    counts = counted(folder, saved["step"], total)
    if as_json:
        typer.echo(json.dumps({"event": "ledger", **asdict(counts), "accuracy": accuracy}))
    else:
        _show(console, counts, total, accuracy, time.monotonic() - started)
    if counts.lost or counts.repeated:
        raise typer.Exit(1)


def counted(folder: Path, saved_step: int, num_samples: int) -> ResumeCounts:
    """Counts the ledgers in a folder; after `saved_step` of the first run is the last checkpoint."""
    delivered: Counter[tuple[int, int]] = Counter()
    runs = []
    for run, ranks, kept_steps in (("first", FIRST_RANKS, saved_step), ("second", SECOND_RANKS, None)):
        received = replayed = 0
        for rank in range(ranks):
            for step, batch in enumerate(ledger.lines(folder, run, rank)):
                received += len(batch["ids"])
                if kept_steps is None or step < kept_steps:
                    delivered.update((batch["epoch"], sample) for sample in batch["ids"])
                else:
                    replayed += len(batch["ids"])
        runs.append(RunCounts(ranks, received, replayed))
    wanted = Counter((epoch, sample) for epoch in range(EPOCHS) for sample in range(num_samples))
    return ResumeCounts(
        tuple(runs), delivered.total(), (wanted - delivered).total(), (delivered - wanted).total()
    )


def _killed_run(folder: Path, scratch: Path) -> None:
    try:
        _run(folder, scratch, FIRST_RANKS, "first", KILLED_IN)
    except LaunchError:
        # torchrun's report of the killed rank; what tells is whether there is a checkpoint to go on from.
        if (folder / "checkpoint.pt").exists():
            return
        raise
    raise LaunchError("rank 2", "was to be killed and was not", report="")


def _run(folder: Path, scratch: Path, ranks: int, run: str, killed_in: int) -> float:
    with closing(run_job(ranks, scratch, folder, run, killed_in)) as events:
        told = list(events)
    return float(told[-1]["accuracy"]) if told else 0.0


def _show(console: Console, counts: ResumeCounts, num_samples: int, accuracy: float, seconds: float) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "ranks", "samples received", "after the checkpoint, so replayed"):
        table.add_column(heading, justify="right")
    for number, run in enumerate(counts.runs, start=1):
        table.add_row(str(number), str(run.ranks), f"{run.received:,}", f"{run.replayed:,}")
    console.print()
    console.print(table)
    console.print(
        f"\nRelative to the checkpoint: {counts.delivered:,} delivered ({EPOCHS} epochs of "
        f"{num_samples:,} samples), {counts.lost:,} lost, {counts.repeated:,} repeated."
    )
    console.print(
        "What came after the checkpoint was lost with the network's weights, and both read it again.\n"
        f"(Test accuracy {accuracy:.1f}%. {seconds:.0f} s.)"
    )
