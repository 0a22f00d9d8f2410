"""One command that runs: its output as a stream of bytes, and its end."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import select
import shutil
import subprocess
import sys
from typing import Any, final

from samplerkit.compat.webdataset import supervisor
from samplerkit.compat.webdataset.commands import Command
from samplerkit.errors import DatasetError

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
            raise DatasetError(f"pipe:{command.shown}", problem, mend="install it, or check the PATH")
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
            mend="run it by hand to see why",
        )

    def stalled(self, what: str) -> DatasetError:
        """Gives the error for a command from which nothing more comes."""
        return DatasetError(
            f"pipe:{self._command.shown}",
            f"the command {what} for {self._timeout:g} s, after {self.position} bytes",
            mend="say a longer command_timeout, or let the program give up by itself",
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
