import pytest

from tests.storage.catalogue.kinds import KINDS


@pytest.fixture(autouse=True)
def cache_home(tmp_path, monkeypatch):
    """The user's cache folder while a test runs."""
    home = tmp_path / "cache-home"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return home


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request):
    """Tar shards, Parquet files, and files with a reader, one after another."""
    return request.param
