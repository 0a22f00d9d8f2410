"""A cache for each test, and a bucket."""

import pickle
import subprocess
from types import SimpleNamespace

import pytest

from samplerkit.testing import dataset_contract
from tests.storage.crowd import Child


@pytest.fixture(autouse=True)
def _fork_instead_of_subprocess(monkeypatch):
    """The contract reads in a new Python process, which takes seconds: only `tests/testing` starts one."""

    def run(command, *, input, **_):
        Child(lambda: dataset_contract._require_read(*pickle.loads(input))).result()  # noqa: S301  # its own
        return subprocess.CompletedProcess(command, 0, b"", b"")

    monkeypatch.setattr(dataset_contract, "subprocess", SimpleNamespace(run=run))


@pytest.fixture(autouse=True)
def cache_home(tmp_path, monkeypatch):
    """The user's cache folder while a test runs."""
    home = tmp_path.with_name(f"{tmp_path.name}-home")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return home


@pytest.fixture
def no_locks(monkeypatch):
    """A filesystem without locks: there is none here to try."""

    def refuses(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuses)


@pytest.fixture(scope="module")
def endpoint():
    """A server on loopback that behaves like S3."""
    moto = pytest.importorskip("moto.server", reason="moto is not installed")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint, monkeypatch):
    """The bucket `shards`."""
    boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    resource = boto3.resource(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test-key",
        aws_secret_access_key="test-secret",  # noqa: S106
    )
    shards = resource.create_bucket(Bucket="shards")
    yield shards
    shards.objects.delete()
    shards.delete()
