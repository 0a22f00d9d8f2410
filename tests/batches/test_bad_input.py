"""Each bad input of a recipe is a typed error that says where, what, and mostly what to do about it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import samplerkit as sk

LENGTHS = [5, 3, 9, 3]


def tokens(lengths: Any = LENGTHS, budget: Any = 16, size: int = 4, **arguments: Any) -> Any:
    return sk.TokenBatches(budget, lengths=lengths, **arguments).plan(sk.RandomSampler(), size)


def packs(lengths: Any = LENGTHS, seq_len: Any = 8, **arguments: Any) -> Any:
    return sk.PackBatches(seq_len, lengths=lengths, **arguments).plan(sk.RandomSampler(), 4)


def buckets(boundaries: Any = (4, 9), batch_size: Any = 2, **arguments: Any) -> Any:
    recipe = sk.BucketBatches(boundaries, batch_size, **{"lengths": LENGTHS, **arguments})
    return recipe.plan(sk.RandomSampler(), 4)


def keys(given: Any, batch_size: Any = 2, **arguments: Any) -> Any:
    return sk.BucketBatches(None, batch_size, keys=given, **arguments).plan(sk.RandomSampler(), 4)


def classes(
    num_class: Any = 2, num_val: Any = 2, labels: Any = (0, 0, 1, 1), sampler: Any = None, **arguments: Any
) -> Any:
    recipe = sk.ClassBatches(num_class, num_val, labels=labels, **arguments)
    return recipe.plan(sampler or sk.RandomSampler(), 4)


class Cutting(sk.BatchRecipe):
    """A recipe that cuts what it is given."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches

    def cut(self, ids: Any, lengths: Any, context: Any) -> Any:
        return self.batches


class Recipeless:
    """No recipe."""


def saved(folder: Path, array: Any, name: str = "lengths.npy") -> Path:
    np.save(folder / name, array, allow_pickle=True)
    return folder / name


def truncated(folder: Path) -> Path:
    path = saved(folder, np.arange(1000))
    path.write_bytes(path.read_bytes()[:500])
    return path


def text(folder: Path) -> Path:
    path = folder / "lengths.npy"
    path.write_text("5\n3\n")
    return path


RANGE, TYPE, VALUE = sk.ArgumentRangeError, sk.ArgumentTypeError, sk.ArgumentValueError
DATASET = sk.DatasetError

CASES: dict[str, tuple[type[sk.SamplerkitError], str, Any]] = {
    "too few lengths": (DATASET, "lengths: must be one for each of the 4 samples", lambda _: tokens([5])),
    "too many lengths": (DATASET, "got 5; compute", lambda _: tokens([5] * 5)),
    "no lengths": (DATASET, "no attribute or column lengths.*lengths=", lambda _: tokens(None)),
    "a negative length": (RANGE, r"lengths\[1\]: must not be neg", lambda _: tokens([5, -3, 9, 3])),
    "a length of NaN": (TYPE, r"lengths\[2\]: must be an int", lambda _: tokens([5, 3, np.nan, 3])),
    "seconds of speech": (
        TYPE,
        r"got 'float64'; give the number of tokens or frames.*milliseconds.*rint\(1000",
        lambda _: tokens([1.5, 0.4, 9.0, 3.0]),
    ),
    "booleans": (TYPE, "not booleans", lambda _: tokens([True, 3, 9, 3])),
    "strings": (TYPE, "lengths: must be integers", lambda _: tokens(["5", "3", "9", "3"])),
    "rows of different lengths": (TYPE, "flat list", lambda _: tokens([[5], [3, 4], [9], [3]])),
    "triples": (VALUE, r"got \(4, 3\)", lambda _: tokens(np.ones((4, 3), int))),
    "a set": (TYPE, "lengths: must be integers", lambda _: tokens({5, 3, 9, 4})),
    "a number": (TYPE, "lengths: must be integers", lambda _: tokens(5)),
    "a huge length": (RANGE, "at most 2147483647", lambda _: tokens([5, 2**40, 9, 3])),
    "a tensor of floats": (TYPE, "must be integers", lambda _: tokens(torch.ones(4))),
    "a missing file": (VALUE, "not there.*numpy.save", lambda f: tokens(f / "lengths.npy")),
    "a file of text": (VALUE, "cannot be read as an .npy", lambda f: tokens(text(f))),
    "a file of another kind": (VALUE, "path of an .npy", lambda f: tokens(str(f / "lengths.json"))),
    "a truncated file": (VALUE, "cannot be read", lambda f: tokens(truncated(f), size=1000)),
    "a pickled file": (
        VALUE,
        "cannot be read",
        lambda f: tokens(saved(f, np.array([5, None, 9, 3], dtype=object))),
    ),
    "a folder": (VALUE, "path of an .npy file", tokens),
    "a budget below the longest": (
        RANGE,
        "below the longest sample, of length 9",
        lambda _: tokens(budget=8),
    ),
    "a budget below it when padded": (RANGE, "longest", lambda _: tokens(budget=15, length_multiple=8)),
    "truncated to nothing": (
        RANGE,
        "one token",
        lambda _: tokens(budget=3, long="truncate", length_multiple=4),
    ),
    "an unknown long": (VALUE, "long: must be one of", lambda _: tokens(long="skip")),
    "an unknown short": (VALUE, "short: must be one of", lambda _: tokens(short="pad")),
    "a waste of one": (RANGE, r"waste: must be in \[0, 1\)", lambda _: tokens(waste=1)),
    "a waste of NaN": (RANGE, "waste", lambda _: tokens(waste=float("nan"))),
    "a waste above all floats": (RANGE, "waste", lambda _: tokens(waste=10**400)),
    "a waste in words": (TYPE, "waste: must be a number", lambda _: tokens(waste="little")),
    "a cost that falls": (RANGE, "cost: must grow", lambda _: tokens(cost=lambda u: 10 - u)),
    "a cost of one number": (TYPE, "one number for each", lambda _: tokens(cost=lambda u: 3)),
    "a cost of NaN": (RANGE, "cost: must be finite", lambda _: tokens(cost=lambda u: u * np.nan)),
    "a negative cost": (RANGE, "cost: must not be neg", lambda _: tokens(cost=lambda u: u - 4)),
    "a cost that is none": (TYPE, "cost: must be a function", lambda _: tokens(cost=3)),
    "a cost beside quadratic": (RANGE, "with cost", lambda _: tokens(cost=abs, quadratic=3)),
    "pairs that do not fit": (
        RANGE,
        r"sample 1, of lengths \[9, 9\]",
        lambda _: tokens([[5, 5], [9, 9], [1, 1], [1, 1]]),
    ),
    "pairs truncated": (RANGE, "cannot truncate pairs", lambda _: tokens([[5, 5]] * 4, long="truncate")),
    "num_samples of a set": (
        RANGE,
        "num_samples: cuts an order.*num_batches",
        lambda _: sk.TokenBatches(16, lengths=LENGTHS).plan(sk.RandomSampler(num_samples=2), 4),
    ),
    "no sampler": (
        TYPE,
        "sampler: must be a sampler",
        lambda _: sk.TokenBatches(16, lengths=LENGTHS).plan(Recipeless(), 4),
    ),
    "packs of too many tokens": (RANGE, "seq_len", lambda _: packs(seq_len=2**40)),
    "documents that are too long": (
        RANGE,
        'seq_len: is below the longest document, of 9 tokens.*"split"',
        lambda _: packs(long="raise"),
    ),
    "long documents alone in packs": (VALUE, "long: must be one of", lambda _: packs(long="alone")),
    "a multiple that does not divide packs": (
        RANGE,
        "length_multiple: must divide seq_len, which is 8.*seq_len of 9",
        lambda _: packs(length_multiple=3),
    ),
    "pairs in packs": (VALUE, r"are pairs.*got \(4, 2\)", lambda _: packs([[1, 2]] * 4)),
    "packs without lengths": (DATASET, "no attribute or column lengths", lambda _: packs(None)),
    "boundaries that end too soon": (RANGE, "end before the longest", lambda _: buckets((4, 8))),
    "boundaries that fall": (RANGE, "boundaries: must ascend", lambda _: buckets((9, 4))),
    "no boundaries": (VALUE, "or keys must be given", lambda _: buckets(None)),
    "boundaries of floats": (TYPE, r"boundaries\[0\]", lambda _: buckets((4.5, 9))),
    "too few batch sizes": (VALUE, "each of the 2 boundaries", lambda _: buckets(batch_size=[2])),
    "batch sizes by name": (TYPE, "batch_size", lambda _: buckets(batch_size={4: 2, 9: 1})),
    "pairs in buckets": (VALUE, "are pairs", lambda _: buckets(lengths=[[1, 2]] * 4)),
    "unhashable keys": (TYPE, r"keys\[0\]: cannot be hashed.*tuple", lambda _: keys([[1, 2]] * 4)),
    "keys of NaN": (VALUE, r"keys\[1\]: must not be NaN", lambda _: keys(np.array([1, np.nan, 1, 1]))),
    "too few keys": (DATASET, "keys: must be one for each", lambda _: keys([1, 2])),
    "keys that are one": (TYPE, "keys: must be a list", lambda _: keys("abcd")),
    "a key without a size": (VALUE, "no number for a key, got 2", lambda _: keys([1, 1, 2, 2], {1: 3})),
    "keys merged": (VALUE, "would mix keys", lambda _: keys([1, 1, 2, 2], short="merge")),
    "keys beside lengths": (VALUE, "with keys", lambda _: keys([1] * 4, lengths=LENGTHS)),
    "more classes than there are": (DATASET, "more than the 2 classes", lambda _: classes(3)),
    "a class with too few members": (DATASET, "1 samples of class 1", lambda _: classes(labels=(0, 0, 0, 1))),
    "no labels": (DATASET, "no attribute or column label", lambda _: classes(labels=None)),
    "labels that are lists": (TYPE, "flat list", lambda _: classes(labels=[[0], [0], [1], [1]])),
    "too few labels": (DATASET, "one for each of the 4", lambda _: classes(labels=(0, 0))),
    "classes in a sequence": (
        sk.CompositionError,
        "fixed set",
        lambda _: classes(sampler=sk.SequentialSampler()),
    ),
    "a cut that is none": (TYPE, "cut: must give a list", lambda _: cut(None)),
    "a cut of floats": (TYPE, "cut: batch 0", lambda _: cut([np.array([0.5])])),
    "a cut of ids": (VALUE, "outside of a window of 4.*places", lambda _: cut([[0, 1], [77]])),
    "a cut that repeats": (VALUE, "a place twice, got 1", lambda _: cut([[0, 1], [1]])),
    "an empty cut": (VALUE, "batch 1: must not be empty", lambda _: cut([[0], np.array([], int)])),
    "a recipe that is none": (
        TYPE,
        "subclass of samplerkit.BatchRecipe",
        lambda _: sk.register_batches("bad", Recipeless),
    ),
    "a name that is taken": (VALUE, "kind: is taken", lambda _: sk.register_batches("tokens", Cutting)),
    "a batch that is not there": (sk.OutOfDatasetError, "outside of a plan of", lambda _: tokens()[99]),
    "a batch by name": (TYPE, "index: must be an integer", lambda _: tokens()["first"]),
    "a window that is not there": (
        sk.StateError,
        "window: is none of this epoch",
        lambda _: (
            sk.TokenBatches(16, lengths=LENGTHS, window=2).over(sk.RandomSampler(), 4).plan(0, known=(9, 1))
        ),
    ),
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


NUMBERS = {
    sk.TokenBatches(16): (
        "max_tokens max_samples count_multiple length_multiple quadratic pool window abreast num_batches"
    ),
    sk.PackBatches(8): "seq_len packs window length_multiple abreast num_batches",
    sk.BucketBatches([9], 2): "batch_size window abreast num_batches",
    sk.ClassBatches(2, 2): "num_class num_val num_batches abreast",
}


@pytest.mark.parametrize(
    ("recipe", "name"), [(recipe, name) for recipe, names in NUMBERS.items() for name in names.split()]
)
def test_each_number_of_a_recipe_is_a_positive_integer(recipe, name):
    with pytest.raises(RANGE, match=f"^{name}: must be positive"):
        replace(recipe, **{name: 0})
    with pytest.raises(TYPE, match=f"^{name}: must be"):
        replace(recipe, **{name: 0.5})
