"""Lengths that are computed once: killed and resumed, in workers, over damaged files; and what is refused."""

import os
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.cli.storage import FieldLength
from samplerkit.storage.atomic import try_lock

TEXTS = ["a" * (number * 7919 % 301) for number in range(1500)]
LENGTHS = [len(text) for text in TEXTS]


class Counted:
    """Texts that record their reads; one of them ends the process."""

    def __init__(self, deadly=None):
        self.read = []
        self._deadly = deadly

    def __len__(self):
        return len(TEXTS)

    def __getitem__(self, id):
        if id == self._deadly:
            os._exit(3)
        self.read.append(id)
        return TEXTS[id]


def killed(out):
    """Leaves a part of 1,024 samples behind."""
    process = get_context("fork").Process(target=sk.compute_lengths, args=(Counted(deadly=1100), len, out))
    process.start()
    process.join(60)
    assert process.exitcode == 3
    return Path(f"{out}.part")


def test_a_killed_computation_resumes_where_it_was_and_gives_the_same_bytes(tmp_path):
    out, reference, reports, texts = tmp_path / "killed.npy", tmp_path / "whole.npy", [], Counted()
    killed(out)
    assert not out.exists()
    lengths = sk.compute_lengths(texts, len, out, progress=lambda *seen: reports.append(seen))
    assert texts.read == list(range(1024, 1500))
    assert [seen[1:] for seen in (reports[0], reports[-1])] == [(1024, 1500), (1500, 1500)]
    assert lengths.tolist() == sk.compute_lengths(TEXTS, len, reference, num_workers=2).tolist() == LENGTHS
    assert np.load(reference).dtype == np.dtype("int32")
    assert out.read_bytes() == reference.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed.npy", "whole.npy"]


@pytest.mark.parametrize(
    ("damage", "first"),
    [
        (lambda data: data[:-1], 768),
        (lambda data: data + b"\0" * 40, 1024),
        (lambda data: data[:1500] + bytes([data[1500] ^ 1]) + data[1501:], 256),
        (lambda data: data + data[-300:], 1024),
        (lambda data: b"", 0),
        (lambda data: b"\xff" * len(data), 0),
        (lambda data: b"[]\n" + data, 0),
        (lambda data: data[:20], 0),
    ],
    ids=["cut", "zeros behind", "a flipped bit", "a piece twice", "empty", "noise", "no header", "half"],
)
def test_damaged_parts_are_computed_again(tmp_path, damage, first):
    out = tmp_path / "lengths.npy"
    part = killed(out)
    part.write_bytes(damage(part.read_bytes()))
    texts = Counted()
    assert sk.compute_lengths(texts, len, out).tolist() == LENGTHS
    assert texts.read == list(range(first, 1500))


def test_pairs_are_computed_too_and_an_empty_dataset_has_no_lengths(tmp_path):
    texts, out = [("ab", "c"), ("", "de")], tmp_path / "p.npy"
    pairs = sk.compute_lengths(texts, lambda pair: (len(pair[0]), len(pair[1])), out)
    assert pairs.tolist() == [[2, 1], [0, 2]]
    assert sk.compute_lengths([], len, tmp_path / "e.npy").tolist() == []


def test_columns_of_files_are_measured_row_by_row(tmp_path):
    np.savez(tmp_path / "0.npz", x=np.zeros((3, 5)), n=np.array([4, 2, 9]))
    for as_columns in (False, True):
        dataset = sk.FileDataset([tmp_path / "0.npz"], "npz", as_columns=as_columns)
        name = f"{as_columns}.npy"
        assert sk.compute_lengths(dataset, FieldLength("n"), tmp_path / f"n{name}").tolist() == [4, 2, 9]
        assert sk.compute_lengths(dataset, FieldLength("x"), tmp_path / f"x{name}").tolist() == [5, 5, 5]


def test_two_processes_do_not_compute_one_file(tmp_path):
    lock = try_lock(tmp_path / "l.npy.part", is_exclusive=False)  # the computing process holds it exclusively
    with os.fdopen(lock), pytest.raises(sk.ArgumentValueError, match="by another process"):
        sk.compute_lengths(TEXTS, len, tmp_path / "l.npy")


def test_a_part_file_of_another_function_or_dataset_is_refused(tmp_path):
    out = tmp_path / "lengths.npy"
    killed(out)
    with pytest.raises(sk.StateError, match="function: is for other lengths"):
        sk.compute_lengths(TEXTS, hash, out)
    with pytest.raises(sk.StateError, match="dataset: is for other lengths"):
        sk.compute_lengths(TEXTS[:-1], len, out)


def broken(text, at):
    if text == TEXTS[at]:
        raise LookupError("no tokenizer")
    return len(text)


def test_a_part_file_of_a_function_with_other_arguments_is_refused(tmp_path):
    out = tmp_path / "lengths.npy"
    with pytest.raises(sk.DatasetError, match="no tokenizer"):
        sk.compute_lengths(TEXTS, partial(broken, at=300), out)
    with pytest.raises(sk.StateError, match="function: is for other lengths"):
        sk.compute_lengths(TEXTS, partial(broken, at=2), out)


@pytest.mark.parametrize(
    ("function", "error", "match"),
    [
        (7, sk.ArgumentTypeError, "function: must be a function"),
        (
            lambda text: 1.5 if text == TEXTS[2] else 1,
            sk.ArgumentTypeError,
            r"lengths\[2\]: must be an integer.*, got 1.5; .*millisec",
        ),
        (lambda text: True, sk.ArgumentTypeError, r"lengths\[0\]: must be an integer"),
        (lambda text: -1, sk.ArgumentRangeError, r"lengths\[0\]: must be in"),
        (lambda text: 1 << 31, sk.ArgumentRangeError, r"lengths\[0\]: must be in"),
        (lambda text: (1, 2, 3), sk.ArgumentTypeError, "or a pair, got"),
        (lambda text: [[1, 2], [3, 4]], sk.ArgumentTypeError, r"lengths\[0\]: must be an integer"),
        (lambda text: (1, [2, 3]), sk.ArgumentTypeError, r"lengths\[0\]: must be an integer"),
        (lambda text: (1, 2) if text else 1, sk.ArgumentTypeError, "a number for each sample, or a pair"),
        (partial(broken, at=2), sk.DatasetError, r"sample 2: cannot be measured \(LookupError: no tokenizer"),
        (FieldLength("0"), sk.DatasetError, r"sample 0: cannot be measured \(DatasetError: field"),
    ],
)
def test_a_function_that_gives_no_lengths_is_refused(tmp_path, function, error, match):
    out = tmp_path / "lengths.npy"
    with pytest.raises(error, match=match):
        sk.compute_lengths(TEXTS[:3], function, out)
    assert not out.exists()
    assert sk.compute_lengths(TEXTS[:3], len, out).tolist() == LENGTHS[:3]  # it leaves nothing in the way


@pytest.mark.parametrize(
    ("sample", "field", "hint"),
    [
        ({"a": 1}, "b", "name a field: a"),
        ({"a": 1}, None, "name a field: a"),
        ({"a": {"b": 1}}, "a", "name a field: b"),
        ("abc", "0", "leave it out"),
        (np.array([7, 8]), "1", "leave it out"),
    ],
)
def test_a_field_that_has_no_length_is_refused_with_a_hint(sample, field, hint):
    with pytest.raises(sk.DatasetError, match=hint):
        FieldLength(field)(sample)


@pytest.mark.parametrize(
    ("out", "match"),
    [("l.txt", "must end in .npy"), ("existing.npy", "exists already"), ("no/l.npy", "cannot be written")],
)
def test_a_path_that_cannot_be_written_is_refused(tmp_path, out, match):
    (tmp_path / "existing.npy").touch()
    with pytest.raises(sk.ArgumentValueError, match=match):
        sk.compute_lengths(TEXTS, len, tmp_path / out)


def test_a_full_disk_is_an_error_and_the_computation_resumes(small_disk):
    (small_disk / "other").write_bytes(bytes((8 << 20) - 4096))
    with pytest.raises(sk.ArgumentValueError, match=r"^out: cannot be written \(No space left on device\)"):
        sk.compute_lengths(TEXTS, len, small_disk / "lengths.npy")
    (small_disk / "other").unlink()
    assert sk.compute_lengths(TEXTS, len, small_disk / "lengths.npy").tolist() == LENGTHS


def test_a_sample_that_a_dataset_leaves_out_is_an_error(tmp_path):
    class Present(list):
        missing = ((1, "x.tar", "is not there"),)

    class Skipping:
        def __len__(self):
            return 3

        def __getitems__(self, ids):
            return self.read_present(ids)

        def read_present(self, ids):
            return Present(["a", "c"])

    with pytest.raises(sk.DatasetError, match=r"sample 1: cannot be measured \(is not there"):
        sk.compute_lengths(Skipping(), len, tmp_path / "lengths.npy")
