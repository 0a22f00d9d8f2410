"""Decoding by extension as in webdataset, except for what runs code; compressed fields are unpacked."""

import gzip
import io
import pickle
import random
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import webdataset

import samplerkit as sk
from samplerkit.storage import inflate
from samplerkit.storage.tar.codecs import IMAGE_SPECS, Decode
from samplerkit.storage.tar.dataset import TarDataset
from tests.storage.checks import assert_refused, identical
from tests.storage.remote.server import bytes_held, cached_sizes, leftovers
from tests.storage.tar.shards import jpeg_tiles, python_sources, read_by_webdataset, write, write_tar

FIELDS = {
    "txt": b"text \xc3\xa9",
    "text": b"more",
    "transcript": b"said",
    "cls": b"7",
    "cls2": b" 8\n",
    "index": b"9",
    "inx": b"-1",
    "id": b"10",
    "json": b'{"a": [1, 2.5, null]}',
    "jsn": b"[]",
    "bin": b"\x00\xff",
    "dotted.json": b"3",
}


def arrays(value):
    npy, npz = io.BytesIO(), io.BytesIO()
    np.save(npy, value, allow_pickle=True)
    np.savez(npz, x=value, y=np.ones((2, 2), np.float16))
    return {"npy": npy.getvalue(), "npz": npz.getvalue()}


def test_fields_are_decoded_as_webdataset_does(tmp_path):
    plain = {"__key__": "a", **FIELDS, **arrays(np.arange(6.0).reshape(2, 3))}
    zipped = {"__key__": "b", **{f"{name}.gz": gzip.compress(data) for name, data in FIELDS.items()}}
    dataset = TarDataset(write_tar(f"{tmp_path}/x-%d.tar", [plain, zipped])).decode()
    for number, sample in enumerate(read_by_webdataset([tmp_path / "x-0.tar"])):
        assert identical(dataset[number], webdataset.Decoder([])(sample))


@pytest.mark.parametrize("spec", sorted(IMAGE_SPECS))
def test_images_are_decoded_as_webdataset_does(tmp_path, spec):
    tile = webdataset.imagehandler("pil")(".jpg", jpeg_tiles()[0][1])
    samples = []
    for mode in ("RGB", "L", "RGBA", "P"):
        stream = io.BytesIO()
        tile.convert(mode).save(stream, "PNG")
        samples.append({"__key__": mode, "png": stream.getvalue(), "cls": 1})
    (path,) = write_tar(f"{tmp_path}/x-%d.tar", samples)
    decode = webdataset.Decoder([webdataset.imagehandler(spec)])
    for ours, sample in zip(TarDataset(path).decode(spec), read_by_webdataset([Path(path)]), strict=True):
        assert identical(ours, decode(sample)), sample["__key__"]


def test_our_image_names_are_those_of_webdataset():
    assert set(IMAGE_SPECS) == set(webdataset.autodecode.imagespecs)
    with pytest.raises(
        sk.ArgumentValueError, match="decode: is not a kind of image, got 'rgb9'; known: l, l8,"
    ):
        Decode(("rgb9",))


@pytest.mark.parametrize("extension", ["pkl", "pickle", "pyd", "pth", "pt", "x.pkl"])
def test_pickles_are_refused_and_run_nothing(tmp_path, extension):
    marker = tmp_path / "ran"

    class Bomb:
        def __reduce__(self):
            return marker.write_text, ("it ran",)

    sample = {"__key__": "a", extension: pickle.dumps(Bomb()), "txt": "fine"}
    dataset = TarDataset(write_tar(f"{tmp_path}/x-%d.tar", [sample]))
    assert_refused(dataset.decode(), "is a pickle, which runs code when it is loaded; give decode a fun", 0)
    for only in ("txt", {"txt"}):
        assert dataset.decode(only=only)[0]["txt"] == "fine"
    decoded = dataset.decode(lambda name, data: len(data) if name.endswith(extension[-3:]) else None)
    assert decoded[0][extension] > 10
    assert not marker.exists()


def test_an_image_without_pillow_is_an_error_that_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(sk.DatasetError, match="needs Pillow for images; install it with: pip install pillow"):
        Decode(("pil",))({"jpg": jpeg_tiles()[0][1]})


OBJECTS = np.array([{}], dtype=object)


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("npy", arrays(OBJECTS)["npy"], r"cannot be decoded \(Object arrays cannot be loaded"),
        ("npz", arrays(OBJECTS)["npz"], r"cannot be decoded \(Object arrays cannot be loaded"),
        ("msg", b"\x80", "has no decoder here; give decode a function"),
        ("cls", b"seven", "cannot be decoded"),
        ("jpg", b"no image", r"cannot be decoded \(cannot identify image file"),
        ("jpg", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n%%EndComments\n", "is PostScript"),
    ],
)
def test_a_field_that_cannot_be_decoded_is_an_error(tmp_path, name, data, problem):
    dataset = TarDataset(write_tar(f"{tmp_path}/x-%d.tar", [{"__key__": "a", name: data, "bin": b""}]))
    problem = f"sample 'a' \\(id 0\\): decode failed: field '{name}': {problem}"
    for only in (None, [name]):
        assert_refused(dataset.decode("pil", only=only), problem, 0)
    assert dataset.decode("pil", only=["bin"])[0]["bin"] == b""


SAMPLES, BYTES = 20, 10_000
SHARD = 240_000
"""More bytes than an unpacked shard of these samples takes."""


@pytest.fixture
def shards(tmp_path):
    """Six gzip archives of 20 samples of 10 kB each, and the data by key."""
    draw = random.Random(3)
    samples = {f"{number:03}": draw.randbytes(BYTES) for number in range(6 * SAMPLES)}
    each = ({"__key__": key, "bin": data} for key, data in samples.items())
    paths = []
    for path in map(Path, write_tar(tmp_path / "plain-%d.tar", each, samples_per_shard=SAMPLES, index=False)):
        paths.append(path.with_suffix(".tar.gz"))
        paths[-1].write_bytes(gzip.compress(path.read_bytes(), 1))
        path.unlink()
    return [str(path) for path in paths], samples


def copies(folder):
    return sorted((folder / "remote").glob("*.file"))


def test_a_gzip_archive_is_unpacked_once_and_a_changed_one_again(tmp_path):
    path, cache = write(tmp_path / "shard.tar.gz", jpeg_tiles()), tmp_path / "cache"
    assert len(list(TarDataset(path, cache=cache))) == 60
    (copy,) = copies(cache)
    inode = copy.stat().st_ino
    assert len(list(TarDataset(path, cache=cache))) == 60
    assert copy.stat().st_ino == inode
    write(path, python_sources())
    assert TarDataset(path, cache=cache)[0]["__key__"].startswith("email/")
    assert len(copies(cache)) == 2
    # Where space is short, the copy of the older version is evicted first.
    size = sum(each.stat().st_size for each in copies(cache))
    other = write(tmp_path / "other.tar.gz", jpeg_tiles()[:9])
    assert len(TarDataset(other, cache=cache, remote={"max_cache_bytes": size})) == 3
    assert copy not in copies(cache)
    assert len(copies(cache)) == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_unpacked_copies_count_in_the_bound_of_the_cache(tmp_path, shards, workers):
    paths, samples = shards
    bound = 3 * SHARD
    dataset = TarDataset(paths, cache=tmp_path / "cache", remote={"max_cache_bytes": bound, "timeout": 60})
    loader = sk.Loader(dataset, sk.RandomSampler(seed=7), batch_size=4, num_workers=workers, collate_fn=list)

    received, most = [], 0
    for batch in loader:
        received += batch
        most = max(most, bytes_held(tmp_path / "cache" / "remote"))
    assert Counter(sample["__key__"] for sample in received) == Counter(samples.keys())
    assert all(sample["bin"] == samples[sample["__key__"]] for sample in received)
    assert SHARD // 2 < most <= bound
    assert leftovers(tmp_path / "cache" / "remote") == []


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_an_archive_that_unpacks_to_more_than_it_may_is_an_error_that_names_the_limit(tmp_path, on_error):
    path = tmp_path / "bomb.tar.gz"
    path.write_bytes(gzip.compress(bytes(10_000_000)))
    remote = {"max_unpacked_bytes": 5_000_000}
    dataset = TarDataset(path, on_error=on_error, cache=tmp_path / "cache", remote=remote)
    problem = r"bomb\.tar\.gz: unpacks to more than 5000000 bytes \(max_unpacked_bytes\).*use remote="
    assert_refused(dataset, problem)
    assert leftovers(tmp_path / "cache" / "remote") == []
    assert cached_sizes(tmp_path / "cache" / "remote") == []


@pytest.mark.parametrize("name", ["bin.gz", "npz"])
def test_a_field_that_unpacks_to_more_than_memory_should_hold_is_an_error(monkeypatch, name):
    monkeypatch.setattr(inflate, "_FIELD_FLOOR", 1 << 20)  # the limit itself takes a second to fill

    def field(size):
        stream = io.BytesIO()
        if name == "npz":
            np.savez_compressed(stream, a=np.zeros(size - 128, np.uint8))  # of which the header is the rest
        else:
            stream.write(gzip.compress(bytes(size), 1))
        return {"__key__": "a", name: stream.getvalue()}

    Decode(())(field(1 << 20))
    problem = f"field '{name}': unpacks to more than \\d+ bytes, 200 times .*; leave it out by only="
    with pytest.raises(sk.DatasetError, match=problem):
        Decode(())(field((1 << 20) + 1))
