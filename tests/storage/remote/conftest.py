"""A server, and a storage that tries again soon."""

from __future__ import annotations

import datetime as dt
import ipaddress
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from tests.storage.remote.contents import DATA
from tests.storage.remote.server import Server, served
from tests.waiting import started_since, wait_until


@pytest.fixture
def server() -> Iterator[Server]:
    with served() as state:
        yield state


@pytest.fixture
def url(server) -> str:
    """Of a file on the server."""
    return server.put("/a", DATA)


WAYS: dict[str, dict[str, Any]] = {"signed": {}, "fsspec": {"s3_additional_kwargs": {}}}
"""Options of S3 by which a file is read by HTTP, or, since they have one that HTTP does not know, by s3fs."""


@pytest.fixture(params=WAYS)
def way(request) -> dict[str, Any]:
    """What lets a client read from S3."""
    return WAYS[request.param]


@pytest.fixture
def apart(monkeypatch) -> None:
    """Lets each part have a request of its own, also where files are as small as those of tests."""
    monkeypatch.setattr("samplerkit.storage.remote.access._joined", lambda before, part: None)


@pytest.fixture
def storage(tmp_path) -> Iterator[Callable[..., RemoteStorage]]:
    """Makes storages, whose threads and temp files are gone at the end."""
    made = []
    before = set(threading.enumerate())

    def make(**options: Any) -> RemoteStorage:
        quick = {"cache": tmp_path / "cache", "timeout": 60.0, "attempts": 3, "retry_seconds": 0.1}
        made.append(RemoteStorage(RemoteOptions(**{**quick, **options})))
        return made[-1]

    yield make
    for each in made:
        each.close()
    wait_until(lambda: not started_since(before))
    assert list((tmp_path / "cache").glob("*.part")) == []


@pytest.fixture
def certificate(tmp_path) -> Path:
    """A certificate of 127.0.0.1 that no authority has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "certificate.pem"
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(serialization.Encoding.PEM, *plain)
    )
    return path
