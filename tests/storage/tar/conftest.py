"""A server of small shards."""

from __future__ import annotations

import pytest

from tests.storage.tar.remote_shards import write_shards
from tests.storage.tar.server import Server


@pytest.fixture
def server(tmp_path):
    """Serves small shards with their indexes; `server.folder` may be changed."""
    write_shards(tmp_path / "data")
    with Server(tmp_path / "data") as server:
        yield server
