"""Runs the examples as a user does: as processes, all of which are ended afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "trainers"
MARK = "SAMPLERKIT_TEST_JOB"


class Job:
    """Some processes, and all that they start.

    Ranks and daemons get sessions of their own, so that ending a process group does not end them. All of them
    inherit a mark in the environment, by which they are found.

    Args:
        folder: receives what the processes print.
        environment: variables for all processes.
    """

    def __init__(self, folder: Path, **environment: str) -> None:
        self._folder = folder
        self._name = uuid.uuid4().hex
        self._environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "PYTHONUNBUFFERED": "1",
            # torch 2.13 keeps the keys of a torchrun's former attempts otherwise: a rank may then try to
            # reach one that is dead. See docs/trainers/elastic.md.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "HF_HUB_OFFLINE": "1",
            **environment,
            MARK: self._name,
        }
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str | Path, **environment: str) -> subprocess.Popen[bytes]:
        """Starts Python with arguments."""
        with self._printed(len(self._started)).open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, *map(str, arguments)],
                cwd=ROOT,
                env={**self._environment, **environment},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def end(self, process: subprocess.Popen[bytes], seconds: float) -> tuple[int, str]:
        """Waits for a process; returns its exit code and output.

        Raises:
            TimeoutError: it did not end; its output is in the message.
        """
        printed = self._printed(self._started.index(process))
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"no end after {seconds} s:\n{printed.read_text()}") from None
        return code, printed.read_text()

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # None twice in a row: then those that were about to start another one have ended too.
        quiet, end = 0, time.monotonic() + 10
        while quiet < 2 and time.monotonic() < end:
            marked = [int(path.name) for path in Path("/proc").glob("[0-9]*") if self._is_in(path)]
            quiet = 0 if marked else quiet + 1
            for pid in marked:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        for process in self._started:
            process.wait(10)

    def _printed(self, number: int) -> Path:
        return self._folder / f"printed-{number}.txt"

    def _is_in(self, process: Path) -> bool:
        try:
            environment = (process / "environ").read_bytes()
        except OSError:
            return False
        return f"{MARK}={self._name}".encode() in environment.split(b"\0")


def run(folder: Path, *arguments: str | Path, seconds: float = 240, **environment: str) -> tuple[int, str]:
    """Runs Python with arguments to its end; returns its exit code and output."""
    with Job(folder, **environment) as job:
        return job.end(job.start(*arguments), seconds)


def output_of(folder: Path, *arguments: str | Path, seconds: float = 240, **environment: str) -> str:
    """Runs Python with arguments to its end, as `run`; returns the output of what succeeds."""
    code, printed = run(folder, *arguments, seconds=seconds, **environment)
    assert code == 0, printed
    return printed


def run_until_killed(folder: Path, *arguments: str | Path, rank: int, step: int) -> None:
    """Runs Python with arguments until a rank is killed in a step, which ends all of it."""
    code, printed = run(folder, *arguments, DIGITS_KILL=f"{rank}:{step}")
    assert code != 0
    assert (folder / f"killed-{rank}-{step}").exists(), printed


def torchrun(ranks: int, *script: str | Path, restarts: int = 0) -> list[str | Path]:
    """The arguments that start a script on some ranks."""
    options = ["--standalone", f"--nproc-per-node={ranks}", f"--max-restarts={restarts}"]
    return ["-m", "torch.distributed.run", *options, *script]
