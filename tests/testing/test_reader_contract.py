"""Our own readers keep the contract that we ship, and a reader that breaks it is found."""

import json
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.files.readers import (
    CsvReader,
    JsonlReader,
    NpyReader,
    NpzReader,
    ParquetReader,
    TextReader,
)
from samplerkit.testing import ReaderContract


def write_npz(path, num_samples):
    arrays = {"x": np.random.default_rng(1).random((num_samples, 3)), "y": np.arange(num_samples)}
    arrays["name"] = np.array([f"é{row}" for row in range(num_samples)], dtype="<U9")
    np.savez_compressed(path, **arrays)
    return [dict(zip(arrays, row, strict=True)) for row in zip(*arrays.values(), strict=True)]


def write_npy(path, num_samples):
    array = np.arange(2 * num_samples).reshape(num_samples, 2)
    np.save(path, array)
    return array


def write_parquet(path, num_samples):
    import pyarrow as pa  # noqa: PLC0415  # an extra
    from pyarrow import parquet  # noqa: PLC0415

    columns = {"x": np.arange(num_samples) * 0.5, "name": [f"row {row}" for row in range(num_samples)]}
    parquet.write_table(pa.table(columns), path)
    return [{"x": row * 0.5, "name": f"row {row}"} for row in range(num_samples)]


def write_text(path, num_samples):
    lines = [f"línea {number}" for number in range(num_samples)]
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return lines


def write_jsonl(path, num_samples):
    rows = [{"id": number, "text": f"línea {number}"} for number in range(num_samples)]
    Path(path).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return rows


def write_csv(path, num_samples, mark=","):
    rows = [{"id": number, "text": f'{mark} "{number}\n"'} for number in range(num_samples)]
    quoted = [row["text"].replace('"', '""') for row in rows]
    lines = [f'{row["id"]}{mark}"{text}"\n' for row, text in zip(rows, quoted, strict=True)]
    Path(path).write_text(f"id{mark}text\n" + "".join(lines))
    return rows


OURS = {
    "npz": (NpzReader, write_npz, ".npz"),
    "npy": (NpyReader, write_npy, ".npy"),
    "text": (TextReader, write_text, ".txt"),
    "parquet": (ParquetReader, write_parquet, ".parquet"),
    "jsonl": (JsonlReader, write_jsonl, ".jsonl"),
    "csv": (CsvReader, write_csv, ".csv"),
    "tsv": (lambda: "tsv", partial(write_csv, mark="\t"), ".tsv"),
}


@pytest.mark.parametrize("name", OURS)
class TestOurs(ReaderContract):
    """Each of our readers, the last one by its name."""

    @pytest.fixture(autouse=True)
    def _of_this_name(self, name):
        if name in {"parquet", "csv", "tsv"} and find_spec("pyarrow") is None:
            pytest.skip("pyarrow is not installed: neither parquet nor csv here")
        self.make, self.write, self.suffix = OURS[name]
        # A truncated text is a text.
        self.shows_damage = name not in {"text", "jsonl", "csv", "tsv"}


def write_json(path, num_samples):
    Path(path).write_text(json.dumps(list(range(num_samples))))
    return list(range(num_samples))


class Json:
    """A reader without a fault, from which each broken one differs in one method."""

    def __call__(self, path):
        return json.loads(Path(path).read_text())


class TestJson(ReaderContract):
    """The reader from which the broken ones below differ."""

    make = Json
    write = staticmethod(write_json)


class CountsWrongly(Json):
    def count(self, path):
        return max(0, len(self(path)) - 1)


class ReadsBackwards(Json):
    def __call__(self, path):
        return super().__call__(path)[::-1]


class ZerosLater(Json):
    """Reads files correctly at first, and then as zeros."""

    calls = 0

    def __call__(self, path):
        self.calls += 1
        return super().__call__(path) if self.calls <= 8 else [0] * len(super().__call__(path))


class NeedsSamples(Json):
    def __call__(self, path):
        samples = super().__call__(path)
        return [samples[0], *samples[1:]]


class IgnoresDamage(Json):
    """Returns the samples before the damage."""

    def __call__(self, path):
        try:
            return super().__call__(path)
        except ValueError:
            text = Path(path).read_bytes().decode(errors="replace").strip("[")
            return [int(number) for number in text.split(", ") if number.isdigit()]


class HoldsAFunction(Json):
    def __init__(self):
        self.function = lambda path: path


class OneBuffer(Json):
    """Reads all files into one buffer."""

    def __call__(self, path):
        self.samples = super().__call__(path)
        time.sleep(0.001)
        return self.samples


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (CountsWrongly, "the_samples_of_a_file_are_counted"),
        (ReadsBackwards, "samples_can_be_read_in_any_order_and_repeatedly"),
        (ZerosLater, "a_file_returns_the_same_samples_each_time"),
        (NeedsSamples, "a_file_may_have_no_samples"),
        (IgnoresDamage, "a_truncated_file_raises_an_error_that_names_it"),
        (IgnoresDamage, "an_overwritten_file_raises_an_error_that_names_it"),
        (HoldsAFunction, "a_pickled_reader_reads_the_same_samples"),
        (OneBuffer, "threads_share_a_reader"),
    ],
)
def test_a_reader_that_breaks_a_law_is_found(broken, law):
    contract = ReaderContract()
    contract.make, contract.write = broken, write_json
    with pytest.raises((AssertionError, sk.DatasetError)):
        getattr(contract, f"test_{law}")()
