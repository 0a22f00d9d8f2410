"""Invalid files: an error that names the file, never a wait or a lack of memory."""

from __future__ import annotations

import io
import os
import zipfile

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.files.dataset import FileDataset
from samplerkit.storage.lengths import save_lengths
from tests.storage.crowd import run_in_threads
from tests.storage.remote.server import served


def header(shape, descr="<f8"):
    """What an npy file begins with."""
    data = io.BytesIO()
    np.lib.format.write_array_header_1_0(data, {"descr": descr, "fortran_order": False, "shape": shape})
    return data.getvalue()


def as_npy(path, data):
    path.write_bytes(data)


def as_npz(path, data, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("x.npy", data)


def as_packed_npz(path, data):
    as_npz(path, data, zipfile.ZIP_DEFLATED)


@pytest.mark.parametrize("reader", ["npz", "npy", "parquet", "csv", "jsonl", "text"])
def test_a_named_pipe_is_an_error_at_once(tmp_path, reader):
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def reads_and_counts():
        with pytest.raises(sk.DatasetError, match=r"pipe: is not a regular file; give the files"):
            FileDataset([path], reader, [3], read_ahead=0)[0]
        with pytest.raises(sk.DatasetError, match=r"pipe: is not a regular file; give the files"):
            len(FileDataset([path], reader, progress=False))

    run_in_threads(reads_and_counts)


@pytest.mark.parametrize(
    ("shape", "descr"),
    [((10**12,), "<f8"), ((3, 10**17), "<f8"), ((10**4,), "|V1000000000"), ((2**62, 2**62), "<f8")],
    ids=["rows", "columns", "items", "overflow"],
)
@pytest.mark.parametrize("write", [as_npy, as_npz, as_packed_npz])
def test_an_array_larger_than_its_file_is_an_error_with_both_sizes(tmp_path, write, shape, descr):
    reader = "npy" if write is as_npy else "npz"
    path = tmp_path / f"claims.{reader}"
    write(path, header(shape, descr) + bytes(24))
    claimed = np.dtype(descr).itemsize * int(np.prod(np.array(shape, dtype=object)))
    with pytest.raises(
        sk.DatasetError, match=rf"claims\.{reader}.*: claims {claimed} bytes of data, but has"
    ):
        len(FileDataset([path], reader, progress=False))
    with pytest.raises(sk.DatasetError, match=rf"claims\.{reader}"):
        FileDataset([path], reader, [3], read_ahead=0)[0]


def lacks_memory(path):  # noqa: ARG001  # readers are given a path
    raise MemoryError("too much")


def test_a_memory_error_names_a_remote_file_by_its_url(tmp_path):
    (tmp_path / "large").write_bytes(b"x")
    with served(tmp_path) as web:
        url = f"{web.url}/large"
        with (
            FileDataset([f"{url}?key=SECRET"], lacks_memory, [3], remote={"cache": tmp_path}) as dataset,
            pytest.raises(MemoryError) as caught,
        ):
            dataset[0]
    assert caught.value.__notes__ == [f"while {url} was read"]


def test_saved_lengths_have_the_permissions_of_the_umask_which_is_never_changed(tmp_path, monkeypatch):
    """It is the whole process's: files that other threads made meanwhile could be written to by all."""
    before = os.umask(0o027)
    try:
        monkeypatch.setattr(os, "umask", lambda mask: pytest.fail(f"the mask was set to {mask:o}"))
        save_lengths(tmp_path / "lengths.json", ["a"], np.array([1]))
    finally:
        monkeypatch.undo()
        os.umask(before)
    assert (tmp_path / "lengths.json").stat().st_mode & 0o777 == 0o640


def test_lengths_that_cannot_be_saved_are_an_error_with_the_given_path(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(sk.DatasetError, match=r"file/lengths\.json: cannot be written \(File exists\)"):
        save_lengths(tmp_path / "file" / "lengths.json", ["a"], np.array([1]))
