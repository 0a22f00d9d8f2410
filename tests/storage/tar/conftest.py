"""Indexes of tests never go into the user's cache folder."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def cache_home(tmp_path, monkeypatch):
    """The user's cache folder while a test runs."""
    home = tmp_path / "cache-home"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return home
