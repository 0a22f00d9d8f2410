"""Arguments that commands share, such as a config, the number of ranks and epochs, and how they are read."""

from __future__ import annotations

import inspect
import json
import re
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
import torch
import typer

from samplerkit.cli.printing import Result, show
from samplerkit.config.config import Config, load_config
from samplerkit.errors import SamplerkitError, StateError
from samplerkit.inspect.doctor.probe import function_named
from samplerkit.inspect.view import is_counted, loader_of, require_counted
from samplerkit.loading.loader import Loader
from samplerkit.order.deal import World
from samplerkit.order.layout import Layout
from samplerkit.storage.tree import TreeDataset

FromZero = Annotated[int, typer.Option(min=0)]
FromOne = Annotated[int, typer.Option(min=1)]
ManyPaths = Annotated[list[str], typer.Argument()]
ConfigPath = Annotated[str, typer.Argument(metavar="CONFIG", help="The config, a YAML file or its URL.")]
NumRanks = Annotated[
    int | None,
    typer.Option("--world", min=1, help="Ranks of the job; by default from the config or the running job."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
StatePath = Annotated[
    Path | None, typer.Option("--state", help="A checkpoint from which the run resumes: JSON, or torch.save.")
]


_OPTION = re.compile(r"^ {4}(\w+): (.+(?:\n {5,}.+)*)", re.MULTILINE)


def as_command(function: Callable[..., Result]) -> Callable[..., None]:
    """Makes a command of a function, which adds `--json` and prints the result.

    The help of its options is the texts below `Options:` in its docstring.
    """

    @wraps(function)
    def command(*, as_json: bool, **arguments: Any) -> None:
        result = function(**arguments)
        show(result, as_json=as_json)
        if result.is_failure:
            raise typer.Exit(1)

    command.__doc__, _, options = (inspect.getdoc(function) or "").partition("\n\nOptions:\n")
    kinds, hints = get_type_hints(function), get_type_hints(function, include_extras=True)
    for name, text in _OPTION.findall(options):
        parts = (hints[name], *get_args(hints[name]))
        written = [copy(hint.__metadata__[0]) for hint in parts if get_origin(hint) is Annotated]
        # typer adds a `--no-` variant to a flag, unless the flag's name is given.
        names = [f"--{name.replace('_', '-')}"] if kinds[name] is bool else []
        info = written[0] if written else typer.Option(*names)
        info.help = " ".join(f"{text[0].upper()}{text[1:]}".split())
        hints[name] = Annotated[kinds[name], info]
    given = inspect.signature(function).parameters
    parameters = [given[name].replace(annotation=hints[name]) for name in given]
    as_json = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AsJson)
    # typer and the reference read it.
    command.__signature__ = inspect.Signature([*parameters, as_json])  # type: ignore[attr-defined]
    return command


def load_run(
    path: str,
    world: int | None,
    state: Path | None = None,
    *,
    allow: Collection[str] = (),
    counts: bool = True,
    first_world: int | None = None,
    samples_per_file: int | None = None,
) -> tuple[Config, Loader]:
    """Reads a config and makes its loader; only the sizes of the dataset are read.

    Args:
        path: the path or URL of the config.
        world: the number of ranks; None takes it from the config, then from the running job.
        state: a checkpoint that the loader loads.
        allow: names of fields of the state that may differ.
        counts: whether the number of samples is needed.
        first_world: the number of ranks on which the run was started, if it was another one.
        samples_per_file: an estimate of the samples in each file, for files that were not counted.

    Raises:
        ConfigError: the config has a mistake, or the sampler does not fit the dataset.
        DatasetError: the number of samples is needed, and files would have to be fetched to count them.
        StateError: the state does not fit, or the file holds none or several.
    """
    config = load_config(path, check_quality=False)  # commands explain a low quality, and do not refuse it
    if samples_per_file is not None and not is_counted(config.dataset):
        config = replace(config, dataset=_estimated(config.dataset, samples_per_file))
    loader: Loader = loader_of(config, None if world is None else World(world, 0))
    if counts:
        require_counted(loader.dataset)
    if is_counted(loader.dataset):
        config.check_order(world=loader.world)
    if first_world is not None:
        # A state of the first start has the run constants that were fixed there.
        loader.load_state_dict(loader_of(config, World(first_world, 0)).state_dict())
    if state is not None:
        loader.load_state_dict(state_in(state), allow)
    return config, loader


def import_function(name: str) -> Callable[..., Any]:
    """Imports a user's function, `module:function`; a failure is an error in one line."""
    with one_line(name, "cannot be imported"):
        return function_named(name)


@contextmanager
def one_line(name: str, failed: str) -> Iterator[None]:
    """Turns any exception of the user's code, even that of `sys.exit`, into an error in one line."""
    try:
        yield
    except SamplerkitError:
        raise
    except (Exception, SystemExit) as error:
        location = error if isinstance(error, SyntaxError) else traceback.extract_tb(error.__traceback__)[-1]
        reason = traceback.format_exception_only(error)[-1].strip()
        place = f"{Path(location.filename or name).name}, line {location.lineno}"
        raise typer.BadParameter(f"{failed} ({reason}; {place})", param_hint=name) from error


def state_in(path: Path) -> dict[str, Any]:
    """Returns the only loader state in a checkpoint.

    Raises:
        StateError: there is none, or there are several.
    """
    states = states_in(path)
    if len(states) != 1:
        raise StateError(str(path), f"holds {len(states)} states of a loader", hint="name a file with one")
    return states[0][1]


def _estimated(dataset: Any, samples_per_file: int) -> Layout:
    """Returns the layout of a dataset, with an estimate for each file whose samples were not counted."""
    if isinstance(dataset, TreeDataset):
        parts = dataset.parts.items()
        return Layout.tree({name: _estimated(part, samples_per_file) for name, part in parts})
    if is_counted(dataset):
        return Layout.of(dataset)
    files = getattr(dataset, "files", None) or dataset._source.shards.names
    return Layout(np.full(len(files), samples_per_file))


def states_in(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Finds the loader states in a checkpoint, at any place in it.

    Args:
        path: a JSON file, or one from `torch.save`, which is read without running its code.

    Returns:
        The place and the content of each state.

    Raises:
        StateError: there is no such file, or it has neither format.
    """
    try:
        with path.open("rb") as file:
            first_byte = file.read(1)
    except OSError as error:
        raise StateError(str(path), f"cannot be read ({error.strerror})") from None
    try:
        # Tensors are not needed: on the meta device they take no memory.
        saved = (
            json.loads(path.read_bytes())
            if first_byte in b"{[ \t\r\n\xef"  # \xef starts the byte order mark of UTF-8
            else torch.load(path, map_location="meta", weights_only=True)
        )
    except Exception as error:  # on a damaged file torch's unpickler may raise anything
        reason = (str(error) or type(error).__name__).partition("\n")[0][:80]
        problem = f"is neither JSON nor a checkpoint that is safe to read ({reason})"
        raise StateError(str(path), problem, hint="save loader.state_dict() in a file of its own") from None
    return list(_states(saved, "", 0))


def parse_epochs(text: str) -> range:
    """Parses `3`, `0:10` (ten epochs) or `0:100:10`.

    Raises:
        BadParameter: the text is none of these.

    Example:
        >>> parse_epochs("0:10"), parse_epochs("3")
        (range(0, 10), range(3, 4))
    """
    try:
        numbers = [int(part) for part in text.split(":")]
        epochs = range(numbers[0], numbers[0] + 1) if len(numbers) == 1 else range(*numbers)
    except (ValueError, TypeError):
        raise typer.BadParameter(f"{text!r} is no epoch; write 3, or 0:10 for ten of them") from None
    if not epochs or min(epochs[0], epochs[-1]) < 0:
        raise typer.BadParameter(f"{text!r} holds no epochs; write for instance 0:10 for the first ten")
    return epochs


def _states(value: Any, place: str, depth: int) -> list[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict) and value.get("samplerkit") == "loader":
        return [(place or "the file itself", value)]
    if depth > 8 or not isinstance(value, dict | list | tuple):
        return []
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    return [state for name, entry in entries for state in _states(entry, f"{place}/{name}", depth + 1)]
