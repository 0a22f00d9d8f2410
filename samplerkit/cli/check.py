"""The commands `samplerkit validate`, `schema` and `check`: they check configs and loaders."""

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from samplerkit.cli.opening import ConfigPath, FromZero, NumRanks, import_function, one_line
from samplerkit.cli.printing import Part, Result, counted
from samplerkit.config.config import Config, load_config
from samplerkit.config.registry import json_schema
from samplerkit.errors import ConfigError, SamplerkitError
from samplerkit.inspect.doctor.check import check as run_doctor
from samplerkit.inspect.doctor.findings import RULES, Finding
from samplerkit.inspect.doctor.probe import digests_in_subprocess, digests_of
from samplerkit.inspect.doctor.samplers import disagreement
from samplerkit.inspect.view import is_counted, loader_of
from samplerkit.order.deal import World
from samplerkit.storage.urls import is_remote, shown


def validate(config: ConfigPath) -> Result:
    """Check a config: its keys, values and nesting, and that its order can be built.

    Remote files are not fetched to count their samples; without the counts, the order is not checked.
    """
    problem: SamplerkitError | None = None
    try:
        loaded = load_config(config)
        if loaded.dataset is not None and is_counted(loaded.dataset):
            loaded.check_order()
    except SamplerkitError as error:
        problem = error
    details = problem and {"place": problem.place, "message": str(problem), "hint": problem.hint}
    value = {"config": shown(config), "is_valid": problem is None, "problem": details}
    if problem is None:
        return Result(value, [f"{shown(config)}: valid"])
    return Result(value, [], [f"samplerkit: {shown(config)}: {problem}"], is_failure=True)


def schema() -> Result:
    """Print the JSON Schema of configs, for editors and for validation in other languages."""
    return Result(json_schema())


def check(
    target: Annotated[str, typer.Argument(metavar="CONFIG|MODULE:FUNCTION")],
    world: NumRanks = None,
    rank: FromZero = 0,
    epoch: FromZero | None = None,
    saves_state: bool = False,
) -> Result:
    """Look for mistakes in how data are loaded, by a config or by any torch DataLoader.

    Options:
        target: a config, or a function that returns a DataLoader.
        rank: the rank that is checked, from 0.
        epoch: the epoch of training; 0 for a new loader.
        saves_state: the run saves the state of its sampler.
    """
    if rank >= (world or 1):
        raise typer.BadParameter(f"must be below --world, here {world or 1}", param_hint="--rank")
    job = None if world is None else World(world, rank)
    is_config = is_remote(target) or Path(target).is_file() or ":" not in target
    # Output of the user's function must not end up in the JSON.
    with redirect_stdout(sys.stderr):
        config = load_config(target, check_quality=False) if is_config else None
        source: Any = _function(target) if config is None else loader_of(config, job)
        if config is not None and epoch is not None:
            source.set_epoch(epoch)  # as the training loop would
        findings = [*run_doctor(source, world=job, epoch=epoch, saves_state=saves_state)]
        if config is not None:
            findings = [_with_config_key(finding, config, job) for finding in findings]
        else:
            findings += _compare_processes(target, source, findings)
    ranks = "" if world is None else f" on {counted(world, 'rank')}"
    heading = counted(len(findings), "finding") if findings else f"nothing found by {len(RULES)} rules"
    parts: list[Part] = [f"{shown(target)}{ranks}: {heading}"]
    for finding in findings:
        parts += ["", [(finding.severity, finding.code), ("", finding.what), ("hint", finding.hint)]]
    entries = [asdict(finding) for finding in findings]
    return Result({"target": shown(target), "findings": entries}, parts, is_failure=bool(findings))


def _with_config_key(finding: Finding, config: Config, job: World | None) -> Finding:
    """Replaces a finding about an order that cannot be built by one that names the key of the config."""
    if finding.code in ("refused", "lengths-do-not-fit", "sample-above-budget"):
        try:
            config.check_order(world=job)
        except ConfigError as error:
            return replace(finding, what=f"{error.place}: {error.problem}")
    return finding


def _function(target: str) -> Callable[[], Any]:
    """Imports a function by name; if it raises, that is an error in one line, and not a finding."""
    make = import_function(target)

    @wraps(make)
    def wrapper() -> Any:
        with one_line(target, "fails"):
            return make()

    return wrapper


def _compare_processes(target: str, make: Callable[[], Any], findings: list[Finding]) -> list[Finding]:
    if any(finding.code in ("ranks-disagree", "refused") for finding in findings):
        return []
    other = digests_in_subprocess(target)
    if other is None:
        typer.echo(
            f"samplerkit: {target} does not run in another process, and was checked in this one only",
            err=True,
        )
        return []
    try:
        own = digests_of(make())
    except SamplerkitError:
        return []
    return disagreement(own, other, "in another process, with another hash seed")
