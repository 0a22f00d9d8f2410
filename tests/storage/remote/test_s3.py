"""S3, by a server on loopback that answers as it does."""

from __future__ import annotations

from typing import Any

import pytest

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.filesystem import expand
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import Span
from tests.storage.remote.contents import content

pytest.importorskip("s3fs", reason="s3fs is not installed")
pytest.importorskip("obstore", reason="obstore is not installed")
pytestmark = pytest.mark.usefixtures("way")


@pytest.fixture
def options(endpoint) -> dict[str, Any]:
    return {"key": "test-key", "secret": "test-secret", "endpoint_url": endpoint}


@pytest.mark.parametrize("told", [{}, {"version_aware": True}])
def test_a_version_that_a_url_names_is_read_in_parts_and_as_a_whole(bucket, options, storage, told):
    bucket.Versioning().enable()
    written = {
        bucket.put_object(Key="a.tar", Body=body).version_id: body for body in (b"old" * 99, b"new" * 99)
    }
    reader = storage(storage_options={**options, **told})
    assert reader.read([Span("s3://shards/a.tar", 0, 3)]) == [b"new"]
    for version, body in written.items():
        url = f"s3://shards/a.tar?versionId={version}"
        assert reader.read([Span(url, 1, 5), Span(url, 200, 3)]) == [body[1:6], body[200:203]]
        assert content(reader.fetch(url)) == body
    bucket.object_versions.delete()


def test_a_pattern_lists_a_bucket(bucket, options):
    for name in ("b", "a", "sub/c"):
        bucket.put_object(Key=f"train/{name}.tar", Body=b"x")
    found = expand("s3://shards/train/*.tar", RemoteOptions(storage_options=options))
    assert found == ("s3://shards/train/a.tar", "s3://shards/train/b.tar")
    deep = expand("s3://shards/**/*.tar", RemoteOptions(storage_options=options))
    assert deep == (*found, "s3://shards/train/sub/c.tar")


@pytest.mark.usefixtures("bucket")
def test_a_store_that_refuses_tells_no_secret(options, storage):
    with pytest.raises(DatasetError, match=r"s3://shards/none: does not exist") as caught:
        storage(storage_options=options).fetch("s3://shards/none")
    assert "test-" not in str(caught.value)
    gone = {**options, "endpoint_url": "http://127.0.0.1:9"}
    with pytest.raises(
        DatasetError, match=r"tried 3 times .*(EndpointConnectionError|cannot be reached)"
    ) as caught:
        storage(storage_options=gone).version("s3://shards/a")
    assert "test-" not in str(caught.value)
