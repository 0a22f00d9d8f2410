"""MindRecord: what MindSpore wrote is read without it, and without the database next to each file."""

import json
import shutil

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.testing.contract import same
from tests.storage.checks import assert_refused
from tests.storage.formats.damage import UncheckedContract
from tests.storage.formats.mindrecord_rows import FILES, FOLDER, plain_of


class TestMindRecord(UncheckedContract):
    """Two files, of which the first has two row groups; there are no checksums."""

    def write(self, folder):
        for name in ("rows0", "rows1"):
            shutil.copy(FOLDER / name, folder)
        return [list(map(plain_of, ids)) for ids in (range(10), range(10, 14), range(14, 28))]

    def make(self, folder):
        return sk.MindRecordDataset([f"{folder}/rows0", f"{folder}/rows1"], progress=False)


@pytest.mark.parametrize("name", ["every", "integers", "texts"])
def test_files_of_mindspore_are_read_without_it(name):
    schema, rows = FILES[name]
    with sk.MindRecordDataset([FOLDER / name]) as dataset:
        read = dataset.__getitems__(range(20))
    for sample, row in zip(read, rows, strict=True):
        assert same(sample, {column: row[column] for column in sorted(row)})
        for column, field in schema.items():
            kind = field["type"]
            assert isinstance(
                sample[column], {"string": str, "bytes": bytes}.get(kind, np.ndarray | np.generic)
            )
            assert kind in {"string", "bytes"} or sample[column].dtype == kind
    if "wide" in schema:
        read[3]["wide"][0] = 7  # an array is a copy, which can be written to


def test_columns_can_be_selected_and_rows_decoded():
    with sk.MindRecordDataset([FOLDER / "every"], ["id"], decode=lambda row: -int(row["id"])) as dataset:
        assert dataset.__getitems__([7, 0]) == [-2, 5]
    assert_refused(sk.MindRecordDataset([FOLDER / "every"], ["x"]), "must have one column 'x'")


LAST = '"offset": 0}], "shard_id": 1, "start_row_id": 0}],'
"""The end of the page of numbers and texts."""
LIES = {
    "has type 'int8', which is not supported": ('"int32"', '"int8"'),
    "pages are not numbered from 0": ('"page_id": 1', '"page_id": 7'),
    "ends beyond the file": ('"header_size": 16384', '"header_size": 99999'),
    "row group 0 does not follow": ('"start_row_id": 0', '"start_row_id": 1'),
    "99999999999 parts do not fit into": ('"end_row_id": 14', '"end_row_id": 99999999999'),
    "KeyError": ('"schema": [', '"schemas": ['),
    "bytes and arrays are columns": ('"blob_fields": ["data"]', '"blob_fields": []'),
    "2 schemas": ('"schema": [', '"schema": [0, '),
    "row group 0 has an invalid offset": (LAST, LAST.replace('0}], "s', '-1}], "s')),
    "group 0 has an invalid offset": (LAST, LAST.replace("}]", '}, {"id": 0, "offset": 9}]', 1)),
    "row groups .1. lack their bytes and arrays": (LAST, LAST.replace("}]", '}, {"id": 1, "offset": 9}]', 1)),
}


@pytest.mark.parametrize("problem", LIES)
def test_a_header_that_lies_is_an_error_that_says_how(tmp_path, problem):
    whole = (FOLDER / "rows1").read_bytes()
    header = json.dumps(json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")]))
    old, new = LIES[problem]
    assert old in header
    data = header.replace(old, new, 1).encode()
    (tmp_path / "a").write_bytes((len(data).to_bytes(8, "little") + data).ljust(16384, b"\0") + whole[16384:])
    assert_refused(sk.MindRecordDataset([tmp_path / "a"]), problem, 0)


def test_a_number_that_its_column_cannot_hold_is_an_error(tmp_path):
    """A fraction in a column of integers would be cut."""
    whole = (FOLDER / "every").read_bytes()
    size = int.from_bytes(whole[:8], "little")
    changed = whole[8 : 8 + size].replace(b'"real":{"type":"float64"}', b'"real":{"type":"int32"  }')
    assert changed != whole[8 : 8 + size]
    (tmp_path / "a").write_bytes(whole[:8] + changed + whole[8 + size :])
    dataset = sk.MindRecordDataset([tmp_path / "a"], ["real"])
    assert_refused(dataset, "'real' holds 0.14285714285714285, which", 1)


def test_integers_that_do_not_fill_their_bytes_are_an_error(tmp_path):
    whole = (FOLDER / "every").read_bytes()
    size, one_integer = (6).to_bytes(8, "big"), (1).to_bytes(4, "big")
    of_one_byte, of_two = (size + one_integer + bytes([kind, 0]) for kind in (0, 1 << 6))
    assert of_one_byte in whole
    (tmp_path / "a").write_bytes(whole.replace(of_one_byte, of_two, 1))
    assert_refused(sk.MindRecordDataset([tmp_path / "a"], ["small"]), "1 integers do not fill 6 bytes", 0)
