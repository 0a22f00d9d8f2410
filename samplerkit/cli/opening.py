"""Commands from functions, and the arguments that they share: a config, ranks, a checkpoint, epochs."""

import inspect
import json
import re
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from copy import copy
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import torch
import typer

from samplerkit.cli.printing import Result, show
from samplerkit.config.config import Config, load_config
from samplerkit.errors import SamplerkitError, StateError
from samplerkit.inspect.doctor.probe import function_named
from samplerkit.inspect.view import loader_of, require_counted
from samplerkit.loading.loader import Loader
from samplerkit.order.deal import World

FromZero = Annotated[int, typer.Option(min=0)]
FromOne = Annotated[int, typer.Option(min=1)]
ManyPaths = Annotated[list[str], typer.Argument()]
ConfigPath = Annotated[str, typer.Argument(metavar="CONFIG", help="The config, a YAML file or its URL.")]
NumRanks = Annotated[
    int | None,
    typer.Option("--world", min=1, help="Ranks of the job; by default from the config or the running job."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

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
    config: str | Config, world: int | None, state: Path | None = None, allow: Collection[str] = ()
) -> Loader:
    """Makes the loader of a config; only the sizes of the dataset are read.

    Args:
        config: the config, or its path or URL.
        world: the number of ranks; None takes it from the config, then from the running job.
        state: a checkpoint that the loader loads.
        allow: names of fields of the state that may differ.

    Raises:
        ConfigError: the config has a mistake, or the sampler does not fit the dataset.
        DatasetError: files would have to be fetched to count their samples.
        StateError: the state does not fit, or the file holds none or several.
    """
    if isinstance(config, str):  # commands explain a low quality, and do not refuse it
        config = load_config(config, check_quality=False)
    loader: Loader = loader_of(config, None if world is None else World(world, 0))
    require_counted(loader.dataset)
    config.check_order(world=loader.world)
    if state is not None:
        loader.load_state_dict(state_in(state), allow)
    return loader


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
        raise typer.BadParameter(f"{name} {failed} ({reason}; {place})") from error


def state_in(path: Path) -> dict[str, Any]:
    """Returns the only loader state in a checkpoint.

    Raises:
        StateError: there is none, or there are several.
    """
    states = states_in(path)
    if len(states) != 1:
        raise StateError(str(path), f"holds {len(states)} states of a loader", hint="name a file with one")
    return states[0][1]


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
        # The sentences after torch's first one are about its own options.
        reason = re.split(r"\n|\. ", f"{type(error).__name__}: {error}")[0][:80]
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
        epochs = range(0)
    if not epochs or min(epochs[0], epochs[-1]) < 0:
        problem = f"{text!r} is not a range of epochs; write 3, or 0:10 for the first ten"
        raise typer.BadParameter(problem, param_hint="--epochs")
    return epochs


def _states(value: Any, place: str, depth: int) -> list[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict) and value.get("samplerkit") == "loader":
        return [(place or "the file itself", value)]
    if depth > 8 or not isinstance(value, dict | list | tuple):
        return []
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    return [state for name, entry in entries for state in _states(entry, f"{place}/{name}", depth + 1)]
