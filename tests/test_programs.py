"""Forked programs are like programs that Python has started: tests depend on that."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.programs import Program, run

PRINTS_STATE = """
import atexit, json, os, random, signal, sys, threading
import numpy as np
atexit.register(print, "the end")
print(json.dumps({
    "arguments": sys.argv, "name": __name__, "folder": os.getcwd(), "variables": sorted(os.environ),
    "path": sys.path[:2], "leads its session": os.getsid(0) == os.getpid() == os.getpgid(0),
    "threads": threading.active_count(), "descriptors": sorted(os.listdir("/proc/self/fd")),
    "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
    "tests": [name for name in sys.modules if name.startswith(("tests", "samplerkit"))],
    "read": sys.stdin.read(),
}))
print(random.random(), np.random.rand())
"""
IN_PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def state_of(start, arguments, folder):
    variables = {**os.environ, "PYTHONPATH": "/nowhere", "OMP_NUM_THREADS": "1"}
    with start(arguments, cwd=folder, env=variables, **IN_PIPES) as program:
        printed, errors = program.communicate("given")
    assert (program.returncode, errors) == (0, "")
    state, drawn, end = printed.splitlines()
    return json.loads(state), drawn, end


def python(arguments, **options):
    return subprocess.Popen([sys.executable, *arguments], text=True, start_new_session=True, **options)


@pytest.mark.parametrize("how", ["-c", "-m"])
def test_a_fork_has_the_state_of_a_new_python_process_and_its_own_random_numbers(how, tmp_path):
    (tmp_path / "said.py").write_text(PRINTS_STATE)
    arguments = [how, PRINTS_STATE if how == "-c" else "said", "one", "two"]
    started, *_ = state_of(python, arguments, tmp_path)
    (forked, drawn, end), (_, others, _) = (state_of(Program, arguments, tmp_path) for _ in range(2))
    assert forked == started
    assert end == "the end"
    assert {*drawn.split()}.isdisjoint(others.split())


@pytest.mark.parametrize(
    ("text", "code", "errors"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("raise ValueError('of the program')", 1, "ValueError: of the program\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT, "KeyboardInterrupt\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
    ],
)
def test_a_fork_ends_like_a_python_process(text, code, errors):
    done = run(["-c", text])
    assert done.returncode == code
    assert done.stderr.endswith(errors)
