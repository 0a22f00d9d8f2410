"""Readers of the user, in each form; and by name, also in workers in which the name is not registered."""

import array
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.files.dataset import FileDataset
from samplerkit.storage.files.readers import READERS, NpyReader
from tests.programs import run


def of_lists(path):
    with np.load(path) as arrays:
        return {key: arrays[key].tolist() for key in arrays}


def sequence(path):
    with np.load(path) as arrays:
        return [{"x": x, "y": y} for x, y in zip(arrays["x"], arrays["y"], strict=True)]


def tensors(path):
    torch = pytest.importorskip("torch")
    with np.load(path) as arrays:
        return {key: torch.from_numpy(arrays[key]) for key in arrays}


def of_the_readme(filename, get_data=False):
    """As the README of PartiallyShuffle shows it: the length alone, without the data."""
    arrays = np.load(filename)
    data, length = {}, 0
    for key in arrays:
        data[key] = arrays[key]
        if length == 0:
            length = len(data[key])
        if not get_data:
            return length
    return data, length


FORMS = {
    "an open npz": np.load,
    "lists": of_lists,
    "a sequence": sequence,
    "tensors": tensors,
    "the README's": of_the_readme,
    # It must be called without options: any option would be a column too.
    "any options": lambda path, **options: {**of_lists(path), **options},
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_a_reader_gives_the_same_samples(tmp_path, form):
    for number in range(3):
        np.savez(tmp_path / f"{number}.npz", x=np.arange(4) + 10 * number, y=np.arange(8).reshape(4, 2))
    dataset = FileDataset(str(tmp_path / "*.npz"), FORMS[form])
    with dataset:
        samples = dataset.__getitems__([11, 0, 5])
    assert [int(sample["x"]) for sample in samples] == [23, 0, 11]
    assert [np.asarray(sample["y"]).tolist() for sample in samples] == [[6, 7], [0, 1], [2, 3]]


def test_a_reader_with_get_data_is_counted_without_its_data(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(4))
    calls = []

    def reader(filename, get_data=False):
        calls.append(get_data)
        return of_the_readme(filename, get_data)

    with FileDataset([tmp_path / "a.npz"], reader) as dataset:
        assert len(dataset) == 4
        assert calls == [False]
        assert dataset[3] == {"x": 3}
        assert calls == [False, True]


WRONG = {
    "nothing": lambda path: None,
    "a number": lambda path: 3,
    "a single value": lambda path: np.float64(3),
    "text": lambda path: "four",
    "an iterator": lambda path: iter([1, 2, 3, 4]),
    "a set": lambda path: {1, 2, 3, 4},
    "no array": lambda path: {},
    "a column that is none": lambda path: {"x": 5},
    "columns of two lengths": lambda path: {"x": [1, 2, 3, 4], "y": [1, 2, 3]},
    "another length": lambda path: [1, 2, 3],
    "no pair": lambda path, get_data: [1, 2, 3, 4],
    "three values": lambda path, get_data: ([1, 2, 3, 4], 4, None),
    "a pair with a wrong length": lambda path, get_data: ([1, 2, 3, 4], 5),
    "a pair without a length": lambda path, get_data: ([1, 2, 3, 4], None),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_reader_that_returns_something_else_is_an_error_that_names_the_file(case):
    with FileDataset(["some/a.bin"], WRONG[case], [4]) as dataset:
        with pytest.raises(sk.DatasetError, match=r"^some/a\.bin: "):
            dataset[0]
        assert dataset.stats.bytes_read == 0


def test_a_sequence_that_fails_at_a_row_names_file_and_row():
    class Rows:
        def __len__(self):
            return 4

        def __getitem__(self, row):
            if row == 2:
                raise KeyError("broken")
            return row * 10

    with FileDataset(["some/a.bin"], lambda path: Rows()) as dataset:
        assert dataset.__getitems__([3, 1]) == [30, 10]
        with pytest.raises(
            sk.DatasetError, match=r"^some/a\.bin, row 2: cannot be read \(KeyError: 'broken'\)"
        ):
            dataset.__getitems__([0, 1, 2])
        loader = sk.Loader(dataset, sk.SequentialSampler(), batch_size=4, bad_samples="skip")
        assert [batch.tolist() for batch in loader] == [[0, 10, 30]]


class Ascending:
    """An array on disk of which only ascending rows can be taken at once."""

    shape = (4,)

    def __getitem__(self, rows):
        if (np.diff(rows) <= 0).any():
            raise TypeError("rows must ascend")
        return np.asarray(rows) * 10


@pytest.mark.parametrize("data", [Ascending(), {"x": Ascending()}], ids=["a sequence", "columns"])
def test_an_array_without_rows_is_an_error_that_names_the_file(data):
    with FileDataset(["some/a.bin"], lambda path: data) as dataset:
        assert len(dataset.__getitems__([1, 3])) == 2
        with pytest.raises(sk.DatasetError, match=r"^some/a\.bin: .*\(TypeError: rows must ascend\)"):
            dataset.__getitems__([3, 1])


WORDS = ["a" * 1000] * 3 + ["b" * 100_000]


@pytest.mark.parametrize("data", [range(4), tuple(WORDS), WORDS, np.arange(4.0), array.array("i", [7] * 4)])
def test_the_memory_of_samples_is_counted_as_python_and_numpy_report_it(data):
    with FileDataset(["a"], lambda path: data, [4]) as dataset:
        dataset[0]
        items = sum(map(sys.getsizeof, data)) if isinstance(data, tuple | list) else 0
        assert dataset.stats.bytes_read == getattr(data, "nbytes", sys.getsizeof(data) + items)


def test_objects_of_a_column_count_as_memory():
    with FileDataset(["a"], lambda path: {"word": np.array(WORDS, dtype=object)}, [4]) as dataset:
        dataset[0]
        assert 100_000 < dataset.stats.bytes_read < 110_000


class Racing:
    """Fails as numpy's reading of headers may in two threads, where Python is older than 3.11.8."""

    def __init__(self, races, message="AST constructor recursion depth mismatch (before=30, after=23)"):
        self.races, self.message = races, message

    def __call__(self, path):
        if self.races:
            self.races -= 1
            raise SystemError(self.message)
        return np.arange(3)


def test_a_race_in_pythons_parser_is_tried_again_and_any_other_fault_names_the_file():
    dataset = FileDataset(["a"], Racing(3), lengths=[3])
    assert dataset[1] == 1
    assert dataset.stats.files_read == 1
    for reader in (Racing(4), Racing(1, "error return")):
        with pytest.raises(sk.DatasetError, match="a: cannot be read"):
            FileDataset(["a"], reader, lengths=[3])[0]


# Readers by a name.

SIZES = [3, 4, 2]


def read_words(path):
    return {"id": np.array([int(word) for word in Path(path).read_text().split()])}


@pytest.fixture(autouse=True)
def names_as_before(monkeypatch):
    monkeypatch.setattr("samplerkit.storage.files.readers.READERS", dict(READERS))


@pytest.fixture
def folder(tmp_path):
    ids = iter(range(sum(SIZES)))
    for number, size in enumerate(SIZES):
        (tmp_path / f"{number}.words").write_text(" ".join(str(next(ids)) for _ in range(size)))
    return tmp_path


def config_in(folder):
    (folder / "config.yaml").write_text(
        "dataset: {kind: files, files: '*.words', reader: words}\n"
        "sampler: {kind: random, seed: 3}\n"
        "loader: {batch_size: 3}\n"
    )
    return sk.load_config(folder / "config.yaml")


READS = """
import pickle, sys
dataset, ids = pickle.load(open(sys.argv[1], "rb"))
print([int(sample["id"]) for sample in dataset.__getitems__(ids)])
"""


def test_a_config_names_a_registered_reader_and_another_process_has_it(folder):
    """The process imports this module, which registers nothing."""
    sk.register_reader("words", read_words)
    config = config_in(folder)
    assert config.to_dict()["dataset"]["reader"] == "words"
    assert sk.load_config(config.to_dict()) == config
    expected = [*map(int, config.sampler.order(config.dataset))]
    (folder / "sent").write_bytes(pickle.dumps((config.dataset, expected)))
    assert run(["-c", READS, str(folder / "sent")]).stdout == f"{expected}\n"
    assert [int(id) for batch in config.make_loader(world=sk.World()) for id in batch["id"]] == expected


def test_an_unregistered_name_is_an_error_with_a_hint(folder):
    hint = "known: npz, npy, parquet, csv, tsv, jsonl, text.*; register_reader adds one of yours"
    with pytest.raises(sk.ConfigError, match=f"dataset.reader: is not known, got 'words'; {hint}"):
        config_in(folder)


def test_registering_an_equal_reader_again_is_allowed(folder):
    for _ in range(2):
        sk.register_reader("words", read_words)
        sk.register_reader("npy", NpyReader())
    assert len(sk.FileDataset(str(folder / "*.words"), "words")) == sum(SIZES)
