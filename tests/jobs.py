"""Runs a program to the end of all its processes; reserves a port for a job."""

from __future__ import annotations

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

from tests.load_free_timer import LoadFreeTimer
from tests.programs import Program

ROOT = Path(__file__).parents[1]


def ended(
    *arguments: str,
    seconds: float | None = None,
    load_free_seconds: float | None = None,
    folder: Path = ROOT,
    **environment: str,
) -> tuple[int, str, str]:
    """Runs a Python program in a session of its own, and ends all processes of the session.

    Args:
        arguments: of Python; those with `-c` and `-m` are forked, others start Python, which takes seconds.
        seconds: how long it may take.
        load_free_seconds: the same, without the time that a busy machine adds; in place of `seconds`.
        folder: its working directory.
        environment: further variables.

    Returns:
        The exit code, what it printed, and what it printed to standard error.
    """
    ours = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    forked = arguments[0] in {"-c", "-m"}
    start: Callable[..., subprocess.Popen[str]] = Program if forked else partial(_python, text=True)
    # A killed process leaves the folder of its sockets.
    with (
        tempfile.TemporaryDirectory(prefix="job-", ignore_cleanup_errors=True) as temporary,
        start(
            arguments,
            cwd=folder,
            env={**os.environ, **ours, "TMPDIR": temporary, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process,
    ):
        try:
            printed, errors = _read(process, seconds, load_free_seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, printed, errors


def _python(arguments: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, *arguments], start_new_session=True, **options)


def _read(process: subprocess.Popen[str], seconds: float | None, load_free: float | None) -> tuple[str, str]:
    if load_free is None:
        return process.communicate(timeout=seconds)
    with LoadFreeTimer([process.pid]) as timer:
        while timer.seconds < load_free:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.communicate(timeout=1)
    raise subprocess.TimeoutExpired(process.args, load_free)


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Reserves a port of loopback on which a process of the job may listen."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
