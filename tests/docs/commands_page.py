"""The tables of the commands' options, from the functions behind them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

from typer.models import ArgumentInfo

from samplerkit.cli.main import app
from tests.docs.docstring import in_a_cell, summary

_VALUES = {int: "INTEGER", float: "FLOAT", str: "TEXT", Path: "PATH"}


def described() -> str:
    """Describes each command with what it takes."""
    return "".join(part for command in commands() for part in _described(command))


def commands() -> list[Callable[..., Any]]:
    """The functions behind the commands, in the order of the help."""
    return [info.callback for info in app.registered_commands if info.callback is not None]


@dataclass(frozen=True)
class Given:
    """What a command takes: an argument, or an option.

    Args:
        name: as it is typed.
        is_argument: whether it goes by its place.
        default: None if it is left out, `...` if it must be given.
        meaning: its help.
    """

    name: str
    is_argument: bool
    default: Any
    meaning: str


def _described(command: Callable[..., Any]) -> Iterator[str]:
    given = [_given(parameter) for parameter in inspect.signature(command).parameters.values()]
    arguments = [one.name for one in given if one.is_argument]
    usage = " ".join(["samplerkit", command.__name__, "[OPTIONS]", *arguments])
    yield f"\n## {command.__name__}\n\n{summary(command)}\n\n```text\n{usage}\n```\n"
    yield "\n| takes | default | meaning |\n|---|---|---|\n"
    for one in given:
        # A bar inside of code ends a cell for some readers of Markdown, and keeps its backslash for others.
        name = " or ".join(f"`{either}`" for either in one.name.split("|"))
        yield f"| {name} | {_shown(one.default)} | {in_a_cell(one.meaning)} |\n"


def _given(parameter: inspect.Parameter) -> Given:
    hint = parameter.annotation
    while get_origin(hint) is not Annotated:
        # An alias of an annotated type, or None.
        (hint,) = (member for member in get_args(hint) if member is not NoneType)
    kind, info = get_args(hint)
    default = ... if parameter.default is parameter.empty else parameter.default
    (kind, *_) = [member for member in get_args(kind) if member is not NoneType] or [kind]
    if isinstance(info, ArgumentInfo):
        name = (info.metavar or parameter.name.upper()) + ("..." if _is_list(get_args(hint)[0]) else "")
    else:
        # typer takes the first name for a default, as long as the hint is not annotated.
        names = [name for name in (info.default, *(info.param_decls or ())) if isinstance(name, str)]
        names = names or [f"--{parameter.name.replace('_', '-')}"]
        name = ", ".join(sorted(names, key=len)) + (f" {_VALUES[kind]}" if kind in _VALUES else "")
    return Given(name, isinstance(info, ArgumentInfo), default, info.help or "")


def _shown(default: Any) -> str:
    if default is ...:
        return "required"
    return "" if default is None or default is False else f"`{default}`"


def _is_list(hint: Any) -> bool:
    return get_origin(hint) is list
