"""Commands that the user allows to be run: parsed without a shell, their output a stream of bytes."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import select
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, final

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
    """Returns the arguments that may stand in a log, and dots for the others: tokens may be among them."""
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
        hint="put it into a script, or in single quotes if it is part of an argument",
    )


_BUFFER = 1 << 20
_GRACE_SECONDS = 5.0
"""How long the supervisor may take to end what it runs."""

_LONGEST_POLL = 2**31 - 1
"""Milliseconds: the system waits no longer than 24 days."""


@final
class Running:
    """A command that runs until its output is read or `close` is called.

    Args:
        command: what to run.
        timeout: how long to wait for the next byte, in seconds.

    Raises:
        DatasetError: there is no such program.
    """

    def __init__(self, command: Command, timeout: float) -> None:
        self._command = command
        self._timeout = timeout
        if shutil.which(command.arguments[0]) is None:
            problem = f"there is no program {command.arguments[0]!r}"
            raise DatasetError(f"pipe:{command.shown}", problem, hint="install it, or check the PATH")
        self._process = subprocess.Popen(  # noqa: S603  # an argument list that the user allowed
            [sys.executable, "-I", "-S", supervisor.__file__, *command.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.position = 0
        raw: Any = self._process.stdout
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(raw, fcntl.F_SETPIPE_SZ, _BUFFER)
        self._stream = io.BufferedReader(_Pipe(raw.fileno(), timeout, self), _BUFFER)

    def read(self, size: int) -> bytes:
        """Reads bytes: fewer than asked for only at the end of the output.

        Raises:
            DatasetError: nothing came for `timeout` seconds.
        """
        data = self._stream.read(size)
        self.position += len(data)
        return data

    def require_success(self) -> None:
        """Waits for the end of the command, whose output has ended.

        Raises:
            DatasetError: it failed, or does not end.
        """
        try:
            code = self._process.wait(self._timeout)
        except subprocess.TimeoutExpired:
            raise self.stalled("has closed its output and does not end") from None
        if code == 0:
            return
        how = f"exit status {code}" if code <= 128 else f"ended by signal {code - 128}"
        raise DatasetError(
            f"pipe:{self._command.shown}",
            f"the command failed after {self.position} bytes ({how})",
            hint="run it by hand to see why",
        )

    def stalled(self, what: str) -> DatasetError:
        """Returns the error for a command from which nothing more comes."""
        return DatasetError(
            f"pipe:{self._command.shown}",
            f"the command {what} for {self._timeout:g} s, after {self.position} bytes",
            hint="say a longer command_timeout, or let the program give up by itself",
        )

    def close(self) -> None:
        """Ends the command, with the processes that it started, and waits for it."""
        lifeline: Any = self._process.stdin
        with contextlib.suppress(OSError):
            # Closing alone is not seen while a forked process holds a copy.
            os.write(lifeline.fileno(), b".")
        lifeline.close()
        output: Any = self._process.stdout
        output.close()
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@final
class _Pipe(io.RawIOBase):
    """Reads a pipe, and never waits for longer than it may."""

    def __init__(self, descriptor: int, timeout: float, running: Running) -> None:
        self._descriptor = descriptor
        self._timeout = timeout
        self._running = running
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if not self._poll.poll(min(self._timeout * 1000, _LONGEST_POLL)):
            raise self._running.stalled("has sent nothing")
        return os.readv(self._descriptor, [buffer])
