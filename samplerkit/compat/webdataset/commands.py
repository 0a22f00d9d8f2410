"""Commands that the user allows to be run: parsed without a shell, their output a stream of bytes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from samplerkit.compat.webdataset import supervisor
from samplerkit.errors import ArgumentValueError, DatasetError
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
_TOKEN = re.compile(r"""\\.|'[^']*'?|"(?:\\.|[^"\\])*"?|.""", re.DOTALL)
"""A letter of a command that a backslash protects, a quoted part, or any other letter."""
_IN_QUOTES = re.compile(r"\\.|[$`]", re.DOTALL)
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
    """Returns whether a URL is a command.

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
        hint = "write env NAME=VALUE PROGRAM"
        raise ArgumentValueError("urls", "has what only a shell could do, a variable", hint=hint)
    return Command(arguments, " ".join([program, *_shown(rest)]))


def _shown(arguments: list[str]) -> list[str]:
    """Returns the arguments that may be in a log, and dots for the others: tokens may be among them."""
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
    for token in _TOKEN.findall(text):
        letters = [token] if token[0] != '"' else _IN_QUOTES.findall(token)
        for letter in letters:
            if letter in _OPERATORS:
                raise ArgumentValueError(
                    "urls",
                    f"has what only a shell could do, {_OPERATORS[letter]}",
                    letter,
                    hint="put it into a script, or in single quotes if it is part of an argument",
                )


_BUFFER = 1 << 20
_GRACE_SECONDS = 5.0
"""How long the supervisor may take to end what it runs."""

_LONGEST_POLL = 2**31 - 1
"""Milliseconds: the system waits no longer than 24 days."""


def output(command: Command, timeout: float) -> Generator[bytes, None, None]:
    """Runs a command and yields what it writes, as it comes; closing the generator ends the command.

    Args:
        command: what to run.
        timeout: how long to wait for the next byte, and for its end, in seconds.

    Raises:
        DatasetError: there is no such program, it fails, or it sends nothing for `timeout` seconds.
    """
    place, received = f"pipe:{command.shown}", 0

    def stalled(what: str) -> DatasetError:
        problem = f"the command {what} for {timeout:g} s, after {received} bytes"
        return DatasetError(
            place, problem, hint="say a longer command_timeout, or let the program give up by itself"
        )

    if shutil.which(command.arguments[0]) is None:
        problem = f"there is no program {command.arguments[0]!r}"
        raise DatasetError(place, problem, hint="install it, or check the PATH")
    process = subprocess.Popen(  # noqa: S603  # an argument list that the user allowed
        [sys.executable, "-I", "-S", supervisor.__file__, *command.arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    pipe: Any = process.stdout
    try:
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _BUFFER)
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        while True:
            if not poll.poll(min(timeout * 1000, _LONGEST_POLL)):
                raise stalled("has sent nothing")
            piece = os.read(pipe.fileno(), _BUFFER)
            if not piece:
                break
            received += len(piece)
            yield piece
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise stalled("has closed its output and does not end") from None
        if code:
            how = f"exit status {code}" if code <= 128 else f"ended by signal {code - 128}"
            problem = f"the command failed after {received} bytes ({how})"
            raise DatasetError(place, problem, hint="run it by hand to see why")
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the command, with the processes that it started, and waits for it."""
    lifeline: Any = process.stdin
    with contextlib.suppress(OSError):
        # Closing alone is not seen while a forked process holds a copy.
        os.write(lifeline.fileno(), b".")
    lifeline.close()
    pipe: Any = process.stdout
    pipe.close()
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
