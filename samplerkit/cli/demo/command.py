"""The command `samplerkit demo`: what each shuffle mode does to a training, and to the files."""

from __future__ import annotations

import json
import signal
import sys
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.console import Console

from samplerkit.cli.demo.data import MODES, config_path, ledger_lines, write_configs, write_digits
from samplerkit.cli.demo.job import run_job
from samplerkit.cli.demo.resume import resume_demo
from samplerkit.cli.demo.rows import HEADINGS, Row, line_of, row_of, summary, verdict
from samplerkit.cli.demo.training import train_modes
from samplerkit.cli.printing import progress
from samplerkit.config.config import load_config
from samplerkit.order.modes import Shuffle

NUM_RANKS = 2
"""Processes of the job."""


def demo(
    seeds: Annotated[int, typer.Option(min=1, help="Trainings for each shuffle mode.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Kill a rank in mid-epoch instead, and resume with another number of ranks."
        ),
    ] = False,
    keep: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Keep data and configs in this folder. Configs that are there already are used as they are.",
        ),
    ] = None,
) -> None:
    """Train on real data with each shuffle mode, in two processes, and see what each one costs."""
    # A request to end passes through every `finally`, as Ctrl-C does: nothing stays behind.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    with TemporaryDirectory(prefix="samplerkit-demo-") as temporary:
        scratch = Path(temporary)
        folder = scratch / "demo" if keep is None else keep.absolute()
        try:
            num_samples = _write(folder)
        except OSError as error:
            if keep is None:
                raise
            raise typer.BadParameter(f"cannot be written to ({error})", param_hint="--keep") from error
        if resume:
            resume_demo(folder, scratch, num_samples, as_json=as_json)
            return
        failed = _compare(folder, scratch, num_samples, seeds, is_kept=keep is not None, as_json=as_json)
    if failed:
        typer.echo(f"samplerkit demo: {failed}", err=True)
        raise typer.Exit(1)


def _write(folder: Path) -> int:
    sizes = write_digits(folder / "data")
    write_configs(folder / "configs", sizes)
    for mode in MODES:  # a mistake in an edited config is an error before anything is launched
        load_config(config_path(folder / "configs", mode))
    return sum(sizes)


def _compare(
    folder: Path, scratch: Path, num_samples: int, seeds: int, *, is_kept: bool, as_json: bool
) -> str | None:
    """Runs the job and shows its rows; returns how the demo failed, if it did."""
    started = time.monotonic()

    def show(text: str, **event: Any) -> None:
        if as_json:
            typer.echo(json.dumps(event))
        else:
            Console(width=80, highlight=False, markup=False).print(text)

    place = str(folder) if is_kept else "a temporary folder."
    config = config_path(folder / "configs", Shuffle.ADAPTIVE).read_text(encoding="utf-8")
    text = (
        f"Handwritten digits: {num_samples:,} training samples, in files sorted by digit, in\n{place}\n"
        f"Two processes train a network by this config, with each `shuffle` in turn:\n\n{config}\n{HEADINGS}"
    )
    show(text, event="start", config=config, folder=place, samples=num_samples)
    rows: dict[str, Row] = {}
    accuracies: list[float] = []
    device = ""
    job = run_job(NUM_RANKS, scratch, train_modes, folder, scratch, seeds)
    with closing(job) as events, progress() as bar:
        for number, event in enumerate(events, start=1):
            mode, device = event["mode"], event["device"]
            bar(f"trained: {mode}", number, seeds * len(MODES))
            accuracies.append(event["accuracy"])
            if len(accuracies) == seeds:
                received = [
                    [ledger_lines(scratch, f"{mode}-{seed}", rank) for rank in range(NUM_RANKS)]
                    for seed in range(seeds)
                ]
                rows[mode] = row = row_of(mode, accuracies, received, num_samples)
                show(line_of(row), event="row", **row)
                accuracies = []
    seconds = round(time.monotonic() - started, 1)
    trainings = f"the median of {seeds} seeds" if seeds > 1 else "one seed"
    note = f"(Accuracy: {trainings}. Counts: of an epoch. Device: {device}. {seconds:.0f} s.)"
    show(f"\n{summary(rows)}\n{note}", event="end", modes=[*rows], device=device, seconds=seconds)
    return verdict(rows)
