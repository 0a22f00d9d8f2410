"""Each bad input of a recipe is a typed error that says where, what, and mostly what to do about it."""

from __future__ import annotations

import re
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


CASES: dict[str, tuple[type[sk.SamplerkitError], str, Any]] = {
    "too few lengths": (
        sk.DatasetError,
        "lengths: must be one for each of the 4 samples",
        lambda _: tokens([5]),
    ),
    "too many lengths": (sk.DatasetError, "got 5; compute", lambda _: tokens([5] * 5)),
    "no lengths": (sk.DatasetError, "no attribute or column lengths.*lengths=", lambda _: tokens(None)),
    "a negative length": (
        sk.ArgumentRangeError,
        r"lengths\[1\]: must not be neg",
        lambda _: tokens([5, -3, 9, 3]),
    ),
    "a length of NaN": (
        sk.ArgumentTypeError,
        r"lengths\[2\]: must be an int",
        lambda _: tokens([5, 3, np.nan, 3]),
    ),
    "floats": (sk.ArgumentTypeError, "got 'float64'; give", lambda _: tokens([5.0, 3.0, 9.0, 3.0])),
    "booleans": (sk.ArgumentTypeError, "not booleans", lambda _: tokens([True, 3, 9, 3])),
    "strings": (sk.ArgumentTypeError, "lengths: must be integers", lambda _: tokens(["5", "3", "9", "3"])),
    "rows of unlike lengths": (sk.ArgumentTypeError, "flat list", lambda _: tokens([[5], [3, 4], [9], [3]])),
    "triples": (sk.ArgumentValueError, r"got \(4, 3\)", lambda _: tokens(np.ones((4, 3), int))),
    "a set": (sk.ArgumentTypeError, "lengths: must be integers", lambda _: tokens({5, 3, 9, 4})),
    "a number": (sk.ArgumentTypeError, "lengths: must be integers", lambda _: tokens(5)),
    "a huge length": (sk.ArgumentRangeError, "at most 2147483647", lambda _: tokens([5, 2**40, 9, 3])),
    "a tensor of floats": (sk.ArgumentTypeError, "must be integers", lambda _: tokens(torch.ones(4))),
    "a missing file": (sk.ArgumentValueError, "not there.*numpy.save", lambda f: tokens(f / "lengths.npy")),
    "a file of text": (sk.ArgumentValueError, "cannot be read as an .npy", lambda f: tokens(text(f))),
    "a file of another kind": (
        sk.ArgumentValueError,
        "path of an .npy",
        lambda f: tokens(str(f / "lengths.json")),
    ),
    "a truncated file": (sk.ArgumentValueError, "cannot be read", lambda f: tokens(truncated(f), size=1000)),
    "a pickled file": (
        sk.ArgumentValueError,
        "cannot be read",
        lambda f: tokens(saved(f, np.array([5, None, 9, 3], dtype=object))),
    ),
    "a file of floats": (sk.ArgumentTypeError, "float64", lambda f: tokens(saved(f, np.ones(4)))),
    "a file for another dataset": (sk.DatasetError, "got 9", lambda f: tokens(saved(f, np.arange(9)), 99)),
    "a folder": (sk.ArgumentValueError, "path of an .npy file", tokens),
    "a budget below the longest": (
        sk.ArgumentRangeError,
        "below the longest sample, of length 9",
        lambda _: tokens(budget=8),
    ),
    "a budget below it when padded": (
        sk.ArgumentRangeError,
        "longest",
        lambda _: tokens(budget=15, length_multiple=8),
    ),
    "a budget of zero": (sk.ArgumentRangeError, "max_tokens: must be positive", lambda _: tokens(budget=0)),
    "a budget of 1.5": (sk.ArgumentTypeError, "max_tokens: must be an integer", lambda _: tokens(budget=1.5)),
    "truncated to nothing": (
        sk.ArgumentRangeError,
        "one token",
        lambda _: tokens(budget=3, long="truncate", length_multiple=4),
    ),
    "an unknown long": (sk.ArgumentValueError, "long: must be one of", lambda _: tokens(long="skip")),
    "an unknown short": (sk.ArgumentValueError, "short: must be one of", lambda _: tokens(short="pad")),
    "a waste of one": (sk.ArgumentRangeError, r"waste: must be in \[0, 1\)", lambda _: tokens(waste=1)),
    "a waste of NaN": (sk.ArgumentRangeError, "waste", lambda _: tokens(waste=float("nan"))),
    "a waste above all floats": (sk.ArgumentRangeError, "waste", lambda _: tokens(waste=10**400)),
    "a waste in words": (sk.ArgumentTypeError, "waste: must be a number", lambda _: tokens(waste="little")),
    "a pool of zero": (sk.ArgumentRangeError, "pool: must be positive", lambda _: tokens(pool=0)),
    "a window of zero": (sk.ArgumentRangeError, "window: must be positive", lambda _: tokens(window=0)),
    "an abreast of zero": (sk.ArgumentRangeError, "abreast: must be positive", lambda _: tokens(abreast=0)),
    "a cost that falls": (sk.ArgumentRangeError, "cost: must grow", lambda _: tokens(cost=lambda u: 10 - u)),
    "a cost of one number": (sk.ArgumentTypeError, "one number for each", lambda _: tokens(cost=lambda u: 3)),
    "a cost of NaN": (
        sk.ArgumentRangeError,
        "cost: must be finite",
        lambda _: tokens(cost=lambda u: u * np.nan),
    ),
    "a negative cost": (
        sk.ArgumentRangeError,
        "cost: must not be neg",
        lambda _: tokens(cost=lambda u: u - 4),
    ),
    "a cost that is none": (sk.ArgumentTypeError, "cost: must be a function", lambda _: tokens(cost=3)),
    "a cost beside quadratic": (
        sk.ArgumentRangeError,
        "stands beside",
        lambda _: tokens(cost=abs, quadratic=3),
    ),
    "pairs that do not fit": (
        sk.ArgumentRangeError,
        r"sample 1, of lengths \[9, 9\]",
        lambda _: tokens([[5, 5], [9, 9], [1, 1], [1, 1]]),
    ),
    "pairs truncated": (
        sk.ArgumentRangeError,
        "cannot truncate pairs",
        lambda _: tokens([[5, 5]] * 4, long="truncate"),
    ),
    "num_samples of a set": (
        sk.ArgumentRangeError,
        "num_samples: cuts an order.*num_batches",
        lambda _: sk.TokenBatches(16, lengths=LENGTHS).plan(sk.RandomSampler(num_samples=2), 4),
    ),
    "no sampler": (
        sk.ArgumentTypeError,
        "sampler: must be a sampler",
        lambda _: sk.TokenBatches(16, lengths=LENGTHS).plan(Recipeless(), 4),
    ),
    "packs of nothing": (sk.ArgumentRangeError, "seq_len: must be positive", lambda _: packs(seq_len=0)),
    "packs of half a token": (sk.ArgumentTypeError, "seq_len: must be an int", lambda _: packs(seq_len=0.5)),
    "packs of too many tokens": (sk.ArgumentRangeError, "seq_len", lambda _: packs(seq_len=2**40)),
    "no packs in a batch": (sk.ArgumentRangeError, "packs: must be positive", lambda _: packs(packs=0)),
    "documents that are too long": (
        sk.ArgumentRangeError,
        'seq_len: is below the longest document, of 9 tokens.*"split"',
        lambda _: packs(long="raise"),
    ),
    "long documents alone in packs": (
        sk.ArgumentValueError,
        "long: must be one of",
        lambda _: packs(long="alone"),
    ),
    "a multiple that does not divide packs": (
        sk.ArgumentRangeError,
        "length_multiple: must divide seq_len, which is 8.*seq_len of 9",
        lambda _: packs(length_multiple=3),
    ),
    "a multiple above packs": (sk.ArgumentRangeError, "length_mult", lambda _: packs(length_multiple=16)),
    "pairs in packs": (sk.ArgumentValueError, "are pairs, and a document", lambda _: packs([[1, 2]] * 4)),
    "packs without lengths": (sk.DatasetError, "no attribute or column lengths", lambda _: packs(None)),
    "packs of too few lengths": (sk.DatasetError, "one for each of the 4", lambda _: packs([1])),
    "packs of negative lengths": (sk.ArgumentRangeError, r"lengths\[0\]", lambda _: packs([-1, 1, 1, 1])),
    "a window of no documents": (sk.ArgumentRangeError, "window: must be pos", lambda _: packs(window=0)),
    "num_samples of a set of documents": (
        sk.ArgumentRangeError,
        "num_samples: cuts an order.*num_batches",
        lambda _: sk.PackBatches(8, lengths=LENGTHS).plan(sk.RandomSampler(num_samples=2), 4),
    ),
    "boundaries that end too soon": (
        sk.ArgumentRangeError,
        "end before the longest",
        lambda _: buckets((4, 8)),
    ),
    "boundaries that fall": (sk.ArgumentRangeError, "boundaries: must ascend", lambda _: buckets((9, 4))),
    "no boundaries": (sk.ArgumentValueError, "or keys must be given", lambda _: buckets(None)),
    "boundaries of floats": (sk.ArgumentTypeError, r"boundaries\[0\]", lambda _: buckets((4.5, 9))),
    "a batch size of zero": (
        sk.ArgumentRangeError,
        "batch_size: must be positive",
        lambda _: buckets(batch_size=0),
    ),
    "too few batch sizes": (
        sk.ArgumentValueError,
        "each of the 2 boundaries",
        lambda _: buckets(batch_size=[2]),
    ),
    "batch sizes by name": (sk.ArgumentTypeError, "batch_size", lambda _: buckets(batch_size={4: 2, 9: 1})),
    "pairs in buckets": (sk.ArgumentValueError, "are pairs", lambda _: buckets(lengths=[[1, 2]] * 4)),
    "unhashable keys": (
        sk.ArgumentTypeError,
        r"keys\[0\]: cannot be hashed.*tuple",
        lambda _: keys([[1, 2]] * 4),
    ),
    "keys of NaN": (
        sk.ArgumentValueError,
        r"keys\[1\]: must not be NaN",
        lambda _: keys(np.array([1, np.nan, 1, 1])),
    ),
    "too few keys": (sk.DatasetError, "keys: must be one for each", lambda _: keys([1, 2])),
    "keys that are one": (sk.ArgumentTypeError, "keys: must be a list", lambda _: keys("abcd")),
    "a key without a size": (
        sk.ArgumentValueError,
        "no number for a key, got 2",
        lambda _: keys([1, 1, 2, 2], {1: 3}),
    ),
    "keys merged": (sk.ArgumentValueError, "would mix keys", lambda _: keys([1, 1, 2, 2], short="merge")),
    "keys beside lengths": (sk.ArgumentValueError, "beside keys", lambda _: keys([1] * 4, lengths=LENGTHS)),
    "zero classes": (sk.ArgumentRangeError, "num_class: must be positive", lambda _: classes(0)),
    "zero of each": (sk.ArgumentRangeError, "num_val: must be positive", lambda _: classes(num_val=0)),
    "more classes than there are": (sk.DatasetError, "more than the 2 classes", lambda _: classes(3)),
    "a class with too few members": (
        sk.DatasetError,
        "1 samples of class 1",
        lambda _: classes(labels=(0, 0, 0, 1)),
    ),
    "no labels": (sk.DatasetError, "no attribute or column label", lambda _: classes(labels=None)),
    "labels that are lists": (
        sk.ArgumentTypeError,
        "flat list",
        lambda _: classes(labels=[[0], [0], [1], [1]]),
    ),
    "too few labels": (sk.DatasetError, "one for each of the 4", lambda _: classes(labels=(0, 0))),
    "classes in a sequence": (
        sk.CompositionError,
        "fixed set",
        lambda _: classes(sampler=sk.SequentialSampler()),
    ),
    "a cut that is none": (sk.ArgumentTypeError, "cut: must give a list", lambda _: cut(None)),
    "a cut of floats": (sk.ArgumentTypeError, "cut: batch 0", lambda _: cut([np.array([0.5])])),
    "a cut of ids": (
        sk.ArgumentValueError,
        "outside of a window of 4.*places",
        lambda _: cut([[0, 1], [77]]),
    ),
    "a cut that repeats": (sk.ArgumentValueError, "a place twice, got 1", lambda _: cut([[0, 1], [1]])),
    "an empty cut": (
        sk.ArgumentValueError,
        "batch 1: must not be empty",
        lambda _: cut([[0], np.array([], int)]),
    ),
    "a recipe that is none": (
        sk.ArgumentTypeError,
        "subclass of samplerkit.BatchRecipe",
        lambda _: sk.register_batches("bad", Recipeless),
    ),
    "a name that is taken": (
        sk.ArgumentValueError,
        "kind: is taken",
        lambda _: sk.register_batches("tokens", Cutting),
    ),
    "a batch that is not there": (sk.OutOfDatasetError, "outside of a plan of", lambda _: tokens()[99]),
    "a batch by name": (sk.ArgumentTypeError, "index: must be an integer", lambda _: tokens()["first"]),
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


def test_there_are_thirty_bad_inputs_at_least():
    assert len(CASES) >= 30
