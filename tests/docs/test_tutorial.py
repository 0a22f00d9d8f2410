"""The tutorial and the recipes, followed word for word: their commands run, and print what they say."""

import re
from pathlib import Path

import pytest

from tests.docs.followed import FOR_THE_READER, follow, lasting
from tests.storage.conftest import endpoint  # noqa: F401  # a fixture

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
