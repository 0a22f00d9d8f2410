"""Running a command that starts processes of its own, to the end of all of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def ended(*arguments: str, seconds: float, folder: Path = ROOT, **environment: str) -> tuple[int, str, str]:
    """Runs Python with arguments, in a session of its own, of which nothing is left afterwards.

    Returns:
        The exit code, what it printed, and what it printed to standard error.
    """
    ours = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **ours, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            printed, errors = process.communicate(timeout=seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, printed, errors
