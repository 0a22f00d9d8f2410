"""Bad files, cuts and recipes are typed errors; `data/wrong_arguments.json` has bad arguments of recipes."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import samplerkit as sk

TYPE, VALUE = sk.ArgumentTypeError, sk.ArgumentValueError


def tokens(lengths: Any, size: int = 4) -> Any:
    return sk.TokenBatches(16, lengths=lengths).plan(sk.RandomSampler(), size)


class Cutting(sk.BatchRecipe):
    """A recipe that returns given batches."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches

    def cut(self, ids: Any, lengths: Any, context: Any) -> Any:
        return self.batches


class Counted(Cutting):
    """A recipe with lengths."""

    def __init__(self, lengths: Any) -> None:
        super().__init__([[0]])
        self.lengths = lengths


def saved(folder: Path, array: Any, name: str = "lengths.npy") -> Path:
    np.save(folder / name, array, allow_pickle=True)
    return folder / name


def truncated(folder: Path) -> Path:
    path = saved(folder, np.arange(1000))
    path.write_bytes(path.read_bytes()[:500])
    return path


def with_damaged_header(folder: Path) -> Path:
    path = saved(folder, np.arange(4))
    path.write_bytes(path.read_bytes().replace(b"(", b"((", 1))  # numpy raises a TokenError of `tokenize`
    return path


def text(folder: Path) -> Path:
    path = folder / "lengths.npy"
    path.write_text("5\n3\n")
    return path


def archive(folder: Path) -> Path:
    path = folder / "lengths.npy"
    with path.open("wb") as file:
        np.savez(file, lengths=np.arange(3))
    return path


CASES: dict[str, tuple[type[sk.SamplerkitError], str, Any]] = {
    "a missing file": (VALUE, "does not exist.*numpy.save", lambda f: tokens(f / "lengths.npy")),
    "a file of text": (VALUE, "cannot be read as an .npy", lambda f: tokens(text(f))),
    "an archive of arrays": (VALUE, "cannot be read as an .npy", lambda f: tokens(archive(f))),
    "a truncated file": (VALUE, "cannot be read", lambda f: tokens(truncated(f), size=1000)),
    "a damaged header": (VALUE, "cannot be read", lambda f: tokens(with_damaged_header(f))),
    "a pickled file": (
        VALUE,
        "cannot be read",
        lambda f: tokens(saved(f, np.array([5, None, 9, 3], dtype=object))),
    ),
    "a cut that is no list": (TYPE, "cut: must give a list", lambda _: cut(None)),
    "a cut of floats": (TYPE, "cut: batch 0", lambda _: cut([np.array([0.5])])),
    "a cut of ragged rows": (TYPE, "cut: batch 0", lambda _: cut([[0, [1]]])),
    "a cut of ids": (VALUE, "outside of a window of 4, got 77; give places", lambda _: cut([[0, 1], [77]])),
    "a cut that repeats": (VALUE, "a place twice, got 1", lambda _: cut([[0, 1], [1]])),
    "an empty cut": (VALUE, "batch 1: must not be empty", lambda _: cut([[0], np.array([], int)])),
    "too few lengths of a user's recipe": (
        sk.DatasetError,
        "one for each of the 4 samples",
        lambda _: Counted([5, 3]).plan(sk.SequentialSampler(), 4),
    ),
    "a name that is taken": (VALUE, "kind: is taken", lambda _: sk.register_batches("tokens", Cutting)),
}


def cut(batches: Any) -> Any:
    return Cutting(batches).plan(sk.SequentialSampler(), 4)[0]


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_a_typed_error(name, tmp_path):
    error, message, make = CASES[name]
    with pytest.raises(error) as raised:
        make(tmp_path)
    assert type(raised.value) is error
    assert re.search(message, str(raised.value)), str(raised.value)
