"""What tests rely on: forked programs behave as Python's; files left over fail a run; CI's files exist."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.programs import ROOT, Program, run

STATE = """
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


def output_of(start, arguments, folder):
    variables = {**os.environ, "PYTHONPATH": "/nowhere", "OMP_NUM_THREADS": "1"}
    with start(arguments, cwd=folder, env=variables, **IN_PIPES) as program:
        printed, errors = program.communicate("given")
    assert (program.returncode, errors) == (0, "")
    state, drawn, end = printed.splitlines()
    return json.loads(state), drawn, end


def python(arguments, **options):
    return subprocess.Popen([sys.executable, *arguments], text=True, start_new_session=True, **options)


@pytest.mark.parametrize("how", ["-c", "-m"])
def test_a_fork_has_the_environment_of_a_start_of_python_and_its_own_random_numbers(how, tmp_path):
    (tmp_path / "state.py").write_text(STATE)
    arguments = [how, STATE if how == "-c" else "state", "one", "two"]
    started, *_ = output_of(python, arguments, tmp_path)
    (forked, drawn, end), (_, others, _) = (output_of(Program, arguments, tmp_path) for _ in range(2))
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
def test_a_fork_ends_as_a_program_of_python_ends(text, code, errors):
    done = run(["-c", text])
    assert done.returncode == code
    assert done.stderr.endswith(errors)


def test_files_left_in_the_temporary_folder_fail_the_run(tmp_path):
    test = tmp_path / "test_one.py"
    test.write_text("import tempfile\n\n\ndef test_one():\n    tempfile.mkdtemp(prefix='left-here-')\n")
    (tmp_path / "now.py").write_text("from tests import conftest\n\nconftest.SECONDS_TO_CLEAN_UP = 0\n")
    options = [option for plugin in ("xdist", "tests.conftest", "now") for option in ("-p", plugin)]
    options += ["-c", os.devnull, "--rootdir", str(tmp_path), "-n", "1", str(test)]
    variables = {"TMPDIR": str(tmp_path), "PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = run(["-m", "pytest", *options], env={**os.environ, **variables})
    assert ended.returncode == 1, ended.stdout
    assert "1 passed" in ended.stdout
    assert "left-here-" in ended.stdout
    assert not any(tmp_path.glob("tests-*"))


def test_every_file_that_runs_on_other_versions_exists():
    names = (ROOT / ".ci" / "core_tests").read_text().split()
    assert names
    assert [name for name in names if not (ROOT / name).exists()] == []
