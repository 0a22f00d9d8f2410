"""Commands that the user allows to be run: taken apart into arguments, never given to a shell."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field

from samplerkit.errors import ArgumentValueError
from samplerkit.storage.urls import shown

PIPE = "pipe:"

_OPERATORS = {
    "|": "a pipe",
    "&": "a command in the background",
    ";": "several commands",
    "<": "a redirection",
    ">": "a redirection",
    "(": "a subshell",
    ")": "a subshell",
    "\n": "several commands",
    "$": "a variable or a command in its place",
    "`": "a command in its place",
}
_IN_QUOTES = "$`"
"""What a shell would replace within double quotes, too."""


@dataclass(frozen=True)
class Command:
    """A program and its arguments.

    Args:
        arguments: the program first.
        shown: how errors and samples name it: the program and its URLs, without what may be private.
    """

    arguments: tuple[str, ...] = field(repr=False)
    shown: str


def is_command(url: str) -> bool:
    """Tells whether a URL is a command.

    Example:
        >>> is_command("pipe:cat train.tar"), is_command("train.tar")
        (True, False)
    """
    return url.startswith(PIPE)


def parsed(url: str) -> Command:
    """Takes a command apart.

    Args:
        url: `pipe:` and a command, with quotes and backslashes as in a shell.

    Raises:
        ArgumentValueError: there is no command, or it has what only a shell could do.

    Example:
        >>> parsed("pipe:curl -s 'http://host/x.tar?token=5f3a'").shown
        'curl ... http://host/x.tar'
        >>> parsed("pipe:zcat x.tar.gz | head")
        Traceback (most recent call last):
        samplerkit.errors.ArgumentValueError: urls: has what only a shell could do, a pipe, got '|'; ...
    """
    text = url.removeprefix(PIPE).strip()
    _require_no_shell(text)
    try:
        arguments = tuple(shlex.split(text))
    except ValueError as error:
        raise ArgumentValueError("urls", f"has a command with wrong quotes ({error})") from None
    if not arguments:
        raise ArgumentValueError("urls", "has no command after pipe:", url)
    program, *rest = arguments
    if "=" in program.split("/", maxsplit=1)[0]:
        mend = "write env NAME=VALUE PROGRAM"
        raise ArgumentValueError("urls", "has what only a shell could do, a variable", mend=mend)
    return Command(arguments, " ".join([program, *_shown(rest)]))


def _shown(arguments: list[str]) -> list[str]:
    """Gives the arguments that may stand in a log, and dots for the others: tokens may be among them."""
    result: list[str] = []
    for argument in arguments:
        if "://" in argument and argument.split("://", maxsplit=1)[0].isalnum():
            result.append(shown(argument))
        elif os.path.isfile(argument):  # noqa: PTH113  # Path raises where an argument is too long for a name
            result.append(argument)
        elif result[-1:] != ["..."]:
            result.append("...")
    return result


def _require_no_shell(text: str) -> None:
    """Refuses what a shell would act upon: outside of quotes, and for `$` and backticks, in double quotes."""
    quote, is_escaped = "", False
    for letter in text:
        if is_escaped:
            is_escaped = False
        elif letter == "\\" and quote != "'":
            is_escaped = True
        elif quote:
            if letter == quote:
                quote = ""
            elif quote == '"' and letter in _IN_QUOTES:
                raise _refused(letter)
        elif letter in "'\"":
            quote = letter
        elif letter in _OPERATORS:
            raise _refused(letter)


def _refused(letter: str) -> ArgumentValueError:
    return ArgumentValueError(
        "urls",
        f"has what only a shell could do, {_OPERATORS[letter]}",
        letter,
        mend="put it into a script, or in single quotes if it is part of an argument",
    )
