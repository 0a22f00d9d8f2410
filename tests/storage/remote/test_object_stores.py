"""Stores that change, are slow or redirect, by both clients; and the options that both understand."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import Span
from samplerkit.storage.remote.store_options import bucket_of
from tests.storage.remote.server import MODIFIED, Resource, served

pytest.importorskip("s3fs", reason="s3fs is not installed")
obstore = pytest.importorskip("obstore", reason="obstore is not installed")

SIZE = 5000


def put(server, number, data):
    """Puts an object where S3 has it, with the time of its last change, which S3 always says."""
    server.put(f"/shards/{number}.bin", data)
    server.resources[f"/shards/{number}.bin"].modified = MODIFIED
    return f"s3://shards/{number}.bin"


@pytest.mark.usefixtures("way")
def test_a_store_that_changes_or_hides_its_tag_is_noticed(server, storage):
    url = put(server, 0, b"a" * SIZE)
    reader = storage(storage_options={"anon": True, "endpoint_url": server.url})
    assert reader.read([Span(url, 5, 7)]) == [b"a" * 7]
    etag = server.resources["/shards/0.bin"].etag
    for changed in (
        Resource.of(b"b" * SIZE),
        Resource(b"a" * (SIZE + 1), etag),
    ):
        server.resources["/shards/0.bin"] = changed
        with pytest.raises(DatasetError, match="was changed while it was in use"):
            reader.read([Span(url, 5, 7)])
    server.resources["/shards/0.bin"] = Resource(b"a" * SIZE)
    with pytest.raises(DatasetError, match="without the tag that was given before"):
        reader.read([Span(url, 5, 7)])


@pytest.mark.parametrize("way", ["obstore alone"], indirect=True)
@pytest.mark.usefixtures("way")
def test_the_signature_does_not_follow_a_redirect_to_another_host(server, storage):
    with served() as other:
        url = put(server, 0, b"a" * SIZE)
        put(other, 0, b"a" * SIZE)
        signed = []

        def redirect(handler, _):
            signed.append("signature" in f"{handler.path} {handler.headers}".lower())
            handler.say(307, Location=f"{other.url}/shards/0.bin")

        server.always["GET", "/shards/0.bin"] = redirect
        options = {"key": "K", "secret": "secret", "endpoint_url": server.url}
        assert storage(storage_options=options).read([Span(url, 0, 3)]) == [b"aaa"]
        assert signed
        assert all(signed)
        assert not any("authorization" in request.headers for request in other.requests)


S3_ENDPOINT = {"endpoint_url": "http://127.0.0.1:9"}
TRANSLATED = [
    ("s3://b/k", {"key": "K", "secret": "S", "token": "T", **S3_ENDPOINT},
     {"access_key_id": "K", "secret_access_key": "S", "session_token": "T"}),
    ("s3a://b/k", {"anon": True, **S3_ENDPOINT}, {"skip_signature": True}),
    ("s3://b/k", {"anon": True, "client_kwargs": {"region_name": "eu-west-1", **S3_ENDPOINT}},
     {"region": "eu-west-1", "endpoint": "http://127.0.0.1:9"}),
    ("s3://b/k", {"anon": True, "headers": {"X": "1"}, "use_listings_cache": False, **S3_ENDPOINT}, {}),
    ("gs://b/k", {"token": "anon"}, {"skip_signature": True}),
    ("gcs://b/k", {"token": __file__, "project": "p"}, {"application_credentials": __file__}),
    ("az://c/k", {"account_name": "me", "account_key": "K"}, {"account_key": "K"}),
    ("abfs://c@me.dfs.core.windows.net/k", {"tenant_id": "T"}, {"account_name": "me", "tenant_id": "T"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("url", "options", "expected"), TRANSLATED, ids=[str(each[:2]) for each in TRANSLATED]
)
def test_options_of_fsspec_are_translated(url, options, expected):
    bucket = bucket_of(url, RemoteOptions(storage_options=options))
    assert bucket is not None
    assert bucket.has(url)
    assert bucket.path(url) == "k"
    assert expected.items() <= bucket.config.items()
    assert "config" not in repr(bucket)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://b/k", {"anon": True, "config_kwargs": {"signature_version": "s3"}, **S3_ENDPOINT}),
        ("s3://b/k", {"anon": True, "client_kwargs": {"verify": "ca.pem"}, **S3_ENDPOINT}),
        ("s3://KEY:secret@b/k", {**S3_ENDPOINT}),
        ("gs://b/k", {"token": {"type": "authorized_user"}}),
        ("gs://b/k", {"requester_pays": True}),
        ("az://c/k", {"account_name": "me", "sas_token": "sig"}),
        ("az://c/k", {"connection_string": "AccountName=me"}),
        ("hdfs://host/k", {}),
        ("zip://a::s3://b/k", {}),
    ],
    ids=str,
)
def test_what_cannot_be_translated_is_left_to_fsspec(url, options, monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    assert bucket_of(url, RemoteOptions(storage_options=options)) is None


@pytest.mark.parametrize("key", ["a//b", "/a", "a/", "a/../b", "ä", "a%20b", "a#b", "a?b", "a\\b", "."])
def test_a_key_that_obstore_would_change_is_left_to_fsspec(key):
    bucket = bucket_of("s3://b/k", RemoteOptions(storage_options={"anon": True, **S3_ENDPOINT}))
    assert not bucket.has(f"s3://b/{key}")


def test_credentials_of_a_profile_are_found_as_by_the_tools_of_aws(tmp_path, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    (tmp_path / "config").write_text("[profile other]\nregion = eu-north-1\n")
    (tmp_path / "credentials").write_text("[other]\naws_access_key_id = K\naws_secret_access_key = secret\n")
    bucket = bucket_of("s3://b/k", RemoteOptions(storage_options={"profile": "other", **S3_ENDPOINT}))
    assert bucket.config["region"] == "eu-north-1"
    assert (bucket.credentials()["access_key_id"], bucket.credentials()["secret_access_key"]) == (
        "K",
        "secret",
    )
    assert "secret" not in repr(bucket)
    with pytest.raises(DatasetError, match="s3://b/k: has no credentials"):
        bucket_of("s3://b/k", RemoteOptions(storage_options=S3_ENDPOINT))


def test_the_region_of_a_bucket_is_asked_where_no_endpoint_is_named(server, monkeypatch):
    def answer(handler, _):
        handler.say(301, **{"x-amz-bucket-region": "eu-west-3"})

    server.put("/b", b"")
    server.always["HEAD", "/b"] = answer
    monkeypatch.setattr("samplerkit.storage.remote.store_options._AWS", server.url)
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    bucket = bucket_of("s3://b/k", RemoteOptions(storage_options={"anon": True}))
    assert bucket.config["region"] == "eu-west-3"


@pytest.mark.parametrize("key", ["k", "a b/c(1).tar", "a+b=c@d:e,f!g'h.tar"])
@pytest.mark.parametrize("token", [None, "T"])
def test_a_url_is_signed_by_botocore_as_by_obstore(key, token):
    options = {"key": "K", "secret": "S", "token": token, **S3_ENDPOINT}
    bucket = bucket_of(f"s3://b/{key}", RemoteOptions(storage_options=options))
    store = bucket.store(client_options={"allow_http": True})

    def both() -> list[dict[str, list[str]]]:
        signed = [bucket.signed(f"s3://b/{key}"), obstore.sign(store, "GET", key, timedelta(hours=1))]
        assert {unquote(urlsplit(each).path) for each in signed} == {f"/b/{key}"}
        return [parse_qs(urlsplit(each).query) for each in signed]

    in_one_second = (pair for pair in iter(both, None) if pair[0]["X-Amz-Date"] == pair[1]["X-Amz-Date"])
    ours, theirs = next(in_one_second)
    assert ours == theirs
