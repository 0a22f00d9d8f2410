"""What is in a sample: tensors, fields that functions decode by their extension, and where its shard lies."""

from __future__ import annotations

import gzip
import pickle
import struct

import numpy as np
import pytest
from webdataset import autodecode, tenbin

import samplerkit as sk
from samplerkit.compat import webdataset as wds
from samplerkit.compat.webdataset.tensors import tensors
from tests.compat.webdataset_shards import serving, write

ARRAYS = [
    np.arange(12, dtype=kind).reshape(3, 4)
    for kind in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u8")
]


@pytest.mark.parametrize("extension", ["ten", "tb", "left.ten", "ten.gz"])
def test_tensors_are_what_webdataset_decodes(tmp_path, extension):
    data = bytes(tenbin.encode_buffer([*ARRAYS, np.zeros((0, 3))]))
    with wds.TarWriter(f"{tmp_path}/one.tar") as writer:
        writer.write({"__key__": "a", extension: gzip.compress(data) if extension.endswith("gz") else data})
    sample = next(iter(wds.WebDataset(f"{tmp_path}/one.tar").decode()))[extension]
    for ours, theirs in zip(sample, tenbin.decode_buffer(data), strict=True):
        assert (ours.dtype, ours.shape, ours.tolist()) == (theirs.dtype, theirs.shape, theirs.tolist())
        assert ours.flags.writeable


def test_tensors_of_broken_bytes_are_errors_and_never_more_than_was_there():
    whole = bytes(tenbin.encode_buffer([np.arange(5.0), np.arange(3)]))
    for stop in range(1, len(whole)):
        read_or_refused(whole[:stop])
    for place in range(len(whole)):
        for value in (0, 255):
            read_or_refused(whole[:place] + bytes([value]) + whole[place + 1 :])


def chunk(data):
    return b"~TenBin~" + struct.pack("<q", len(data)) + data + bytes(-len(data) % 64)


def header(*shape, kind=b"f8"):
    return chunk(struct.pack(f"<8s8s{1 + len(shape)}q", kind, b"", len(shape), *shape))


BROKEN = {
    "no array": (header(1), "a header has no array"),
    "a length that is cut": (header(1) + b"~TenBin~", "in the middle of a length"),
    "another mark": (b"x" * 80, "wrong mark or length at byte 0"),
    "a length beyond the end": (b"~TenBin~" + struct.pack("<q", 2**62), "wrong mark or length"),
    "a negative length": (b"~TenBin~" + struct.pack("<q", -8), "wrong mark or length"),
    "a header that is cut": (chunk(b"f8") + chunk(b""), "too short"),
    "a size beyond the bytes": (header(10**12) + chunk(bytes(8)), "have 8 bytes for shape"),
    "a negative size": (header(-1, -1) + chunk(bytes(8)), "and shape"),
    "objects": (header(1, kind=b"O") + chunk(bytes(8)), "type 'O'"),
    "another number of sizes": (chunk(struct.pack("<8s8sq", b"f8", b"", 2)) + chunk(b""), "and shape"),
}


@pytest.mark.parametrize(("data", "text"), BROKEN.values(), ids=BROKEN.keys())
def test_each_kind_of_broken_tensors_says_what_is_wrong(data, text):
    with pytest.raises(sk.DatasetError, match=text):
        tensors(".ten", data)


def read_or_refused(data):
    """No other error, and no more numbers than there are bytes."""
    try:
        arrays = tensors(".ten", data)
    except sk.DatasetError:
        return
    assert sum(array.nbytes for array in arrays) <= len(data)


def test_functions_by_extension_are_called_as_webdatasets_are():
    ours, theirs = (module.handle_extension("JPG seg.png", len) for module in (wds, autodecode))
    names = (".jpg", ".left.JPG", ".seg.png", ".png", ".a.seg.png", ".jpg.x", ".", ".xseg.png")
    assert [ours(name, b"123") for name in names] == [theirs(name, b"123") for name in names]
    assert pickle.loads(pickle.dumps(ours)) == ours  # noqa: S301  # our own
    for extensions, text in (("", "must not be empty"), (3, "must be a text")):
        with pytest.raises(sk.SamplerkitError, match=text):
            wds.handle_extension(extensions, len)
    with pytest.raises(sk.ArgumentTypeError, match="must be a function"):
        wds.handle_extension("jpg", 3)


def test_a_sample_tells_where_its_shard_lies_as_a_whole(tmp_path):
    urls = write(tmp_path, 2, 8)
    lie = {sample["__local_path__"] for sample in wds.WebDataset(urls)}
    assert lie == {f"{tmp_path}/many-000.tar", f"{tmp_path}/many-001.tar"}
    cache = tmp_path / "cache"
    with serving(tmp_path) as (url, _):
        remote = f"{url}/many-{{000..001}}.tar"
        samples = list(wds.WebDataset(remote, cache_dir=cache))
        in_parts = list(wds.WebDataset(remote, remote={"cache": tmp_path / "other"}, fetch="ranges"))
    assert len({sample["__local_path__"] for sample in samples}) == 2
    for sample in samples:
        with sk.TarDataset(sample["__local_path__"], cache=tmp_path / "third") as copy:
            assert sample["__key__"] in list(copy.keys())
    assert all(sample["__local_path__"].startswith(str(cache)) for sample in samples)
    assert all("__local_path__" not in sample for sample in in_parts)
