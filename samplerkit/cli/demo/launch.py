"""Launching the demo's job with torchrun, and ending it in every case."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from samplerkit.errors import SamplerkitError

_SECONDS_TO_END = 5
_LOG_LINES = 30


class LaunchError(SamplerkitError, RuntimeError):
    """The job that a command launched failed; `report` is what the job said of it."""

    def __init__(self, place: str, problem: str, *, report: str, mend: str = "") -> None:
        super().__init__(place, problem, mend=mend)
        self.report = report


def tell(**event: Any) -> None:
    """Says something to the command that launched this job, as rank 0 does: one JSON object a line."""
    # One call, so that the line arrives in one piece; flushed, so that it arrives now.
    print(json.dumps(event), flush=True)  # noqa: T201  # stdout is the channel here, not a screen


def run_job(num_ranks: int, scratch: Path, *arguments: Any) -> Generator[dict[str, Any]]:
    """Runs a job and yields what rank 0 tells, as it tells it.

    Closing the iterator ends the job, so close it (`contextlib.closing`) where an exception may come between.

    Args:
        num_ranks: processes of the job.
        scratch: for logs and reports; whoever gives it deletes it.
        arguments: of each rank: the folder, and its work.

    Raises:
        LaunchError: a rank or torchrun failed.
    """
    reports, temporary, log_path = scratch / "reports", scratch / "temporary", scratch / "torchrun.log"
    reports.mkdir(parents=True)
    temporary.mkdir()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    launcher += ["--nproc-per-node", str(num_ranks)]
    # Ranks of one thread each; gloo on loopback, which works without a network and a resolvable host
    # name; torchrun's temporary files where we delete them.
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    ours = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": loopback, "TMPDIR": str(temporary)}
    with log_path.open("w", encoding="utf-8") as log:
        process = subprocess.Popen(  # noqa: S603  # our own program, without a shell
            [*launcher, "-m", "samplerkit.cli.demo.rank", str(reports), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **ours},
            start_new_session=True,  # Ctrl-C reaches the command alone, which ends the job in order
        )
    try:
        yield from _events(process)
        code = process.wait()
    finally:
        _end(process)
    if code:
        raise _failure(code, reports, log_path)


def _events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    for line in process.stdout or ():
        # A library may print as well.
        with contextlib.suppress(json.JSONDecodeError):
            event = json.loads(line)
            if isinstance(event, dict) and "event" in event:
                yield event


def _end(process: subprocess.Popen[str]) -> None:
    """Ends what still runs: torchrun by a signal, and each rank since its stdin closes."""
    if process.stdin is not None:
        process.stdin.close()
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _failure(code: int, reports: Path, log_path: Path) -> LaunchError:
    # The first to fail is the one to read: the others fail because it is gone.
    written = sorted(reports.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    if written:
        first = written[0]
        report = first.read_text(encoding="utf-8")
        return LaunchError(first.stem.replace("-", " "), "failed; its traceback is above", report=report)
    lines = log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
    return LaunchError(
        "torchrun",
        f"ended with code {code}; the end of its log is above",
        report="\n".join(lines),
        mend="it needs a free port on 127.0.0.1 and some processes",
    )
