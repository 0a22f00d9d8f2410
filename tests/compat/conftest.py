"""Indexes of tests never go into the user's cache folder."""

from tests.storage.conftest import cache_home

__all__ = ["cache_home"]
