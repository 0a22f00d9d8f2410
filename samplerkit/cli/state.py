"""The command `samplerkit state`: what a checkpoint says, whether it is whole, and what it fits."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from samplerkit.cli.opening import AsJson, NumRanks, opened, states_in
from samplerkit.cli.printing import print_facts, print_json
from samplerkit.errors import SamplerkitError
from samplerkit.loading.loader import Loader
from samplerkit.loading.state.state import State


def state(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A checkpoint: JSON, or from torch.save.")],
    config: Annotated[str | None, typer.Option(help="A config that the state has to fit.")] = None,
    world: NumRanks = None,
    as_json: AsJson = False,
) -> None:
    """Show and verify the state of a loader, wherever in a checkpoint it stands."""
    loader = None if config is None else opened(config, world)[1]
    found = states_in(file)
    shown = [_looked_at(place, saved, loader) for place, saved in found]
    if as_json:
        print_json({"file": str(file), "states": shown})
    for number, one in enumerate([] if as_json else shown):
        if number:
            typer.echo()
        print_facts([(name, _shown(name, value)) for name, value in one.items() if name != "problem"])
    problems = [f"{one['place']}: {one['problem']}" for one in shown if one["problem"]]
    if not found:
        problems = ["holds no state of a samplerkit loader; save loader.state_dict()"]
    for problem in problems:
        typer.echo(f"samplerkit: {file}: {problem}", err=True)
    if problems:
        raise typer.Exit(1)


def _looked_at(place: str, saved: dict[str, Any], loader: Loader | None) -> dict[str, Any]:
    problem = None
    told: dict[str, Any] = {"place": place}
    try:
        read = State.from_dict(saved)
    except SamplerkitError as error:
        return {**told, "verdict": "damaged, or of another version", "problem": str(error)}
    told |= {"order": read.fingerprint, **asdict(read), "seed": list(read.seed)}
    verdict = "whole: the checksum fits"
    if loader is not None:
        try:
            loader.load_state_dict(saved)
            verdict = "whole, and fits the config"
        except SamplerkitError as error:
            verdict, problem = "whole, but does not fit the config", str(error)
    return {**told, "verdict": verdict, "problem": problem}


def _shown(name: str, value: Any) -> str:
    if name != "sections":
        return str(value)
    return "; ".join(map(_section, value, value.values())) or "none"


def _section(name: str, section: dict[str, Any]) -> str:
    said = ", ".join(f"{key} {value}" for key, value in section.items())
    return f"{name}: {said}" if said else name
