"""Arrow's IPC by record batch, without mapping it, and folders that Hugging Face's datasets wrote."""

import io
import os
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from tests.storage.checks import assert_refused
from tests.storage.formats.damage import UncheckedContract, plain

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: no Arrow here")

FOLDER = Path(__file__).parents[2] / "data" / "formats" / "huggingface"
"""Written by datasets 5.2.0: `python -m tests.storage.formats.write_samples huggingface`."""


def table_of(start, stop):
    rows = range(start, stop)
    text = pa.array([f"row {row % 5}" for row in rows]).dictionary_encode()
    tokens = pa.array([list(range(row % 4)) for row in rows], pa.list_(pa.int32()))
    return pa.table({"id": np.arange(start, stop), "text": text, "tokens": tokens})


def write(folder, kind="stream", compression=None):
    paths = []
    for number, (start, stop, per_batch) in enumerate(((0, 5, 3), (5, 16, 4))):
        table, path = table_of(start, stop), f"{folder}/{number}.arrow"
        make = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
        with make(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
            writer.write_table(table, max_chunksize=per_batch)
        paths.append(path)
    return paths


class TestArrow(UncheckedContract):
    """Streams; what they hold has no checksum."""

    def write(self, folder):
        write(folder)
        rows = [row for start, stop in ((0, 5), (5, 16)) for row in table_of(start, stop).to_pylist()]
        return [rows[:3], rows[3:5], rows[5:9], rows[9:13], rows[13:]]

    def make(self, folder):
        return sk.ArrowDataset([f"{folder}/0.arrow", f"{folder}/1.arrow"])


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("kind", ["stream", "file"])
def test_streams_and_files_are_read_as_pyarrow_reads_them(tmp_path, kind, compression):
    paths = write(tmp_path, kind, compression)
    open_file = {"stream": pa.ipc.open_stream, "file": pa.ipc.open_file}[kind]
    expected = [row for path in paths for row in open_file(Path(path).read_bytes()).read_all().to_pylist()]
    with sk.ArrowDataset(paths) as dataset:
        assert [plain(sample) for sample in dataset.__getitems__(range(16))] == expected
        assert dataset.layout.sizes.tolist() == [3, 2, 4, 4, 3]
    with sk.ArrowDataset(paths, ["id"], batches="tensors") as dataset:
        assert dataset.__getitems__([15, 0])["id"].tolist() == [15, 0]
    with sk.ArrowDataset(paths, batches="arrow") as dataset:
        assert dataset.__getitems__([]).num_rows == 0


def test_a_folder_of_hugging_face_is_read_without_its_package(tmp_path):
    with sk.ArrowDataset(FOLDER) as dataset:
        assert len(dataset.files) == 2
        read = [plain(sample) for sample in dataset.__getitems__(range(len(dataset)))]
    assert read == [{"id": id, "text": f"text {id}", "tokens": [id] * (id % 5)} for id in range(250)]
    with pytest.raises(sk.DatasetError, match=r"does not list its files in state\.json"):
        sk.ArrowDataset(FOLDER.parent)
    (tmp_path / "state.json").write_text("[" * 100_000)
    with pytest.raises(sk.DatasetError, match=r"does not list its files in state\.json"):
        sk.ArrowDataset(tmp_path)


MAGIC, END_MARK = b"ARROW1", b"\xff" * 4 + bytes(4)
WRONG_ENDS = {
    "it must hold one schema": lambda data: data.removesuffix(END_MARK) + data,
    "it has data after its end": lambda data: data + b"x",
    "refers to a part at byte": lambda data: data.removesuffix(END_MARK),
    "no Arrow message at byte 0, of a version since 0.15": lambda data: b"FEA1" + data,
    "it has no end marker": lambda data: MAGIC + bytes(2) + data,
}


@pytest.mark.parametrize("problem", WRONG_ENDS)
def test_a_stream_with_a_wrong_end_is_an_error(tmp_path, problem):
    path = Path(write(tmp_path)[0])
    path.write_bytes(WRONG_ENDS[problem](path.read_bytes()))
    assert_refused(sk.ArrowDataset(path), problem)


def test_a_body_that_is_said_to_be_longer_than_the_file_is_an_error_before_it_takes_memory(tmp_path):
    table, stream = pa.table({"id": pa.array(range(77))}), io.BytesIO()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    length = (77 * 8).to_bytes(8, "little")
    (tmp_path / "a").write_bytes(stream.getvalue().replace(length, (1 << 33).to_bytes(8, "little"), 1))
    assert_refused(sk.ArrowDataset(tmp_path / "a"), "a message is longer than the file")


def test_offsets_beyond_the_batch_are_an_error(tmp_path):
    buffers = (pa.py_buffer(np.array(part, np.int32).tobytes()) for part in ([0, 9999, 3], [0]))
    path = save(tmp_path, text=pa.StringArray.from_buffers(2, *buffers))
    assert_refused(sk.ArrowDataset(path), "offset for slot 1 out of bounds", 0)


def test_a_missing_column_or_one_named_twice_is_refused(tmp_path):
    assert_refused(sk.ArrowDataset(write(tmp_path), ["y"]), "must have one column 'y'")
    with pytest.raises(sk.ArgumentValueError, match="columns: must name each once"):
        sk.ArrowDataset(write(tmp_path), ["id", "id"])


@pytest.mark.skipif(not hasattr(pa, "string_view"), reason="this pyarrow has no such type")
@pytest.mark.parametrize("batches", ["samples", "columns", "arrow"])
def test_rows_of_a_type_without_a_take_kernel_are_read(tmp_path, batches):
    """As polars writes texts."""
    path = save(tmp_path, text=pa.array(["a", None, "c"], pa.string_view()))
    with sk.ArrowDataset(path, batches=batches) as dataset:
        read = dataset.__getitems__([2, 0, 1])
    texts = [sample["text"] for sample in read] if batches == "samples" else list(read["text"])
    assert [str(text) for text in texts] == ["c", "a", "None"]


def test_the_type_of_a_list_does_not_depend_on_other_rows(tmp_path):
    """It is an array unless there is a null in it."""
    path = save(tmp_path, tokens=pa.array([[1, 2], None, [3, None], []]))
    with sk.ArrowDataset(path) as dataset:
        first, none, with_null, empty = (sample["tokens"] for sample in dataset.__getitems__([0, 1, 2, 3]))
        assert [first.tolist(), none, with_null, empty.tolist()] == [[1, 2], None, [3, None], []]
    tensor = pa.fixed_shape_tensor(pa.float64(), [2, 1])
    lists = pa.array([[1.0, 2.0], None, [3.0, None]], pa.list_(pa.float64(), 2))
    tensors = pa.ExtensionArray.from_storage(tensor, lists.slice(0, 2))
    path = save(tmp_path, pair=lists)
    with sk.ArrowDataset(path) as dataset:
        first, none, with_null = (sample["pair"] for sample in dataset.__getitems__([0, 1, 2]))
        assert [first.tolist(), none, with_null] == [[1.0, 2.0], None, [3.0, None]]
    with sk.ArrowDataset(path, batches="columns") as dataset:
        assert dataset.__getitems__([0])["pair"].shape == (1, 2)
        with pytest.raises(sk.DatasetError, match="column 'pair' holds a null"):
            dataset.__getitems__([0, 1])
    with sk.ArrowDataset(save(tmp_path, image=tensors)) as dataset:
        assert [dataset[0]["image"].shape, dataset[1]["image"]] == [(2, 1), None]
    within = pa.ExtensionArray.from_storage(tensor, lists.slice(2))
    with sk.ArrowDataset(save(tmp_path, image=within)) as dataset:  # pyarrow makes a zero of it
        assert dataset[0]["image"] == [3.0, None]


def save(folder, **columns):
    table, path = pa.table(columns), folder / f"{'-'.join(columns)}.arrow"
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)
    return path


def test_a_changed_header_is_an_error_even_with_the_same_size_and_time(tmp_path):
    path = Path(write(tmp_path)[0])
    with sk.ArrowDataset(path) as dataset:
        assert len(dataset) == 5
        status = path.stat()
        path.write_bytes(path.read_bytes().replace(b"tokens", b"others", 1))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        with pytest.raises(sk.DatasetError, match="its message at byte 0 was changed"):
            dataset[0]


@pytest.mark.parametrize("kind", [sk.ArrowDataset, sk.LmdbDataset])
def test_a_name_that_is_too_long_is_an_error_of_samplerkit(kind, tmp_path):
    assert_refused(kind(tmp_path / ("x" * 300)), "File name too long")
