"""Files of each kind; the command `samplerkit`."""

import pytest

from tests.cli.conftest import command, printed, refused
from tests.storage.catalogue.kinds import KINDS

__all__ = ["command", "printed", "refused"]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request):
    """Tar shards, Parquet files, and files with a reader, one after another."""
    return request.param
