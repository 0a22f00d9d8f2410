"""Options, and what is wrong with them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage

WRONG = [
    ({"cache": 3}, ArgumentTypeError, "cache"),
    ({"cache": b"bytes"}, ArgumentTypeError, "cache"),
    ({"cache": ""}, ArgumentValueError, "cache"),
    ({"cache": "s3://bucket/cache"}, ArgumentValueError, "cache"),
    ({"max_cache_bytes": 0}, ArgumentRangeError, "max_cache_bytes"),
    ({"max_cache_bytes": 1.5}, ArgumentTypeError, "max_cache_bytes"),
    ({"max_cache_bytes": True}, ArgumentTypeError, "max_cache_bytes"),
    ({"timeout": 0}, ArgumentRangeError, "timeout"),
    ({"timeout": float("inf")}, ArgumentRangeError, "timeout"),
    ({"timeout": float("nan")}, ArgumentRangeError, "timeout"),
    ({"timeout": "30"}, ArgumentTypeError, "timeout"),
    ({"attempts": 0}, ArgumentRangeError, "attempts"),
    ({"attempts": None}, ArgumentTypeError, "attempts"),
    ({"retry_seconds": -1}, ArgumentRangeError, "retry_seconds"),
    ({"threads": 0}, ArgumentRangeError, "threads"),
    ({"threads": "many"}, ArgumentTypeError, "threads"),
    ({"digests": ["md5:0"]}, ArgumentTypeError, "digests"),
    ({"digests": {"a": 3}}, ArgumentTypeError, "digests"),
    ({"digests": {"a": "sha256:12"}}, ArgumentValueError, "digests"),
    ({"digests": {"a": f"md6:{'0' * 32}"}}, ArgumentValueError, "digests"),
    ({"digests": {"a": "0" * 64}}, ArgumentValueError, "digests"),
    ({"storage_options": [("key", 1)]}, ArgumentTypeError, "storage_options"),
    ({"storage_options": {3: 4}}, ArgumentTypeError, "storage_options"),
]


@pytest.mark.parametrize(("wrong", "error", "place"), WRONG, ids=[f"{wrong[0]}" for wrong in WRONG])
def test_a_wrong_option_is_named(wrong, error, place):
    for make in (lambda: RemoteOptions(**wrong), lambda: RemoteOptions.of(wrong)):
        with pytest.raises(error) as caught:
            make()
        assert caught.value.place == place


def test_options_are_taken_as_they_stand_in_a_config():
    options = RemoteOptions(cache=Path("/cache"), timeout=3, digests={"a": f"MD5:{'A' * 32}"})
    assert options == RemoteOptions.of(
        {"cache": "/cache", "timeout": 3.0, "digests": {"a": f"md5:{'a' * 32}"}}
    )
    assert RemoteOptions.of(options) is options
    assert RemoteOptions.of(None) == RemoteOptions() == RemoteOptions.of({})
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301  # our own bytes
    assert len({options, RemoteOptions()}) == 2


@pytest.mark.parametrize("wrong", [3, "cache", ["cache"], True], ids=str)
def test_what_is_no_mapping_is_refused(wrong):
    with pytest.raises(ArgumentTypeError, match=r"^remote: must be a mapping"):
        RemoteOptions.of(wrong)


def test_an_unknown_option_is_named_with_the_known_ones():
    with pytest.raises(ArgumentValueError, match="'max_bytes'; known are cache, max_cache_bytes, timeout"):
        RemoteOptions.of({"max_bytes": 3})


def test_a_storage_wants_options():
    with pytest.raises(ArgumentTypeError, match="must be RemoteOptions"):
        RemoteStorage({"cache": "/cache"})
