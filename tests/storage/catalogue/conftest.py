import pytest

from tests.storage.catalogue.kinds import KINDS


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request):
    """Tar shards, Parquet files, and files with a reader, one after another."""
    return request.param
