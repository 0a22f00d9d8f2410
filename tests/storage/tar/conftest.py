"""Small shards, and a server of them; the command `samplerkit`."""

import pytest

from tests.cli.conftest import command
from tests.storage.remote.server import served
from tests.storage.tar.remote_shards import write_shards

__all__ = ["command"]


@pytest.fixture(name="folder")
def fixture_folder(tmp_path):
    """Small shards without indexes."""
    write_shards(tmp_path / "data", index=False)
    return tmp_path / "data"


@pytest.fixture
def server(tmp_path):
    """Serves small shards with their indexes; `server.folder` may be changed."""
    write_shards(tmp_path / "data")
    with served(tmp_path / "data") as server:
        yield server
