"""Runs a measurement in a process of its own, with a limit of time and of memory for each of its cells."""

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tests.benchmarks.peers.cases import CELL_GIB, CELL_SECONDS
from tests.benchmarks.peers.memory import status_mib

ROOT = Path(__file__).parents[3]
POLL_SECONDS = 0.1
ENDED = "ended"
"""The key of the last line of a run: why it ended before its work was done."""


def environment() -> dict[str, str]:
    """Gives the environment variables of a measurement: one thread, loopback only."""
    ours = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore"}
    return {**os.environ, **ours, "GLOG_v": "3", "TOKENIZERS_PARALLELISM": "false"}


def cells_of(
    command: list[str], seconds: float = CELL_SECONDS, gib: float = CELL_GIB
) -> Iterator[Mapping[str, Any]]:
    """Runs a command that prints a JSON line for each cell.

    Args:
        command: what to run, in the root of the repository.
        seconds: how long a cell may take; the first one includes the start.
        gib: how much memory the process may have.

    Yields:
        The cells; last, where it did not end well, {"ended": why}.
    """
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        ) as process,
        selectors.DefaultSelector() as selector,
    ):
        assert process.stdout is not None
        selector.register(process.stdout, selectors.EVENT_READ)
        os.set_blocking(process.stdout.fileno(), False)
        printed_at, problem = time.monotonic(), None
        try:
            for cells in _printed(process.stdout, selector):
                if cells:
                    printed_at = time.monotonic()
                    yield from cells
                problem = _over(process.pid, time.monotonic() - printed_at, seconds, gib)
                if problem is not None:
                    break
            else:
                process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            problem = "did not end"
        finally:
            # Its workers are of its session; after a good end there are none.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if problem is None and process.returncode != 0:
            errors.seek(0)
            last = [line for line in errors.read().splitlines() if line.strip()][-1:]
            problem = f"failed: {last[0][:160] if last else process.returncode}"
        if problem is not None:
            yield {ENDED: problem}


def _printed(pipe: IO[bytes], selector: selectors.BaseSelector) -> Iterator[list[Any]]:
    """Gives the cells that were printed since the last look, to the end of the output."""
    pending = b""
    while True:
        lines: list[bytes] = []
        if selector.select(POLL_SECONDS):
            read = pipe.read()
            if read == b"":
                return
            *lines, pending = (pending + (read or b"")).split(b"\n")
        yield [json.loads(line) for line in lines if line.startswith(b'{"cell"')]


def _over(pid: int, taken: float, seconds: float, gib: float) -> str | None:
    """Returns the limit that a process is over."""
    if taken > seconds:
        return f"over {seconds:g} s"
    return f"over {gib:g} GiB" if status_mib("VmRSS", pid) > gib * 1024 else None
