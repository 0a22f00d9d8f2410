"""A page, followed word for word: its files are saved, its commands run, and what they print is kept.

Commands of samplerkit run in this process, since each start of torch takes seconds; `python` and `torchrun`
fork a process that has imported torch.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from samplerkit.cli.main import main
from tests.cli.processes import without_job
from tests.programs import put_python

BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)

FOR_THE_READER = "in the checkout"
"""The one block of commands that does not run here: what it installs is what these tests run in."""


@dataclass
class Told:
    """A command of the page, and what it came to."""

    command: str
    expected: str
    printed: str = ""
    errors: str = ""
    code: int = -1


PLAIN = {"COLUMNS": "80", "NO_COLOR": "1"}
"""As wide as the page, and without colours."""


def follow(page, folder):
    """Runs all blocks of a page in their order, as a reader does."""
    commands = []
    for language, title, text in BLOCK.findall(page):
        if language == "sh" and title != FOR_THE_READER:
            commands.append(run(text, folder))
        elif language == "text":
            commands[-1].expected = text
        elif title and title != FOR_THE_READER:
            (folder / title).write_text(text, encoding="utf-8")
    return commands


def run(text, folder):
    """Runs a block of commands."""
    if text.startswith("samplerkit ") and text.count("\n") == 1:
        return run_here(text, folder)
    with tempfile.TemporaryDirectory() as commands:
        # Ranks meet on loopback, which works without a network too.
        ours = {**without_job(), **PLAIN, **put_python(Path(commands)), "GLOO_SOCKET_IFNAME": "lo"}
        done = subprocess.run(
            ["/bin/bash", "-eu", "-o", "pipefail", "-c", text],
            cwd=folder,
            env=ours,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    return Told(text, "", done.stdout, done.stderr, done.returncode)


def run_here(text, folder):
    """Runs one command of samplerkit as `samplerkit.cli.main` does when a shell starts it."""
    (line,) = text.splitlines()
    printed, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder), pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", shlex.split(line))
        for name, value in PLAIN.items():
            patch.setenv(name, value)
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
            main()
    return Told(text, "", printed.getvalue(), errors.getvalue(), ended.value.code)


def lasting(text):
    """Leaves out what differs from machine to machine: times, memory, bytes, downloads so far, accuracies."""
    text = re.sub(r"^(start|memory) .*$", r"\1 ...", text, flags=re.MULTILINE)
    text = re.sub(r"[\d,]+ bytes", "... bytes", text)
    text = re.sub(r"skipped [1-9]\d*", "skipped some", text)  # how long a JPEG is, is Pillow's to say
    text = re.sub(r"downloads \d+", "downloads ...", text)
    text = re.sub(r"(window \d+ of) \d+", r"\1 ...", text)  # Python's manual is the corpus
    return re.sub(r"(accuracy |loss |: )\d\.\d\d", r"\1...", text)
