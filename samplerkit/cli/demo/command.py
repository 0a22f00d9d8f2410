"""The command `samplerkit demo`: what each shuffle mode does to a training, and to the files."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from samplerkit.cli.demo import ledger
from samplerkit.cli.demo.data import EPOCHS, MODES, config_path, write_configs, write_digits
from samplerkit.cli.demo.launch import run_job
from samplerkit.cli.demo.resume import resume_demo
from samplerkit.cli.demo.rows import Row, explain, verdict
from samplerkit.cli.demo.view import DemoView, JsonView, LiveView
from samplerkit.config.config import load_config
from samplerkit.order.shuffle import Shuffle

NUM_RANKS = 2
"""Processes of the job."""


def demo(
    seeds: Annotated[int, typer.Option(min=1, help="Trainings for each shuffle mode.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Kill a rank in mid-epoch instead, and go on with another number of ranks."
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
    started = time.monotonic()
    with _orderly_end(), TemporaryDirectory(prefix="samplerkit-demo-") as temporary:
        scratch = Path(temporary)
        folder = scratch / "demo" if keep is None else keep.absolute()
        if resume:
            resume_demo(folder, scratch, as_json=as_json)
            return
        try:
            num_samples = _write(folder)
        except OSError as error:
            if keep is None:
                raise
            raise typer.BadParameter(f"cannot be written to ({error})", param_hint="--keep") from error
        with _view(as_json, seeds) as view:
            config = config_path(folder / "configs", Shuffle.ADAPTIVE)
            view.start(
                config.read_text(encoding="utf-8"),
                "a temporary folder." if keep is None else str(folder),
                num_samples,
            )
            rows, device = _trained(folder, scratch, seeds, num_samples, view)
            view.end(explain(rows), [*rows.values()], device, time.monotonic() - started)
    failed = verdict(rows)
    if failed:
        typer.echo(f"samplerkit demo: {failed}", err=True)
        raise typer.Exit(1)


def _write(folder: Path) -> int:
    for part in ("data", "configs"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    sizes = write_digits(folder / "data")
    write_configs(folder / "configs", sizes)
    for mode in MODES:  # a mistake in an edited config is told before anything is launched
        load_config(config_path(folder / "configs", mode))
    return sum(sizes)


def _view(as_json: bool, seeds: int) -> DemoView:
    if as_json:
        return JsonView()
    console = Console()
    return LiveView(console, EPOCHS * seeds * len(MODES)) if console.is_terminal else DemoView()


def _trained(
    folder: Path, scratch: Path, seeds: int, num_samples: int, view: DemoView
) -> tuple[dict[str, Row], str]:
    """Runs the job; gives the rows by mode, and the device."""
    rows: dict[str, Row] = {}
    accuracies: list[float] = []
    device = ""
    job = run_job(NUM_RANKS, scratch, folder, "modes", scratch, seeds)
    with closing(job) as events:
        for event in events:
            if event["event"] == "epoch":
                view.epoch(event["mode"])
                continue
            accuracies.append(event["accuracy"])
            device = event["device"]
            if len(accuracies) == seeds:
                mode = Shuffle(event["mode"])
                received = [
                    [ledger.lines(scratch, f"{mode.value}-{seed}", rank) for rank in range(NUM_RANKS)]
                    for seed in range(seeds)
                ]
                rows[mode.value] = Row.of(mode, accuracies, received, num_samples)
                view.row(rows[mode.value])
                accuracies.clear()
    return rows, device


@contextmanager
def _orderly_end() -> Iterator[None]:
    """Lets a request to end pass through every `finally`, as Ctrl-C does: nothing stays behind."""
    before = {number: signal.signal(number, _stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
