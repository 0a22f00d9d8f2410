"""Decoding by extension as in webdataset, except for what runs code."""

from __future__ import annotations

import gzip
import io
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import webdataset

import samplerkit as sk
from samplerkit.storage.tar.codecs import IMAGE_SPECS, Decode
from samplerkit.storage.tar.dataset import TarDataset
from tests.storage.checks import identical
from tests.storage.tar.shards import jpeg_tiles, read_by_webdataset, write_tar

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
        Decode.of(("rgb9",), None)


@pytest.mark.parametrize("extension", ["pkl", "pickle", "pyd", "pth", "pt", "x.pkl"])
def test_pickles_are_refused_and_run_nothing(tmp_path, extension):
    marker = tmp_path / "ran"

    class Bomb:
        def __reduce__(self):
            return marker.write_text, ("it ran",)

    sample = {"__key__": "a", extension: pickle.dumps(Bomb()), "txt": "fine"}
    dataset = TarDataset(write_tar(f"{tmp_path}/x-%d.tar", [sample]))
    with pytest.raises(
        sk.DatasetError, match=r"is a pickle, which runs code when it is loaded; give decode a fun"
    ):
        dataset.decode()[0]
    assert dataset.decode(only="txt")[0]["txt"] == "fine"
    decoded = dataset.decode(lambda name, data: len(data) if name.endswith(extension[-3:]) else None)
    assert decoded[0][extension] > 10
    assert not marker.exists()


def test_an_image_without_pillow_is_an_error_that_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(sk.DatasetError, match="needs Pillow for images; install it with: pip install pillow"):
        Decode.of(("pil",), None)({"jpg": jpeg_tiles()[0][1]})


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
    for only in (None, {name}):
        with pytest.raises(sk.DatasetError, match=problem):
            dataset.decode("pil", only=only)[0]
    assert dataset.decode("pil", only=["bin"])[0]["bin"] == b""
