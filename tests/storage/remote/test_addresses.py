"""URLs and options: which are remote, how they are shown, which are the same file, which are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplerkit.errors import ArgumentTypeError, DatasetError
from samplerkit.storage.remote.filesystem import expand
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.urls import digest_of, identity, is_remote, shown

SHOWN = {
    "https://host/a.tar": "https://host/a.tar",
    "https://me:pw@host/a.tar?q#f": "https://host/a.tar",
    "https://me@host:80/a@b.tar": "https://host:80/a@b.tar",
    "https://[::1]:80/a": "https://[::1]:80/a",
    "https://me:pw@[::1]/a": "https://[::1]/a",
    "https://host?secret": "https://host",
    "s3://KEY:se/cret@bucket/a": "s3://bucket/a",
    "s3://KEY:se?cret@bucket/a": "s3://bucket/a",
    "s3://KEY:secret": "s3://...",
    "hdfs://namenode:8020/a": "hdfs://namenode:8020/a",
    "abfs://container@account.net/a": "abfs://container@account.net/a",
    "abfs://container:pw@account.net/a": "abfs://account.net/a",
    "zip://in/ner?x::https://me:pw@host/a.zip?q": "zip://in/ner::https://host/a.zip",
    "simplecache::s3://KEY:secret@bucket/a": "simplecache::s3://bucket/a",
    "/data/a?b#c.tar": "/data/a?b#c.tar",
    "a@b:c.tar": "a@b:c.tar",
}


@pytest.mark.parametrize(("url", "form"), SHOWN.items(), ids=SHOWN)
def test_urls_are_shown_without_secrets(url, form):
    assert shown(url) == form
    assert shown(form) == form


TEXT = st.text(st.characters(codec="ascii", exclude_characters="/@[]: \\", min_codepoint=33), min_size=8)


@given(TEXT, TEXT, TEXT)
def test_no_password_and_no_query_is_shown(user, password, query):
    url = f"https://U{user.replace('?', '').replace('#', '')}:P{password}Z@host/a?Q{query}Z"
    assert shown(url) == "https://host/a"


def test_remote_paths_are_recognized():
    remote = ("memory://a", "zip://a::s3://b/k", "simplecache::https://h/a", "HTTPS://H/A")
    local = ("local://a", "c://a", "pipe:curl -s http://h/a", "./http://h", "", "://a")
    assert [is_remote(path) for path in (*remote, *local)] == [True] * len(remote) + [False] * len(local)


def test_http_has_no_patterns_and_a_file_is_its_own():
    for url in ("https://h/a.tar?v=*", "https://[::1]/a", "https://h/a?b", "https://h?*"):
        assert expand(url, RemoteOptions()) == (url,)
    for pattern in ("https://h/*.tar?secret", "https://h/[ab].tar?v=1"):
        with pytest.raises(DatasetError, match=r"^https://h/[^?]*HTTP has no listing; name each URL"):
            expand(pattern, RemoteOptions())


@pytest.mark.parametrize("options", [{"auth": "me:pw"}, {"auth": ("pw",)}, {"auth": 5}, {"headers": ["pw"]}])
def test_malformed_http_options_are_refused_and_not_shown(options):
    with pytest.raises(ArgumentTypeError, match=r"^(auth|headers): must be") as caught:
        RemoteOptions(storage_options=options)
    assert "pw" not in str(caught.value)


def test_urls_of_one_file_are_recognized():
    base = "https://h/get"
    signed = [f"{base}?id=1&X-Amz-Signature={n}&X-Amz-Date={n}&X-Amz-Credential={n}" for n in "12"]
    azure = [f"{base}?id=1&sig={n}&se={n}&sv={n}&st={n}&sp=r&sr=b" for n in "12"]
    assert {identity(url) for url in (*signed, *azure)} == {f"{base}?id=1"}
    assert identity("https://me:pw@h/get?id=1#x") == f"{base}?id=1"
    different = [f"{base}?id=1", f"{base}?id=2", f"{base}?st=1", f"{base}?st=2", base, f"{base}?token=a"]
    assert len({identity(url) for url in different}) == len(different)


def test_digests_are_found_by_url_or_by_the_end_of_its_path():
    digests = {
        "a.tar": "md5:1",
        "train/a.tar": "md5:2",
        "https://h/x/a.tar": "md5:3",
        "https://h/q?id=1": "md5:4",
    }
    urls = [
        "s3://b/a.tar",
        "s3://b/c/train/a.tar?x",
        "https://h/x/a.tar?y",
        "https://h/q?id=1",
        "https://h/q?id=2",
    ]
    assert [digest_of(digests, url) for url in urls] == ["md5:1", "md5:2", "md5:3", "md5:4", None]
    assert digest_of(None, urls[0]) is None


def test_a_pattern_in_a_chain_of_urls_is_refused():
    with pytest.raises(DatasetError, match="is a pattern in a chain of URLs; name each URL"):
        expand("zip://*.tar::s3://bucket/a.zip", RemoteOptions())
