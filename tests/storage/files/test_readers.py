"""The readers of the package, on real files and on hostile ones."""

import gzip
import io
import os
import pickle
import sys
import zipfile

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.errors import DatasetError
from samplerkit.storage.files.dataset import FileDataset
from samplerkit.storage.files.readers import (
    CsvReader,
    JsonlReader,
    NpyReader,
    NpzReader,
    ParquetReader,
    TextReader,
)
from samplerkit.storage.inflate import FLOOR
from samplerkit.storage.lengths import save_lengths
from tests.storage.checks import assert_refused
from tests.storage.crowd import run_in_threads
from tests.storage.remote.server import served


def all_of(dataset):
    with dataset:
        return dataset.__getitems__(range(len(dataset)))


# npz and npy


def test_npz_reads_only_the_given_keys(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(3), other=np.arange(9))
    dataset = FileDataset([tmp_path / "a.npz"], NpzReader(keys=("x",)))
    assert [sample["x"] for sample in all_of(dataset)] == [0, 1, 2]
    assert dataset.stats.bytes_read == 24
    with pytest.raises(sk.DatasetError, match=r"a\.npz: must have one column 'y', got \['x', 'other'\]"):
        all_of(FileDataset([tmp_path / "a.npz"], NpzReader(keys=("y",))))


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_of_every_version_is_counted(tmp_path, version):
    array = np.zeros(7, dtype=[("é" if version == (3, 0) else "e", "f4")])
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, array, version=version)
    assert NpyReader().count(str(tmp_path / "a.npy")) == 7


def test_counting_reads_headers_only(tmp_path):
    with (tmp_path / "huge.npy").open("wb") as file:
        shape = (1 << 27, 1024)
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
        file.truncate(file.tell() + (1 << 40))  # a TiB of nothing, which nobody can read
    assert NpyReader().count(str(tmp_path / "huge.npy")) == 1 << 27
    np.savez(tmp_path / "a.npz", x=np.zeros((1000, 1000)), y=np.zeros(1000))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[2000:-1000] = bytes(len(data) - 3000)  # what is in between may be anything
    (tmp_path / "a.npz").write_bytes(data)
    assert NpzReader(keys=("x",)).count(str(tmp_path / "a.npz")) == 1000


def test_an_npz_file_that_unpacks_beyond_the_limit_is_an_error_that_names_the_limit(tmp_path):
    path = str(tmp_path / "bomb.npz")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as member:
            header = {"descr": "|u1", "fortran_order": False, "shape": (FLOOR + 1,)}
            np.lib.format.write_array_header_1_0(member, header)
            member.write(b"x" * 1000)
        archive.infolist()[0].file_size = FLOOR + 129  # as its entry claims
        archive.infolist()[0].compress_size = 2_000_000
    with pytest.raises(DatasetError, match=rf"unpacks to more than {FLOOR} bytes \(max_unpacked_bytes\)"):
        FileDataset([path], "npz", [1])[0]


def test_the_limit_of_unpacked_bytes_of_npz_is_an_option(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(100_000), y=np.arange(100_000))
    path = str(tmp_path / "a.npz")
    with zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
    assert set(NpzReader(max_unpacked_bytes=size)(path)) == {"x", "y"}
    with pytest.raises(DatasetError, match=f"more than {size - 1} bytes"):
        NpzReader(max_unpacked_bytes=size - 1)(path)
    with pytest.raises(DatasetError, match=r"more than 1500000 bytes .*use NpzReader\(max_unpacked_bytes"):
        NpzReader(max_unpacked_bytes=1_500_000)(path)
    assert set(NpzReader(("y",), max_unpacked_bytes=1_500_000)(path)) == {"y"}


class Explodes:
    """An object whose unpickling would run code."""

    def __reduce__(self):
        return (sys.exit, ("code in the data was run",))


def saved(save):
    data = io.BytesIO()
    save(data, [1])
    return data.getvalue()


PICKLED = np.array([Explodes()] * 3, dtype=object)
NO_ARRAYS = {
    "pickled.npz": (lambda path: np.savez(path, PICKLED), "which are pickles", "allow_pickle=False"),
    "pickled.npy": (lambda path: np.save(path, PICKLED), "which are pickles", "allow_pickle=False"),
    "pickle.npz": (lambda path: path.write_bytes(pickle.dumps(Explodes())), "", ""),
    "pickle.npy": (lambda path: path.write_bytes(pickle.dumps(Explodes())), "", ""),
    "uneven.npz": (lambda path: np.savez(path, x=[1], y=[1, 2]), "'x': 1, 'y': 2", "'x': 1, 'y': 2"),
    "single.npz": (lambda path: np.savez(path, 3), "a single value", "a single value"),
    "single.npy": (lambda path: np.save(path, 3), "a single value", "a single value"),
    "empty.npz": (np.savez, "one length", "holds no array"),
    "other.npz": (lambda path: path.write_bytes(saved(np.save)), "", "read it with 'npy'"),
    "other.npy": (lambda path: path.write_bytes(saved(np.savez)), "", "read it with 'npz'"),
}
"""Writers of files without samples, and the error when they are counted, and when they are read."""


@pytest.mark.parametrize("name", NO_ARRAYS)
def test_a_file_without_arrays_or_with_pickles_is_an_error_that_names_it(tmp_path, name):
    write, counted, read = NO_ARRAYS[name]
    write(tmp_path / name)
    for lengths, problem in ((None, counted), ([3], read)):
        with pytest.raises(sk.DatasetError, match=rf"{name}.*{problem}"):
            all_of(FileDataset([tmp_path / name], name[-3:], lengths))


def test_a_memory_error_stays_one_unless_the_file_claims_more_than_it_holds(tmp_path, monkeypatch):
    def lacks(*_, **__):
        raise MemoryError

    np.save(tmp_path / "a.npy", np.arange(3))
    monkeypatch.setattr(np, "load", lacks)
    with pytest.raises(MemoryError):
        NpyReader()(str(tmp_path / "a.npy"))


# parquet


def test_parquet_files_are_read_by_columns(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: no parquet here")
    table = arrow.table({"x": np.arange(1000) * 0.5, "text": [f"row {row}" for row in range(1000)]})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "0.parquet", row_group_size=300)
    some = all_of(FileDataset([tmp_path / "0.parquet"], ParquetReader(columns=("x",))))
    assert [some[7], len(some)] == [{"x": 3.5}, 1000]
    for columns in (("y",), ("x", "y")):
        with pytest.raises(sk.DatasetError, match=r"0\.parquet: must have one column 'y'"):
            all_of(FileDataset([tmp_path / "0.parquet"], ParquetReader(columns=columns)))


# csv and lines of JSON


def test_csv_columns_have_the_types_of_all_their_values_or_the_given_ones(tmp_path):
    """What is a number in the first block is a text if a later value is one."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: no csv here")
    rows = "".join(f"{number},{number}\n" for number in range(200_000)) + "7,none\r\n"
    (tmp_path / "a.csv").write_bytes(gzip.compress(b"\xef\xbb\xbfid,code\r\n" + rows.encode()))
    with FileDataset([tmp_path / "a.csv"], "csv", progress=False) as dataset:
        assert [dataset[0], dataset[200_000]] == [{"id": 0, "code": "0"}, {"id": 7, "code": "none"}]
    reader = CsvReader(columns=("id",), types={"id": "float32"})
    with FileDataset([tmp_path / "a.csv"], reader, progress=False) as dataset:
        assert dataset[1] == {"id": 1.0}
        assert dataset[1]["id"].dtype == np.float32


CSVS = {
    "id\n1,2\n": (CsvReader(), "Expected 1 columns, got 2"),
    "id\n\xff\n": (CsvReader(), "column 'id' is not text in UTF-8"),
    "": (CsvReader(), "Empty CSV file"),
    "other\n1\n": (CsvReader(columns=("id",)), "'id'"),
    "id,n\n9007199254740993,1\n,2\n": (CsvReader(), "9007199254740993 not in range"),  # a float is another
    "id\n1\none\n": (CsvReader(types={"id": "int64"}), "Row #3: CSV conversion error to int64"),
}


@pytest.mark.parametrize("text", CSVS, ids=repr)
def test_invalid_csv_is_an_error_that_names_the_file(tmp_path, text):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: no csv here")
    (tmp_path / "a.csv").write_bytes(text.encode("latin-1"))
    reader, problem = CSVS[text]
    with pytest.raises(sk.DatasetError, match=rf"a\.csv.*{problem}"):
        all_of(FileDataset([tmp_path / "a.csv"], reader, progress=False))


def test_a_broken_line_of_json_is_named_and_spoils_no_other(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\n\n{"a": \n[18446744073709551617]')
    with FileDataset([tmp_path / "a.jsonl"], "jsonl", progress=False) as dataset:
        assert (dataset[0], dataset[2]) == ({"a": 1}, [2**64 + 1])
        with pytest.raises(sk.DatasetError, match=r"a\.jsonl, row 1: .*line 3: is not JSON"):
            dataset[1]
    dataset = FileDataset([tmp_path / "a.jsonl"], JsonlReader(("b",)), progress=False)
    assert_refused(dataset, r"a\.jsonl, row 0: .*no entry 'b'", 0)


# lines of text

TEXTS = {
    "nothing": ("", []),
    "one line": ("one", ["one"]),
    "an end": ("one\n", ["one"]),
    "no end": ("one\ntwo", ["one", "two"]),
    "empty lines": ("\n\nthree\n\n", ["", "", "three", ""]),
    "returns": ("one\r\ntwo\r\n", ["one", "two"]),
    "returns inside": ("o\rne\n\r\n", ["o\rne", ""]),
    "other separators": ("a\u2028b\x0bc\x85d\n", ["a\u2028b\x0bc\x85d"]),
    "umlauts": ("äöü\n漢字 🙂\n", ["äöü", "漢字 🙂"]),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", TEXTS)
def test_text_lines_are_read_also_from_gzip(tmp_path, monkeypatch, case, packed):
    """Under any name, and of several members, as bgzip and `cat a.gz b.gz` make them."""
    monkeypatch.setattr("samplerkit.storage.inflate._PIECE", 3)
    text, lines = TEXTS[case]
    data = text.encode()
    path = tmp_path / ("a.txt.gz" if packed and len(data) % 2 else "a.txt")
    path.write_bytes(gzip.compress(data[:4]) + gzip.compress(data[4:]) if packed else data)
    assert TextReader().count(str(path)) == len(lines)
    assert all_of(FileDataset([path], "text")) == lines


def test_compressed_text_that_is_cut_damaged_or_fills_memory_is_an_error(tmp_path):
    path, data = tmp_path / "a.txt.gz", gzip.compress(os.urandom(3000).hex().encode())
    for bad in (data[:-9], data[:40], data[:20], data[:1000] + b"xx" + data[1002:]):
        path.write_bytes(bad)
        with pytest.raises(sk.DatasetError, match=r"a\.txt\.gz: cannot be unpacked"):
            all_of(FileDataset([path], "text", progress=False))
    path.write_bytes(gzip.compress(b"\n" * 2_000_000))
    assert len(FileDataset([path], TextReader(max_unpacked_bytes=2_000_000), progress=False)) == 2_000_000
    path.write_bytes(gzip.compress(b"\n" * 2_000_001))
    with pytest.raises(sk.DatasetError, match=r"unpacks to more than 2000000 bytes \(max_unpacked_bytes\)"):
        all_of(FileDataset([path], TextReader(max_unpacked_bytes=2_000_000), progress=False))


def test_text_in_another_encoding(tmp_path):
    (tmp_path / "a.txt").write_bytes("a\nö\n".encode("latin-1"))
    assert all_of(FileDataset([tmp_path / "a.txt"], TextReader("latin-1"))) == ["a", "ö"]
    with pytest.raises(sk.DatasetError, match=r"a\.txt, row 1: is not text in utf-8"):
        all_of(FileDataset([tmp_path / "a.txt"], "text"))


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
        problem = "pipe: is not a regular file; give the files"
        assert_refused(FileDataset([path], reader, [3], read_ahead=0), problem, 0)
        assert_refused(FileDataset([path], reader, progress=False), problem)

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
    problem = rf"claims\.{reader}.*: claims {claimed} bytes of data, but has"
    assert_refused(FileDataset([path], reader, progress=False), problem)
    assert_refused(FileDataset([path], reader, [3], read_ahead=0), rf"claims\.{reader}", 0)


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
