"""Decoding by extension: what webdataset gives, but nothing that runs code."""

from __future__ import annotations

import gzip
import io
import pickle

import numpy as np
import pytest
import torch
import webdataset

import samplerkit as sk
from samplerkit.storage.tar.codecs import IMAGE_SPECS, Decode
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.writer import TarWriter
from tests.storage.tar.shards import jpeg_tiles, read_by_webdataset

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


def arrays():
    npy, npz = io.BytesIO(), io.BytesIO()
    np.save(npy, np.arange(6.0).reshape(2, 3))
    np.savez(npz, x=np.arange(3), y=np.ones((2, 2), np.float16))
    return {"npy": npy.getvalue(), "npz": npz.getvalue()}


def equal(one, other):
    """Whether two decoded values are the same, type and all."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if hasattr(one, "tobytes"):
        return (one.mode, one.size, one.tobytes()) == (other.mode, other.size, other.tobytes())
    return one == other


def test_fields_are_decoded_as_webdataset_does(tmp_path):
    with TarWriter(f"{tmp_path}/x-%d.tar") as writer:
        writer.write({"__key__": "a", **FIELDS, **arrays()})
        writer.write({"__key__": "b", **{f"{name}.gz": gzip.compress(data) for name, data in FIELDS.items()}})
    dataset = TarDataset(writer.paths).decode()
    for number, sample in enumerate(read_by_webdataset([tmp_path / "x-0.tar"])):
        assert equal(dataset[number], webdataset.Decoder([])(sample))


@pytest.mark.parametrize("spec", sorted(IMAGE_SPECS))
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P"])
def test_images_are_decoded_as_webdataset_does(tmp_path, spec, mode):
    tile = webdataset.imagehandler("pil")(".jpg", jpeg_tiles()[0][1]).convert(mode)
    stream = io.BytesIO()
    tile.save(stream, "PNG")
    with TarWriter(f"{tmp_path}/x-%d.tar") as writer:
        writer.write({"__key__": "a", "png": stream.getvalue(), "cls": 1})
    (sample,) = read_by_webdataset([tmp_path / "x-0.tar"])
    expected = webdataset.Decoder([webdataset.imagehandler(spec)])(sample)
    assert equal(TarDataset(writer.paths).decode(spec)[0], expected)


def test_our_image_names_are_those_of_webdataset():
    assert set(IMAGE_SPECS) == set(webdataset.autodecode.imagespecs)
    with pytest.raises(sk.ArgumentValueError, match="decode: is no kind of image, got 'rgb9'; known: l, l8,"):
        Decode.of(("rgb9",), None)


@pytest.mark.parametrize("extension", ["pkl", "pickle", "pyd", "pth", "pt", "x.pkl"])
def test_pickles_are_refused_and_run_nothing(tmp_path, extension):
    marker = tmp_path / "ran"

    class Bomb:
        def __reduce__(self):
            return marker.write_text, ("it ran",)

    with TarWriter(f"{tmp_path}/x-%d.tar") as writer:
        writer.write({"__key__": "a", extension: pickle.dumps(Bomb()), "txt": "fine"})
    dataset = TarDataset(writer.paths)
    with pytest.raises(
        sk.DatasetError, match=r"is a pickle, which runs code when it is loaded; give decode a fun"
    ):
        dataset.decode()[0]
    assert dataset.decode(only="txt")[0]["txt"] == "fine"
    given = dataset.decode(lambda name, data: len(data) if name.endswith(extension[-3:]) else None)
    assert given[0][extension] > 10
    assert not marker.exists()


def test_arrays_of_objects_are_refused(tmp_path):
    stream = io.BytesIO()
    np.save(stream, np.array([{}], dtype=object), allow_pickle=True)
    with TarWriter(f"{tmp_path}/x-%d.tar") as writer:
        writer.write({"__key__": "a", "npy": stream.getvalue()})
        writer.write({"__key__": "b", "msg": b"\x80", "cls": b"seven", "jpg": b"no image"})
        several = io.BytesIO()
        np.savez(several, x=np.array([{}], dtype=object))
        writer.write({"__key__": "c", "npz": several.getvalue()})
    dataset = TarDataset(writer.paths)
    with pytest.raises(sk.DatasetError, match=r"field 'npz': cannot be decoded \(Object arrays cannot"):
        dataset.decode()[2]
    with pytest.raises(
        sk.DatasetError, match=r"field 'npy': cannot be decoded \(Object arrays cannot be loaded"
    ):
        dataset.decode()[0]
    with pytest.raises(sk.DatasetError, match=r"field 'msg': has no decoder here; give decode a function"):
        dataset.decode()[1]
    with pytest.raises(
        sk.DatasetError, match=r"sample 'b' \(id 1\): decode failed: field 'cls': cannot be dec"
    ):
        dataset.decode(only=["cls"])[1]
    with pytest.raises(sk.DatasetError, match=r"field 'jpg': cannot be decoded \(cannot identify image file"):
        dataset.decode("pil", only={"jpg"})[1]
