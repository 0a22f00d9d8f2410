"""The tutorial and the recipes, followed word for word: their commands run, and print what they say.

Commands of samplerkit run in this process, since each start of torch takes seconds; `python` and `torchrun`
fork a process that has imported torch.
"""

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
from tests.storage.conftest import endpoint  # noqa: F401  # a fixture

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


TUTORIAL = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")

CRASHES = "CRASH_AT"
"""A command with it ends as a killed rank does."""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Runs all blocks in their order, as a reader does."""
    return follow(TUTORIAL, tmp_path_factory.mktemp("my_first_order"))


def accuracies(text):
    return [float(found) for found in re.findall(r"accuracy (\d\.\d\d)", text)]


def test_every_command_prints_what_the_page_says(told):
    assert len(told) > 8
    for one in told:
        assert one.code == (1 if CRASHES in one.command else 0), one.errors
        assert lasting(one.printed) == lasting(one.expected), one.command
        assert accuracies(one.printed) == pytest.approx(accuracies(one.expected), abs=0.04)


def test_the_rank_is_really_killed_and_the_others_continue_without_a_loss(told):
    (killed,) = [one for one in told if CRASHES in one.command]
    assert "Signal 9 (SIGKILL)" in killed.errors
    (resumed,) = [one for one in told if "--nproc-per-node 3" in one.command]
    assert "20 steps to go" in resumed.printed
    assert re.findall(r"seen (\d) to (\d) times", resumed.printed) == [("1", "1"), ("2", "2"), ("3", "3")]


RECIPES = sorted((Path(__file__).parents[2] / "docs" / "recipes").glob("*.md"))


@pytest.fixture
def bucket(endpoint, monkeypatch):  # noqa: F811  # the same
    """The stand-in for an object store that the page on tar shards names."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "mine")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.mark.campaign
@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_every_command_of_a_recipe_prints_what_the_page_says(page, tmp_path, request):
    text = page.read_text(encoding="utf-8")
    if "s3://" in text:
        request.getfixturevalue("bucket")
    told = follow(text, tmp_path)
    assert len(told) > 1
    for one in told:
        assert one.code == 0, one.errors
        assert lasting(one.printed) == lasting(one.expected), one.command


@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_a_recipe_begins_with_an_environment_and_has_a_run_that_resumes(page):
    text = page.read_text(encoding="utf-8")
    assert f'title="{FOR_THE_READER}"' in text
    assert "load_state_dict" in text
    assert re.search(r"^STOP_AT=\d+ torchrun", text, re.MULTILINE)
    assert len(re.findall(r"^torchrun", text, re.MULTILINE)) >= 1
