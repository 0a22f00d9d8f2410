"""Runs a command that starts processes of its own, to the end of all; and reserves a port for a job."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.programs import ROOT, Program
from tests.waiting import LoadFreeTimer


def ended(
    *arguments: str,
    seconds: float | None = None,
    load_free_seconds: float | None = None,
    folder: Path = ROOT,
    **environment: str,
) -> tuple[int, str, str]:
    """Runs a program of Python, in a session of its own, all of which is ended afterwards.

    Args:
        arguments: of Python; if flags come first, Python is started, which takes seconds.
        seconds: how long it may take; or else:
        load_free_seconds: likewise, without the time that a busy machine adds: for a program that might hang.
        folder: where it runs.
        environment: variables, in addition to those of this process.

    Returns:
        The exit code, the output and the standard error.
    """
    variables = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    forked = arguments[0] in {"-c", "-m"}
    start: Callable[..., subprocess.Popen[str]] = Program if forked else partial(_python, text=True)
    # A killed program leaves the folder of its sockets, and only this can remove it.
    with (
        tempfile.TemporaryDirectory(prefix="job-", ignore_cleanup_errors=True) as temporary,
        start(
            arguments,
            cwd=folder,
            env={**os.environ, **variables, "TMPDIR": temporary, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process,
    ):
        try:
            if load_free_seconds:
                printed, errors = _communicate(process, load_free_seconds)
            else:
                printed, errors = process.communicate(timeout=seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, printed, errors


def _python(arguments: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, *arguments], start_new_session=True, **options)


def _communicate(process: subprocess.Popen[str], load_free_seconds: float) -> tuple[str, str]:
    with LoadFreeTimer([process.pid]) as own:
        while own.seconds < load_free_seconds:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.communicate(timeout=1)
    raise subprocess.TimeoutExpired(process.args, load_free_seconds)


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Yields a port of loopback that is reserved, and on which a process of the job may listen."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
