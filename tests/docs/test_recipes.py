"""The recipes, followed word for word: files on disk, a run, one that was stopped and goes on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.followed import FOR_THE_READER, follow, lasting
from tests.storage.conftest import endpoint  # noqa: F401  # a fixture

PAGES = sorted((Path(__file__).parents[2] / "docs" / "recipes").glob("*.md"))


@pytest.fixture
def bucket(endpoint, monkeypatch):  # noqa: F811  # the same
    """The stand-in for an object store that the page on tar shards names."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "mine")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.mark.campaign
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_recipe_prints_what_the_page_says(page, tmp_path, request):
    text = page.read_text(encoding="utf-8")
    if "s3://" in text:
        request.getfixturevalue("bucket")
    told = follow(text, tmp_path)
    assert len(told) > 1
    for one in told:
        assert one.code == 0, one.errors
        assert lasting(one.printed) == lasting(one.expected), one.command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_recipe_begins_with_an_environment_and_has_a_run_that_resumes(page):
    text = page.read_text(encoding="utf-8")
    assert f'title="{FOR_THE_READER}"' in text
    assert "load_state_dict" in text
    assert re.search(r"^STOP_AT=\d+ torchrun", text, re.MULTILINE)
    assert len(re.findall(r"^torchrun", text, re.MULTILINE)) >= 1
