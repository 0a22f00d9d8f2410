"""Running a command as a user does, and finding what it left behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

from tests import programs

ROOT = Path(__file__).parents[2]
DEMO = (sys.executable, "-m", "samplerkit.cli.main", "demo", "--seeds", "1", "--json")


def without_job() -> dict[str, str]:
    """The environment of a user without a running job."""
    job = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    return {name: value for name, value in os.environ.items() if name not in job}


def environment(temporary: Path) -> dict[str, str]:
    """The same, with its temporary files in a folder of the test."""
    return {**without_job(), "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}


def run_example(name: str, *arguments: object, temporary: Path) -> subprocess.CompletedProcess[str]:
    """Runs an example of the documentation to its end, as a fork of a process that has imported torch."""
    script = map(str, (ROOT / "docs" / "examples" / name, *arguments))
    return programs.run(["-c", programs.SCRIPT, *script], 900, env=environment(temporary))


def run(command: tuple[str, ...], temporary: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=environment(temporary),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def lines_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The output of a program that has succeeded."""
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def processes_of(folder: Path, patience: float = 60.0) -> list[str]:
    """Command lines of processes with the folder in them or as TMPDIR that still run after some seconds."""
    end = time.monotonic() + patience
    while (processes := _naming(str(folder))) and time.monotonic() < end:
        time.sleep(0.1)
    return [line for _, line in processes]


def pids_of(folder: Path) -> list[int]:
    """The processes whose command lines name the folder now."""
    return [pid for pid, _ in _naming(str(folder))]


def _naming(text: str) -> list[tuple[int, str]]:
    processes = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            environment = path.with_name("environ").read_bytes().decode(errors="replace")
        except OSError:  # it has ended
            continue
        if text in line or f"TMPDIR={text}" in environment:
            processes.append((int(path.parent.name), line))
    return processes
