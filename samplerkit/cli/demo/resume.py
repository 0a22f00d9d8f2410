"""`samplerkit demo --resume`: a rank is killed in mid-epoch, and the job resumes with fewer ranks."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from rich.console import Console

from samplerkit.cli.demo.data import CHECKPOINT, GLOBAL_BATCH, SAVED_EVERY, ledger_lines
from samplerkit.cli.demo.data import RESUMED_EPOCHS as EPOCHS
from samplerkit.cli.demo.job import LaunchError, run_job
from samplerkit.cli.demo.training import train_and_save
from samplerkit.cli.printing import print_table

FIRST_RANKS, SECOND_RANKS = 3, 2
KILLED_IN = 43
"""A step of the second epoch, three after a checkpoint."""


def resume_demo(folder: Path, scratch: Path, num_samples: int, *, as_json: bool) -> None:
    """Runs the job twice, and prints what was delivered, lost and repeated.

    Raises:
        LaunchError: a run failed in another way than by the kill.
    """
    started = time.monotonic()
    for left in (*folder.glob("*.jsonl"), *folder.glob(f"{CHECKPOINT}*")):
        left.unlink()
    console = Console(stderr=as_json)
    console.print(
        f"Handwritten digits: {num_samples:,} samples, {EPOCHS} epochs, {GLOBAL_BATCH} samples a step, a "
        f"checkpoint of network, optimizer and loader every {SAVED_EVERY} steps.\n"
        f"Run 1: {FIRST_RANKS} ranks. In step {KILLED_IN} the last one is killed by SIGKILL ..."
    )
    try:
        _run(folder, scratch / "first", FIRST_RANKS, "first", KILLED_IN)
    except LaunchError:
        # The report of the killed rank; what counts is whether there is a checkpoint to resume from.
        if not (folder / CHECKPOINT).exists():
            raise
    else:
        raise LaunchError("rank 2", "was to be killed and was not", report="")
    saved = torch.load(folder / CHECKPOINT, weights_only=True)
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
        print_table(columns, [(number, *row) for number, row in enumerate(rows, start=1)])
        console.print(
            f"\nRelative to the checkpoint: {counts['delivered']:,} delivered ({EPOCHS} epochs of "
            f"{num_samples:,} samples), {counts['lost']:,} lost, {counts['repeated']:,} repeated.\n"
            "What came after the checkpoint was lost with the network's weights, and both read it again.\n"
            f"(Test accuracy {accuracy:.1f}%. {time.monotonic() - started:.0f} s.)"
        )
    if counts["lost"] or counts["repeated"]:
        raise typer.Exit(1)


def counted(folder: Path, saved_step: int, num_samples: int) -> dict[str, Any]:
    """Counts the ledgers in a folder; after `saved_step` of the first run is the last checkpoint.

    Returns:
        `runs`: of each its ranks, the samples received, and those after the last checkpoint, which came
        again; and what both runs together delivered, lost and repeated, relative to the checkpoint.
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
    wanted = Counter((epoch, sample) for epoch in range(EPOCHS) for sample in range(num_samples))
    lost, repeated = (wanted - delivered).total(), (delivered - wanted).total()
    return {"runs": runs, "delivered": delivered.total(), "lost": lost, "repeated": repeated}


def _run(folder: Path, scratch: Path, ranks: int, run: str, killed_in: int) -> float:
    with closing(run_job(ranks, scratch, train_and_save, folder, run, killed_in)) as events:
        return [float(event["accuracy"]) for event in events][-1]
