"""JSON lines: one value a line, with any line end; a wrong or changed line is named by its number."""

import gzip
import json
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.arrays import write_arrays
from samplerkit.storage.files import json_lines
from samplerkit.storage.files.json_lines import Lines, line_ends
from samplerkit.testing import DatasetContract
from samplerkit.testing.contract import same
from tests.storage.checks import assert_refused
from tests.waiting import wait_until


def row(id):
    return {"id": id, "text": f"row {id} \u017e" * (id % 4), "none": None, "list": [id, 0.5, {"a": True}]}


def text_of(rows, end=b"\n"):
    return b"".join(json.dumps(each, ensure_ascii=each["id"] % 2 == 0).encode() + end for each in rows)


def compressed(data, name):
    """Compresses by suffix: zstd in frames of 200 bytes, with skippable frames before them as by pzstd."""
    if name.endswith(".gz"):
        return gzip.compress(data)
    if name.endswith(".zst"):
        zstandard = pytest.importorskip(
            "zstandard", reason="zstandard is not installed: nothing is packed by it"
        )
        pack = zstandard.ZstdCompressor(write_checksum=True).compress
        skipped = b"\x50\x2a\x4d\x18\4\0\0\0size"
        return b"".join(skipped + pack(data[at : at + 200]) for at in range(0, len(data), 200))
    return data


class TestJsonl(DatasetContract):
    """With a byte-order mark, returns, empty lines and no last end; as others write it; without a line."""

    names = ("0.jsonl", "1.jsonl", "2.jsonl")
    _shows_damage = False  # without an index from before, a text that was cut is a text

    def write(self, folder):
        odd = b"\xef\xbb\xbf" + text_of(map(row, range(3)), b"\r\n") + b"\n\r\n\n"
        odd += text_of([row(3)])[:-1]
        for name, data in zip(self.names, (odd, text_of(map(row, range(4, 16))), b"\n\r\n"), strict=True):
            Path(folder, name).write_bytes(compressed(data, name))
        return [[*map(row, range(4))], [*map(row, range(4, 16))], []]

    def make(self, folder):
        return sk.JsonlDataset([f"{folder}/{name}" for name in self.names], progress=False)


class TestPackedJsonl(TestJsonl):
    """The same, compressed by zstd, plain, and compressed by gzip."""

    names = ("0.jsonl.zst", "1.jsonl", "2.jsonl.gz")


def jsonl(path, **options):
    return sk.JsonlDataset([path], progress=False, **options)


def test_lines_are_split_as_by_python_in_pieces_of_any_size():
    rng = np.random.default_rng(5)
    for _ in range(500):
        data = b"".join(rng.choice([b"\n", b"\r\n", b"[1]", b"2", b"\r\n\r\n"], rng.integers(12)))
        cuts = [0, *np.sort(rng.integers(0, len(data) + 1, rng.integers(6))).tolist(), len(data)]
        lines = Lines.of(line_ends(data[a:b] for a, b in pairwise(cuts) if a < b))
        expected = [
            (number, line) for number, line in enumerate(data.split(b"\n"), start=1) if line.strip(b"\r")
        ]
        texts = [data[a:b].strip() for a, b in pairwise(lines.starts.tolist())]
        assert texts == [line.strip() for _, line in expected]
        assert [lines.number(row) for row in range(len(lines))] == [number for number, _ in expected]
        parts = [data[a:b] for a, b in pairwise(lines.starts.tolist())]
        assert lines.sums.tolist() == [sum(part) % 256 for part in parts]


BROKEN = {
    b'{"a": ': "is not JSON",
    b'{"a": 1} {"a": 2}': "is not JSON (Extra data, column 10)",
    b"\0\0\0": "is not JSON (Expecting value, column 1)",
    b"   ": "is not JSON",
    b'"\xff"': "cannot be read (UnicodeDecodeError",
    b"\xff\xfe[\0]\0": "cannot be read (UnicodeDecodeError",
    b"[" * 100_000: "cannot be read (RecursionError",
}


@pytest.mark.parametrize(
    ("line", "name"),
    [*((line, "a.jsonl") for line in BROKEN), (b"   ", "a.jsonl.gz"), (b"   ", "a.jsonl.zst")],
    ids=range(len(BROKEN) + 2),
)
def test_a_broken_line_is_an_error_with_its_number_or_is_skipped(tmp_path, line, name):
    data = text_of([row(0)]) + b"\r\n\n" + line + b"\n" + text_of([row(1)])
    (tmp_path / name).write_bytes(compressed(data, name))
    with jsonl(tmp_path / name) as dataset:
        with pytest.raises(sk.DatasetError) as caught:
            dataset.__getitems__([0, 1, 2])
        assert str(caught.value).startswith(f"{tmp_path / name}, line 4: {BROKEN[line]}")
        sampler, options = sk.RandomSampler(seed=1), {"collate_fn": list, "world": sk.World(1, 0)}
        with sk.Loader(dataset, sampler, batch_size=3, bad_samples="skip", **options) as loader:
            (batch,) = loader
        assert same(sorted(batch, key=lambda each: each["id"]), [row(0), row(1)])
        assert [skipped.id for skipped in loader.skipped] == [1]


VALUES = [
    None,
    -1.5,
    [],
    "\ud800",
    "ünï\0",
    2**63 - 1,
    2**64,
    -(2**63) - 1,
    {"id": 10**40},
    float("inf"),
    {"a": {"a": 12345678901234567890}},
    [1234567890123456789, 0.1234567890123456789],
    {"": [None] * 9},
]


@pytest.mark.parametrize("parser", ["pydantic", "json"])
def test_values_equal_those_of_pythons_json_with_both_parsers(tmp_path, monkeypatch, parser):
    if parser == "json":
        monkeypatch.setattr(json_lines, "from_json", int)  # it refuses all but integers
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(value) + "\n" for value in VALUES))
    with jsonl(tmp_path / "a.jsonl") as dataset:
        assert [dataset[at] for at in range(len(VALUES))] == VALUES
        assert dataset.__getitems__(range(len(VALUES))) == VALUES
        assert [type(value) for value in dataset] == [type(value) for value in VALUES]


def test_samples_are_values_or_fields_of_them_or_texts_or_bytes_or_results_of_a_function(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"a": 1, "b": "\xc3\xa9"}\r\n\r\n{"b": 2}')
    for options, expected in (
        ({"decode": "text"}, ['{"a": 1, "b": "é"}', '{"b": 2}']),
        ({"decode": "bytes"}, [b'{"a": 1, "b": "\xc3\xa9"}', b'{"b": 2}']),
        ({"columns": ["b"]}, [{"b": "é"}, {"b": 2}]),
        ({"columns": ["b"], "decode": lambda value: value["b"]}, ["é", 2]),
    ):
        with jsonl(tmp_path / "a.jsonl", **options) as dataset:
            assert [*dataset] == expected
    assert_refused(jsonl(tmp_path / "a.jsonl", columns=["a"]), r"line 3: .*no entry 'a' among \['b'\]", 1)
    for text in ("[1]", "7", '"a"', "null"):
        (tmp_path / "b.jsonl").write_text(text)
        assert_refused(jsonl(tmp_path / "b.jsonl", columns=["a"]), "line 1: cannot be read", 0)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_the_unpacked_size_of_a_file_has_a_limit_that_can_be_set(tmp_path, name):
    (tmp_path / name).write_bytes(compressed(text_of(map(row, range(50))), name))
    problem = rf"{name}: unpacks to more than 1000 bytes \(max_unp"
    assert_refused(jsonl(tmp_path / name, max_unpacked_bytes=1000), problem)
    assert len(jsonl(tmp_path / name, max_unpacked_bytes=100_000)) == 50


def test_a_file_may_have_a_name_too_long_for_an_index_next_to_it(tmp_path):
    path = tmp_path / f"{'a' * 249}.jsonl"
    path.write_bytes(text_of(map(row, range(3))))
    assert jsonl(path)[2] == row(2)


def test_an_index_is_made_once_takes_nine_bytes_a_line_and_is_made_again_for_another_file(
    tmp_path, monkeypatch
):
    path = tmp_path / "a.jsonl"
    path.write_bytes(text_of(map(row, range(1000))))
    scans, original = [], Lines.of
    monkeypatch.setattr(Lines, "of", lambda *arguments: scans.append(1) or original(*arguments))
    results = []
    for _ in range(2):
        with jsonl(path) as dataset:
            results.append((len(dataset), dataset.fingerprint))
    assert (len(scans), results[0]) == (1, results[1])
    (tmp_path / "link.jsonl").symlink_to(path)
    with jsonl(tmp_path / "link.jsonl") as dataset:
        assert (len(dataset), len(scans)) == (1000, 1)
    (index,) = Path(os.environ["XDG_CACHE_HOME"]).rglob("*.skidx")
    assert index.stat().st_size < 9 * 1000 + 700
    jsonl(path).save_indexes()
    jsonl(path).save_indexes(tmp_path / "bucket")
    assert Path(f"{path}.skidx").read_bytes() == (tmp_path / "bucket" / "a.jsonl.skidx").read_bytes()
    index.unlink()
    os.utime(path, ns=(5, 5))
    with jsonl(path) as dataset:  # the index next to the file is used whatever its time
        assert (len(dataset), dataset.fingerprint, len(scans)) == (*results[0], 1)
    Path(f"{path}.skidx").unlink()
    path.write_bytes(text_of(map(row, range(7))))
    with jsonl(path) as dataset:
        assert (len(dataset), len(scans)) == (7, 2)
        assert dataset.fingerprint != results[0][1]


def test_an_index_next_to_another_file_is_an_error_or_its_lines_are(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"[1, 2]\n[3]\n")
    jsonl(path).save_indexes()
    path.write_bytes(b"[1]\n[2, 3]\n")
    assert_refused(jsonl(path), r"a\.jsonl, line 1: was changed since", 0)
    path.write_bytes(b"[1]\n")
    assert_refused(jsonl(path), r"skidx: cannot be read \(it belongs to another version", 0)
    write_arrays(Path(f"{path}.skidx"), {"kind": "jsonl", "size": 4, "values": {"other": 1}}, {})
    assert_refused(jsonl(path), r"skidx: cannot be read \(it belongs to another version", 0)


def test_a_packed_file_that_was_replaced_by_one_of_its_size_and_time_is_an_error(tmp_path):
    path, sizes = tmp_path / "a.jsonl.gz", []
    dataset = jsonl(path)
    for number in (100, 101):
        path.write_bytes(gzip.compress(b"[1]\n" * number, mtime=0))
        os.utime(path, ns=(5, 5))
        sizes.append(path.stat().st_size)
        assert len(dataset) == 100  # from the index of the first one
    assert sizes[0] == sizes[1]
    assert_refused(dataset, "no longer decompresses to 400 bytes, got 404", 0)


def test_packed_files_are_read_in_advance_within_max_chunks_and_plain_ones_are_not_held(tmp_path):
    for number in range(6):
        (tmp_path / f"{number}.jsonl.gz").write_bytes(gzip.compress(b"[1]\n" * 8))
        (tmp_path / f"{number}.jsonl").write_bytes(b"[1]\n" * 8)
    options = {"max_chunks": 2, "read_ahead": 1, "progress": False}
    with sk.JsonlDataset(f"{tmp_path}/*.gz", **options) as packed:
        batches = iter(sk.Loader(packed, batch_size=4, collate_fn=list))
        next(batches)
        wait_until(lambda: packed.stats.files_read == 2)
        assert [*batches] == [[[1]] * 4] * 11
        assert (packed.stats.files_read, packed.stats.peak_files) == (6, 2)
    with sk.JsonlDataset(f"{tmp_path}/*.jsonl", **options) as plain:
        assert [*plain] == [[1]] * 48
        assert (plain._limits.max_files, plain.stats.peak_files) == (6, 0)
