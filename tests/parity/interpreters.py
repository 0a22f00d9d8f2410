"""Runs a peer in an interpreter of its own: cases as JSON lines, answers as `RESULT <JSON>` lines."""

import json
import subprocess
from pathlib import Path
from typing import Any


def peer_version(interpreter: str, peer: str, *modules: str) -> str | None:
    """Returns the version of a peer in an interpreter; None, and prints why, if it cannot be imported."""
    code = f"import {', '.join([peer, *modules])}; print({peer}.__version__)"
    done = subprocess.run(  # the interpreter that the caller names
        [interpreter, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"skipped: {interpreter} cannot import {peer}: {done.stderr.strip().splitlines()[-1:]}")
        return None
    return done.stdout.strip().splitlines()[-1]


def answers(
    interpreter: str, runner: Path, cases: list[dict[str, Any]], seconds: int
) -> list[dict[str, Any]]:
    """Lets a program of the peer answer all cases, in a process of its own.

    Raises:
        SystemExit: it ended before; the message has the case and the errors.
    """
    done = subprocess.run(  # the interpreter that the caller names
        [interpreter, "-W", "ignore", str(runner)],
        input="".join(json.dumps(case) + "\n" for case in cases),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    lines = done.stdout.splitlines()
    results = [line.removeprefix("RESULT ") for line in lines if line.startswith("RESULT ")]
    if len(results) < len(cases):
        case = {name: value for name, value in cases[len(results)].items() if name != "write"}
        raise SystemExit(f"{runner.stem} ended with {done.returncode} at {case}:\n{done.stderr[-2000:]}")
    return [json.loads(result) for result in results]
