"""Forged indexes with a valid digest are not used, and made again."""

import hashlib
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from samplerkit.storage.arrays import _PREAMBLE, MAGIC, VERSION, UnreadableFileError, read_arrays
from samplerkit.storage.files.stored import Stored
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.index import index as index_file
from tests.storage.checks import assert_refused
from tests.storage.forging import forge
from tests.storage.remote.server import served
from tests.storage.tar.shards import write_tar

SAMPLES = 9


@pytest.fixture(name="originals", scope="module")
def fixture_originals(tmp_path_factory):
    """Two shards with their indexes."""
    folder = tmp_path_factory.mktemp("made")
    samples = ({"__key__": f"{n:03}", "txt": f"number {n}", "cls": n} for n in range(2 * SAMPLES))
    write_tar(f"{folder}/x-%d.tar", samples, samples_per_shard=SAMPLES, checksums=True)
    return folder


@pytest.fixture(name="shard")
def fixture_shard(originals, tmp_path):
    """One shard of a test's own, with its index."""
    return copy_shard(originals, tmp_path / "data")


def copy_shard(originals, folder, name="x-0.tar"):
    folder.mkdir(exist_ok=True)
    os.link(originals / "x-0.tar", folder / name)
    shutil.copy(originals / "x-0.tar.skidx", folder / f"{name}.skidx")
    return folder / name


def craft(header, magic=MAGIC, version=VERSION):
    """Gives a file with a valid digest and any content."""
    digest = hashlib.blake2b(header, digest_size=16).digest()
    return _PREAMBLE.pack(magic, version, len(header), digest) + header


def set_number(name, place, value):
    """Changes one number of an array."""

    def change(_meta, arrays):
        arrays[name] = arrays[name].astype("<i8")
        arrays[name][place] = value

    return change


def shorten(name):
    return lambda _, arrays: arrays.update({name: arrays[name][:-1]})


def set_meta(name, value):
    return lambda meta, _: meta.update({name: value})


def remove(name):
    return lambda meta, arrays: (meta.pop(name, None), arrays.pop(name, None))


def one_more_file(_meta, arrays):
    """Gives the last sample one file more than its fields."""
    for name in ("offset", "size", "crc"):
        arrays[name] = np.append(arrays[name], arrays[name][-1:])
    arrays["first"][-1] += 1


FORGED = [
    one_more_file,
    *(
        remove(name)
        for name in (
            *("archives", "unpacked", "fields", "flaws", "fingerprint", "is_certain"),
            *("samples", "first", "signature", "key_end", "keys", "offset", "size"),
        )
    ),
    *(
        set_meta(name, value)
        for name, value in [
            ("archives", 7),
            ("unpacked", 7),
            ("unpacked", []),
            ("unpacked", [10**30]),
            ("unpacked", [-1]),
            ("fields", 7),
            ("fields", []),
            ("fields", [[]]),
            ("fields", [["txt", 7]]),
            ("fingerprint", 7),
            ("flaws", [["x", "y", "z", "w"]]),
            ("flaws", [[0, 0, [], "x"]]),
            ("flaws", [[2, 0, "link", "x"]]),
        ]
    ),
    *(shorten(name) for name in ("first", "key_end", "size", "crc", "samples", "keys")),
    *(
        set_number(name, place, value)
        for name, place, value in [
            ("samples", 0, -1),
            ("samples", 0, 8),
            ("first", 0, 1),
            ("first", 1, 1),
            ("key_end", 1, 2**62),
            ("key_end", -1, 0),
            ("signature", 3, 1),
            ("offset", 0, 0),
            ("offset", 5, 2**63 - 1),
            ("offset", 5, 512),
            ("size", 5, 2**63 - 1),
        ]
    ),
]
"""Changes to values that are impossible in an index, of one archive or of several."""


def header(**values):
    content = {"meta": {}, "arrays": {}, "bytes": 0, **values}
    return json.dumps(content).encode()


HEADERS = [
    *(b"no JSON", b"[" * 100_000, b'{"bytes": %s}' % (b"9" * 5000), b"[]", b"{}"),
    *(header(meta=7), header(arrays=[]), header(bytes="0"), header(bytes=8)),
    *(
        header(arrays={"first": place})
        for place in (
            7,
            ["|O", 0, 0],
            [["<i8"], 0, 0],
            ["V1000000000000", 1, 0],
            ["<i8", -1, 0],
            ["<i8", 1, 0],
            ["<i8", 0, -8],
            ["<i8", 0, 8],
        )
    ),
]


@pytest.mark.parametrize("change", FORGED)
def test_an_index_with_impossible_values_is_made_again(tmp_path, shard, change):
    index, archives = Path(f"{shard}.skidx"), (Stored.of(str(shard)),)
    assert index_file.read_index(index, archives)
    forge(index, change)
    assert index_file.read_index(index, archives) is None
    for lengths in (None, [SAMPLES]):
        with TarDataset(shard, cache=tmp_path / "cache", lengths=lengths) as dataset:
            assert dataset[3]["txt"] == b"number 3"


def test_the_place_of_an_only_file_is_checked_too(tmp_path):
    write_tar(f"{tmp_path}/%d.tar", [{"__key__": "a", "cls": 1}], checksums=True)
    archives = (Stored.of(f"{tmp_path}/0.tar"),)
    assert index_file.read_index(tmp_path / "0.tar.skidx", archives)
    forge(tmp_path / "0.tar.skidx", set_number("offset", 0, 1))
    assert index_file.read_index(tmp_path / "0.tar.skidx", archives) is None


WRONG_FILES = {
    **{repr(each[:60]): (craft(each), r"its header is invalid|of the wrong size") for each in HEADERS},
    "longer than its file": (_PREAMBLE.pack(MAGIC, VERSION, 2**32 - 1, bytes(16)) + bytes(64), "damaged"),
    "another kind": (craft(header(), magic=bytes(len(MAGIC))), "another kind or version"),
    "another version": (craft(header(), version=VERSION + 1), "another kind or version"),
}


@pytest.mark.parametrize(("content", "problem"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_file_with_an_impossible_header_or_of_another_kind_or_version_is_not_read(
    tmp_path, content, problem
):
    (tmp_path / "forged").write_bytes(content)
    with pytest.raises(UnreadableFileError, match=problem):
        read_arrays(tmp_path / "forged", verify=problem != "another kind or version")
    (tmp_path / "empty").write_bytes(craft(header()))
    assert read_arrays(tmp_path / "empty") == ({}, {})


@pytest.fixture(name="joint", scope="module")
def fixture_joint(originals):
    """The joint index of both shards."""
    TarDataset(sorted(originals.glob("*.tar")), cache=originals / "cache", checksums=True).keys()
    (joint,) = (originals / "cache").glob("*.catalogue")
    return joint


@pytest.mark.parametrize("change", [FORGED[0], FORGED[-1], set_number("samples", slice(2), [1, 17])])
def test_a_joint_index_with_impossible_values_is_made_again(tmp_path, originals, joint, change):
    forged = tmp_path / joint.name
    shutil.copy(joint, forged)
    forge(forged, change)
    shards = sorted(originals.glob("*.tar"))
    assert TarDataset(shards, cache=tmp_path, checksums=True)[3]["txt"] == b"number 3"
    assert index_file.read_index(forged, tuple(map(Stored.of, map(str, shards))))


@pytest.mark.parametrize("at_once", [1, 2, 5, 2 * SAMPLES - 1, 2 * SAMPLES, 2 * SAMPLES + 1])
def test_wrong_offsets_are_detected_in_pieces_of_any_size(originals, joint, monkeypatch, at_once):
    monkeypatch.setattr(index_file, "AT_ONCE", at_once)
    archives = tuple(map(Stored.of, sorted(map(str, originals.glob("*.tar")))))
    index = index_file.reopened(joint, archives)

    def is_right(offset):
        return all(index_file.invariants(replace(index, arrays={**index.arrays, "offset": offset})))

    offsets = np.array(index.arrays["offset"])
    assert is_right(offsets)  # the files of the second archive begin again
    for file in range(offsets.size):
        if file % (2 * SAMPLES):
            offset = offsets.copy()
            offset[file] = offset[file - 1]
            assert not is_right(offset)


def test_an_invalid_index_next_to_a_remote_shard_is_ignored_with_a_warning(tmp_path, originals):
    names = ["0.tar", "1.tar"]
    first, second = (Path(f"{copy_shard(originals, tmp_path / 'data', name)}.skidx") for name in names)
    forge(first, FORGED[0])
    second.write_bytes(craft(HEADERS[0]))
    texts = [sample["txt"] for sample in TarDataset(originals / "x-0.tar", cache=tmp_path / "local")]
    with (
        served(tmp_path / "data") as server,
        TarDataset([f"{server.url}/{name}" for name in names], cache=tmp_path, checksums=True) as dataset,
        pytest.warns(UserWarning, match=r"\.tar\.skidx is damaged, or of another version") as warned,
    ):
        assert [sample["txt"] for sample in dataset] == texts * len(names)
    named = {re.search(r"(\d+\.tar)\.skidx is damaged", str(warning.message))[1] for warning in warned}
    assert named == set(names)


def test_pipes_in_place_of_files_are_not_waited_for(tmp_path, shard):
    index = Path(f"{shard}.skidx")
    index.unlink()
    os.mkfifo(index)
    dataset = TarDataset(shard, cache=tmp_path / "cache")
    assert len(dataset) == SAMPLES
    lazy = TarDataset(shard, cache=tmp_path / "cache", lengths=[SAMPLES])
    shard.unlink()
    os.mkfifo(shard)
    assert_refused(dataset, r"x-0\.tar: was changed while it was in use", 0)
    assert_refused(lazy, r"x-0\.tar: is not a regular file; give the files themselves", 0)
