"""S3, by servers on loopback that behave like it: through HTTP by signed URLs, and through s3fs."""

import pytest

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.access import Transient
from samplerkit.storage.remote.filesystem import expand
from samplerkit.storage.remote.http import Http
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.retries import Counts
from samplerkit.storage.remote.s3_signing import SignedUrls
from samplerkit.storage.remote.storage import Span
from samplerkit.storage.tar.read.shards import archive_names
from tests.storage.remote import faults
from tests.storage.remote.conftest import CLIENTS
from tests.storage.remote.server import MODIFIED, Resource, content, served

pytest.importorskip("s3fs", reason="s3fs is not installed")

SIZE = 5000


def put(server, number, data):
    """Puts an object where S3 has it."""
    server.put(f"/shards/{number}.bin", data, MODIFIED)
    return f"s3://shards/{number}.bin"


def test_a_changed_file_of_a_store_without_etag_is_an_error(server, storage, client_options):
    url = put(server, 0, b"a" * SIZE)
    reader = storage(storage_options={"anon": True, "endpoint_url": server.url, **client_options})
    assert reader.read([Span(url, 5, 7)]) == [b"a" * 7]
    server.resources["/shards/0.bin"] = Resource(b"a" * SIZE)
    with pytest.raises(DatasetError, match="without the tag of earlier ones"):
        reader.read([Span(url, 5, 7)])


def test_no_client_library_retries_by_itself(server, storage, client_options):
    url = put(server, 0, b"a" * SIZE)
    for method in ("HEAD", "GET", "VERSION"):
        server.always[method, "/shards/0.bin"] = faults.status(503)
    reader = storage(storage_options={"anon": True, "endpoint_url": server.url, **client_options}, attempts=2)
    with pytest.raises(DatasetError, match="tried 2 times"):
        reader.version(url)
    assert len(server.requests) == 2


def test_the_signature_does_not_follow_a_redirect_to_another_host(server, storage):
    with served() as other:
        url = put(server, 0, b"a" * SIZE)
        put(other, 0, b"a" * SIZE)
        signed = []

        def redirect(handler, _):
            signed.append("signature" in f"{handler.path} {handler.headers}".lower())
            handler.send(307, Location=f"{other.url}/shards/0.bin")

        server.always["GET", "/shards/0.bin"] = redirect
        options = {"key": "K", "secret": "secret", "endpoint_url": server.url}
        assert storage(storage_options=options).read([Span(url, 0, 3)]) == [b"aaa"]
        assert signed
        assert all(signed)
        assert not any("authorization" in request.headers for request in other.requests)


@pytest.fixture
def options(endpoint, client_options):
    return {"key": "test-key", "secret": "test-secret", "endpoint_url": endpoint, **client_options}


def test_a_version_that_a_url_names_is_read_in_parts_and_as_a_whole(bucket, options, storage):
    bucket.Versioning().enable()
    written = {
        bucket.put_object(Key="a.tar", Body=body).version_id: body for body in (b"old" * 99, b"new" * 99)
    }
    reader = storage(storage_options=options)
    assert reader.read([Span("s3://shards/a.tar", 0, 3)]) == [b"new"]
    for version, body in written.items():
        url = f"s3://shards/a.tar?versionId={version}"
        assert reader.read([Span(url, 1, 5), Span(url, 200, 3)]) == [body[1:6], body[200:203]]
        assert content(reader.fetch(url)) == body
    bucket.object_versions.delete()


def test_a_pattern_lists_a_bucket(bucket, options):
    for name in ("b", "a", "sub/c"):
        bucket.put_object(Key=f"train/{name}.tar", Body=b"x")
    files = archive_names("s3://shards/train/*.tar", RemoteOptions(storage_options=options))
    assert files == ("s3://shards/train/a.tar", "s3://shards/train/b.tar")
    deep = expand("s3://shards/**/*.tar", RemoteOptions(storage_options=options))
    assert deep == (*files, "s3://shards/train/sub/c.tar")


@pytest.mark.usefixtures("bucket")
def test_a_store_that_refuses_a_request_leaks_no_secret(options, storage):
    with pytest.raises(DatasetError, match=r"s3://shards/none: does not exist") as caught:
        storage(storage_options=options).fetch("s3://shards/none")
    assert "test-" not in str(caught.value)
    unreachable = {**options, "endpoint_url": "http://127.0.0.1:9"}
    with pytest.raises(
        DatasetError, match=r"tried 3 times .*(EndpointConnectionError|cannot be reached)"
    ) as caught:
        storage(storage_options=unreachable).version("s3://shards/a")
    assert "test-" not in str(caught.value)


KEYS = [
    "a b/c(1).tar",
    "a+b=c@d:e,f!g'h.tar",
    "a//b",
    "/a",
    "a/../b",
    "\u00e4",
    "a%20b",
    "a#b",
    "a?b",
    "a~b",
    ".",
]


@pytest.mark.parametrize("key", KEYS)
def test_each_key_is_read_as_it_is(key, bucket, storage, endpoint):
    bucket.put_object(Key=key, Body=b"0123456789", ContentEncoding="gzip")  # which the store only stores
    reader = storage(storage_options={"key": "K", "secret": "S", "endpoint_url": endpoint})
    url = f"s3://shards/{key}"
    assert reader.version(url).tag.startswith('"')  # by HTTP
    assert reader.read([Span(url, 3, 4)]) == [b"3456"]
    assert content(reader.fetch(url)) == b"0123456789"


@pytest.fixture
def signed_urls():
    """Makes signers of URLs, whose connections are closed at the end."""
    http = Http(RemoteOptions(), Counts())
    yield lambda **options: SignedUrls(options, http._headers)
    http.connections.close()


HERE = {"endpoint_url": "http://127.0.0.1:9"}


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://b/k", {"anon": True, "client_kwargs": {"verify": "ca.pem"}, **HERE}),
        ("s3://KEY:secret@b/k", HERE),
        ("s3://arn:aws:s3:us-east-1:123456789012:accesspoint/name/k", {}),
        ("s3://b/k", {"anon": True, **HERE, **CLIENTS["fsspec"]}),
        ("zip://a::s3://b/k", HERE),
        ("gs://b/k", {}),
    ],
    ids=str,
)
def test_urls_that_cannot_be_signed_are_read_through_fsspec(url, options, signed_urls):
    assert not signed_urls(**options).serves(url)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"anon": True, "client_kwargs": HERE}, "http://127.0.0.1:9/some.data/k"),
        ({"key": "K", "secret": "S", "token": "T", **HERE}, "X-Amz-Security-Token=T&X-Amz-Signature="),
        ({"key": "K", "secret": "S", "region_name": "eu-west-1", **HERE}, "%2Feu-west-1%2Fs3%2Faws4_request"),
    ],
    ids=str,
)
def test_the_options_of_s3fs_are_those_of_signed_urls(options, expected, signed_urls):
    urls = signed_urls(headers={"X-Key": "k"}, **options)
    assert urls.serves("s3a://some.data/k")
    assert expected in urls.address("s3a://some.data/k")[0]


@pytest.mark.parametrize("options", [{"anon": True}, {"key": "K", "secret": "S"}], ids=str)
@pytest.mark.parametrize(
    ("bucket", "expected"),
    [
        ("data", "https://data.s3.eu-west-1.amazonaws.com/k"),
        ("some.data", "https://s3.eu-west-1.amazonaws.com/some.data/k"),
    ],
)
def test_a_bucket_of_aws_is_requested_in_its_region(bucket, expected, options, signed_urls, monkeypatch):
    monkeypatch.setattr(SignedUrls, "_region_of", lambda self, bucket: "eu-west-1")
    url = signed_urls(region_name="us-west-2", **options).address(f"s3://{bucket}/k")[0]
    assert url.partition("?")[0] == expected


@pytest.fixture
def nobody(tmp_path, monkeypatch):
    """A user without credentials."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path


def test_credentials_of_a_profile_are_found_as_by_the_tools_of_aws(nobody, server, storage):
    (nobody / "config").write_text("[profile other]\nregion = eu-north-1\n")
    (nobody / "credentials").write_text("[other]\naws_access_key_id = KEY\naws_secret_access_key = secret\n")
    reader = storage(storage_options={"profile": "other", "endpoint_url": server.url})
    assert reader.read([Span(put(server, 0, b"a" * SIZE), 0, 3)]) == [b"aaa"]
    assert all("KEY%2F" in each.query and "eu-north-1" in each.query for each in server.requests)
    with pytest.raises(DatasetError, match=r"s3://shards/0\.bin: has no credentials: none were found"):
        storage(storage_options={"endpoint_url": server.url}).version("s3://shards/0.bin")
    with pytest.raises(DatasetError, match=r"is refused by botocore \(ProfileNotFound\)"):
        storage(storage_options={"profile": "none"}).version("s3://shards/0.bin")


def test_the_option_requester_pays_is_sent_with_each_request(server, storage):
    url = put(server, 0, b"a" * SIZE)
    options = {"key": "K", "secret": "S", "requester_pays": True, "endpoint_url": server.url}
    assert storage(storage_options=options).read([Span(url, 0, 3)]) == [b"aaa"]
    assert [each.headers["x-amz-request-payer"] for each in server.requests] == ["requester"] * 2


def test_a_signed_request_carries_no_other_credentials(server, storage, monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("default login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    options = {"key": "K", "secret": "S", "endpoint_url": server.url, "headers": {"X-Key": "1"}}
    url = put(server, 0, b"a" * SIZE)
    signed, address = [], SignedUrls.address
    monkeypatch.setattr(SignedUrls, "address", lambda urls, url: signed.append(url) or address(urls, url))
    assert storage(storage_options=options).read([Span(url, 0, 3)]) == [b"aaa"]
    assert signed == [url]  # once, though there are several requests
    assert not any({"authorization", "x-key"} & {*each.headers} for each in server.requests)


def test_the_region_of_a_bucket_is_requested_from_aws(server, signed_urls, monkeypatch):
    monkeypatch.setattr("samplerkit.storage.remote.s3_signing._is_of_aws", lambda endpoint: True)
    server.put("/b", b"")
    server.always["GET", "/b"] = lambda handler, _: handler.send(301, **{"x-amz-bucket-region": "eu-west-3"})
    urls = signed_urls(anon=True, endpoint_url=server.url)
    server.faults["GET", "/b"] = [lambda handler, _: handler.reset()]
    with pytest.raises(Transient, match="the connection broke"):
        urls.address("s3://b/k")
    assert urls.address("s3://b/k")[0] == f"{server.url}/b/k"  # a failed request is not remembered
    assert urls._regions == {"b": "eu-west-3"}
