"""TFRecord: what TensorFlow wrote is read without it, each record checked against its checksums."""

import zlib
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.files.stored import Stored
from samplerkit.storage.formats import tfrecord as tfrecord_file
from samplerkit.storage.formats.tfrecord import example_of
from samplerkit.testing import DatasetContract
from samplerkit.testing.contract import same
from tests.storage.checks import assert_refused
from tests.storage.formats import tf_records
from tests.storage.formats.tf_records import example, field, framed, sample_of

FOLDER = Path(__file__).parents[2] / "data" / "formats" / "tfrecord"
"""Written by TensorFlow 2.21.0: `python -m tests.storage.formats.write_samples tfrecord`."""


def write_files(folder, ranges=((0, 5), (5, 16))):
    paths = [f"{folder}/{number}.tfrecord" for number in range(len(ranges))]
    for path, (start, stop) in zip(paths, ranges, strict=True):
        tf_records.write(path, [example(tf_records.features_of(row)) for row in range(start, stop)])
    return paths


class TestTfRecord(DatasetContract):
    """Two files, the second one in several runs."""

    def write(self, folder):
        write_files(folder)
        rows = [sample_of(row) for row in range(16)]
        sizes = [len(framed(example(tf_records.features_of(row)))) for row in range(16)]
        files = [[], []]
        for row in range(16):
            runs = files[row >= 5]
            if not runs or sum(sizes[at] for at in runs[-1]) + sizes[row] > 600:
                runs.append([])
            runs[-1].append(row)
        return [[rows[row] for row in run] for runs in files for run in runs]

    def make(self, folder):
        paths = [f"{folder}/0.tfrecord", f"{folder}/1.tfrecord"]
        return sk.TfRecordDataset(paths, scalars=["id"], run_bytes=600, progress=False)


@pytest.mark.parametrize("name", ["plain.tfrecord", "packed.tfrecord.gz"])
def test_files_of_tensorflow_are_read_without_it(name):
    with sk.TfRecordDataset(FOLDER / name, scalars=["id"], progress=False) as dataset:
        assert same(dataset.__getitems__(range(40)), [sample_of(row) for row in range(40)])
        assert list(dataset[7]) == sorted(dataset[7])
    with sk.TfRecordDataset(FOLDER / name, ["text"], scalars=["text"], progress=False) as dataset:
        assert dataset[39] == {"text": b"row 39"}


BITS = {
    "lists of one kind are joined": (field(3, field(1, b"\1")) + field(3, b"\x08\x02\x08\x03"), [1, 2, 3]),
    "of several kinds the last counts": (field(1, field(1, b"a")) + field(3, field(1, b"\5")), [5]),
    "floats one by one": (field(2, b"\x0d\0\0\x80\x3f\x0d\0\0\0\x40"), [1.0, 2.0]),
    "unknown fields are left out": (
        b"\x20\x07" + b"\x29" + bytes(8) + field(9, b"z") + field(3, field(1, b"\6")),
        [6],
    ),
    "the largest and the least": (field(3, field(1, b"\xff" * 8 + b"\x7f" + b"\x80" * 9 + b"\1")), None),
    "nothing": (b"", "none"),
}


@pytest.mark.parametrize("name", BITS)
def test_the_wire_format_is_read_as_protobuf_reads_it(name):
    feature, expected = BITS[name]
    record = field(1, field(9, b"z") + field(1, field(1, b"f") + field(2, feature)))
    values = example_of(record)["f"]
    if expected == "none":
        assert values is None
    else:
        assert values.tolist() == (expected or [2**63 - 1, -(2**63)])


NO_EXAMPLES = {
    "field 2 is not a field of an Example": field(1, b"") + field(2, b""),
    "DecodeError: Error parsing message": field(1, field(1, field(2, field(3, field(1, b"\x05\x80"))))),
    "floats has values of another type": field(1, field(1, field(2, field(2, b"\x08\1")))),
    "integers has values of another type": field(1, field(1, field(2, field(3, b"\x0d\1\0\0\0")))),
}


@pytest.mark.parametrize("problem", NO_EXAMPLES)
def test_a_record_that_is_no_example_is_an_error_that_names_it(tmp_path, problem):
    tf_records.write(tmp_path / "a.tfrecord", [example({"a": [1]}), NO_EXAMPLES[problem]])
    with sk.TfRecordDataset(tmp_path / "a.tfrecord", progress=False) as dataset:
        assert dataset[0]["a"].tolist() == [1]
        with pytest.raises(sk.DatasetError, match=rf"a\.tfrecord, records from 0, row 1: .*{problem}"):
            dataset[1]


def test_the_error_of_a_file_compressed_by_zlib_names_the_compression_that_is_read(tmp_path):
    (tmp_path / "a.tfrecord").write_bytes(zlib.compress(bytes(99)))
    dataset = sk.TfRecordDataset(tmp_path / "a.tfrecord", progress=False)
    assert_refused(dataset, "compressed in a way other than gzip", 0)


def test_features_that_a_record_lacks_or_has_twice_are_errors(tmp_path):
    tf_records.write(tmp_path / "a.tfrecord", [example({"a": [1, 2], "b": None})])
    for options, problem in (
        ({"columns": ["c"]}, r"no entry 'c' among \['a', 'b'\]"),
        ({"scalars": ["a"]}, "feature 'a' has 2 values"),
        ({"scalars": ["b"]}, "feature 'b' has 0 values"),
    ):
        assert_refused(sk.TfRecordDataset(tmp_path / "a.tfrecord", **options, progress=False), problem, 0)


def test_an_index_that_lies_is_an_error_that_names_it(tmp_path):
    """Of another size, damaged, of another kind; or right in its size, and of another file."""
    path, other = write_files(tmp_path, [(5, 6), (6, 7)])
    stored, index = Stored.of(path, None), Path(path + ".skidx")
    records = tfrecord_file.INDEXES.of(Stored.of(other))
    shifted = tfrecord_file.Records(records.lengths + 1, records.crcs)
    half = tfrecord_file.Records(
        np.array([stored.size // 2 - 16, stored.size - stored.size // 2 - 16]), np.zeros(2, np.uint32)
    )
    for wrong, problem in ((shifted, "another version"), (half, "its records were changed")):
        tfrecord_file.INDEXES.write(index, stored, wrong, "")
        assert_refused(sk.TfRecordDataset(path, progress=False), problem, 0)
    index.write_bytes(index.read_bytes()[:-1])
    assert_refused(sk.TfRecordDataset(path, progress=False), r"skidx: cannot be read \(damaged\)")


def test_a_length_that_begins_like_gzip_is_read_as_a_length(tmp_path):
    tf_records.write(tmp_path / "a.tfrecord", [bytes(0x8B1F), b"end"])
    with sk.TfRecordDataset(tmp_path / "a.tfrecord", records="bytes", progress=False) as dataset:
        assert dataset[1] == b"end"
        assert dataset[0] == bytes(0x8B1F)


def test_indexes_need_a_writable_folder_and_distinct_names(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_files(tmp_path / folder, [(0, 3)])
    dataset = sk.TfRecordDataset([f"{tmp_path}/{folder}/0.tfrecord" for folder in "ab"], progress=False)
    with pytest.raises(sk.ArgumentValueError, match="folder: would have indexes of the same name"):
        dataset.save_indexes(tmp_path / "c")
    (tmp_path / "file").touch()
    with pytest.raises(sk.DatasetError, match="cannot be written"):
        sk.TfRecordDataset(tmp_path / "a" / "0.tfrecord", progress=False).save_indexes(tmp_path / "file")
    with pytest.raises(sk.ArgumentValueError, match="folder: must be local, got 's3://bucket/c'; upload its"):
        dataset.save_indexes("s3://bucket/c")
    with pytest.raises(sk.ArgumentValueError, match="folder: is needed"):
        sk.TfRecordDataset(["memory://a/0.tfrecord"], progress=False).save_indexes()
