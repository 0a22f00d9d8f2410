"""The tutorial, followed word for word: its files are saved, its commands run, and print what the page says.

Commands of samplerkit run in this process, since each start of torch takes seconds; all others are real ones.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from samplerkit.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)

FOR_THE_READER = "in the checkout"
"""The one block of commands that does not run here: what it installs is what these tests run in."""

CRASHES = "CRASH_AT"
"""A command with it ends as a killed rank does."""


@dataclass
class Told:
    """A command of the page, and what it came to."""

    command: str
    expected: str
    printed: str = ""
    errors: str = ""
    code: int = -1


def environment():
    job = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    ours = {name: value for name, value in os.environ.items() if name not in job}
    path = f"{Path(sys.executable).parent}{os.pathsep}{ours['PATH']}"
    # Ranks meet on loopback, which works without a network too.
    return {**ours, "PATH": path, "COLUMNS": "80", "NO_COLOR": "1", "GLOO_SOCKET_IFNAME": "lo"}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Runs all blocks in their order, as a reader does."""
    folder = tmp_path_factory.mktemp("my_first_order")
    commands = []
    for language, title, text in BLOCK.findall(PAGE):
        if language == "sh" and title != FOR_THE_READER:
            commands.append(run(text, folder))
        elif language == "text":
            commands[-1].expected = text
        elif title != FOR_THE_READER:
            (folder / title).write_text(text, encoding="utf-8")
    return commands


def run(text, folder):
    """Runs a block of commands."""
    if text.startswith("samplerkit "):
        return run_here(text, folder)
    done = subprocess.run(
        ["/bin/bash", "-eu", "-o", "pipefail", "-c", text],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Told(text, "", done.stdout, done.stderr, done.returncode)


def run_here(text, folder):
    """Runs one command of samplerkit as `samplerkit.cli.main` does when a shell starts it."""
    (line,) = text.splitlines()
    printed, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder), pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", shlex.split(line))
        for name in ("COLUMNS", "NO_COLOR"):
            patch.setenv(name, environment()[name])
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
            main()
    return Told(text, "", printed.getvalue(), errors.getvalue(), ended.value.code)


def lasting(text):
    """Leaves out what differs from machine to machine: times, memory, bytes of a picture, accuracies."""
    text = re.sub(r"^(start|memory) .*$", r"\1 ...", text, flags=re.MULTILINE)
    text = re.sub(r"[\d,]+ bytes", "... bytes", text)
    return re.sub(r"accuracy \d\.\d\d", "accuracy ...", text)


def accuracies(text):
    return [float(found) for found in re.findall(r"accuracy (\d\.\d\d)", text)]


def test_every_command_prints_what_the_page_says(told):
    assert len(told) > 8
    for one in told:
        assert one.code == (1 if CRASHES in one.command else 0), one.errors
        assert lasting(one.printed) == lasting(one.expected), one.command
        assert accuracies(one.printed) == pytest.approx(accuracies(one.expected), abs=0.04)


def test_the_rank_is_really_killed_and_the_others_go_on_without_a_loss(told):
    (killed,) = [one for one in told if CRASHES in one.command]
    assert "Signal 9 (SIGKILL)" in killed.errors
    (resumed,) = [one for one in told if "--nproc-per-node 3" in one.command]
    assert "20 steps to go" in resumed.printed
    assert re.findall(r"seen (\d) to (\d) times", resumed.printed) == [("1", "1"), ("2", "2"), ("3", "3")]


def test_what_machines_differ_in_is_left_out_and_nothing_else():
    told = "start    0.3 ms to the first\nmixing   .958; 1 is\norder.png: 1,234 bytes\naccuracy 0.92, each"
    elsewhere = "start    9.1 ms to the first\nmixing   .958; 1 is\norder.png: 99 bytes\naccuracy 0.91, each"
    assert lasting(told) == lasting(elsewhere)
    assert lasting(told) != lasting(told.replace(".958", ".959"))
