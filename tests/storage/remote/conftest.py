"""A server, and a storage that retries quickly."""

import datetime as dt
import ipaddress
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from tests.storage.remote.server import DATA, served
from tests.waiting import new_threads, wait_until


@pytest.fixture
def server():
    with served() as state:
        yield state


@pytest.fixture
def url(server):
    """Of a file on the server."""
    return server.put("/a", DATA)


CLIENTS = {"signed": {}, "fsspec": {"s3_additional_kwargs": {}}}
"""Options of S3 with which a file is read by HTTP, or by s3fs, since HTTP does not support one of them."""


@pytest.fixture(params=CLIENTS)
def client_options(request):
    """The options that choose the client of S3."""
    return CLIENTS[request.param]


@pytest.fixture
def separate_requests(monkeypatch):
    """Makes each part a request of its own, also in files as small as those of tests."""
    monkeypatch.setattr("samplerkit.storage.remote.access._joined", lambda before, part: None)


@pytest.fixture
def storage(tmp_path):
    """Makes storages; checks at the end that they leave no threads and no temporary files."""
    storages = []
    before = set(threading.enumerate())

    def make(**options):
        quick = {"cache": tmp_path / "cache", "timeout": 60.0, "attempts": 3, "retry_seconds": 0.1}
        storages.append(RemoteStorage(RemoteOptions(**{**quick, **options})))
        return storages[-1]

    yield make
    for each in storages:
        each.close()
    wait_until(lambda: not new_threads(before))
    assert list((tmp_path / "cache").glob("*.part")) == []


@pytest.fixture
def certificate(tmp_path):
    """A certificate of 127.0.0.1 that no authority has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    now = dt.datetime.now(dt.UTC)
    cert = (
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
        cert.public_bytes(serialization.Encoding.PEM) + key.private_bytes(serialization.Encoding.PEM, *plain)
    )
    return path
