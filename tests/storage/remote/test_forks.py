"""Workers of each kind, while the parent has read or reads: right bytes, no hang, obstore where it may be."""

from __future__ import annotations

import io
import json
import tarfile

import pytest

from tests.jobs import ended
from tests.storage.remote.fork_matrix import SAMPLES, SHARDS, content
from tests.storage.remote.server import MODIFIED

pytest.importorskip("s3fs", reason="s3fs is not installed")
pytest.importorskip("obstore", reason="obstore is not installed")

METHODS = ("fork", "forkserver", "spawn", "threads")
PARENTS = ("idle", "read", "reading")


@pytest.fixture
def shards(server, monkeypatch, tmp_path):
    """Shards in a bucket; indexes are kept in a cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    for shard in range(SHARDS):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for number in range(shard * SAMPLES, (shard + 1) * SAMPLES):
                member = tarfile.TarInfo(f"{number:06}.bin")
                member.size = 1000
                archive.addfile(member, io.BytesIO(content(number)))
        server.put(f"/shards/{shard}.tar", stream.getvalue())
        server.resources[f"/shards/{shard}.tar"].modified = MODIFIED
    return server.url


def used(url, folder, method, parent, loaders, epochs):
    """Gives whether the processes that read have used obstore."""
    arguments = ("-m", "tests.storage.remote.fork_matrix", url, str(folder), method, parent)
    code, printed, errors = ended(*arguments, str(loaders), str(epochs), seconds=240 + 20 * epochs)
    assert code == 0, errors
    return json.loads(printed)


@pytest.mark.parametrize(
    ("method", "parent", "expected"),
    [("fork", "idle", [True]), ("fork", "reading", [False]), ("forkserver", "reading", [True])],
)
def test_workers_read_right_bytes_whatever_their_parent_does(method, parent, expected, shards, tmp_path):
    assert used(shards, tmp_path, method, parent, 1, 2) == expected


EPOCHS = {"fork": 10, "threads": 10, "forkserver": 2, "spawn": 2}
"""Of the latter two each epoch starts interpreters; `fork_matrix` itself reads as many as one asks for."""


@pytest.mark.campaign
@pytest.mark.parametrize("loaders", [1, 2])
@pytest.mark.parametrize("parent", PARENTS)
@pytest.mark.parametrize("method", METHODS)
def test_the_whole_matrix(method, parent, loaders, shards, tmp_path):
    found = used(shards, tmp_path, method, parent, loaders, EPOCHS[method])
    assert True not in found or (method, parent == "idle") != ("fork", False)
