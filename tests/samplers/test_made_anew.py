"""Orders of mixtures and ledgers are values: pickled, and equal when made anew of the same recipe."""

from __future__ import annotations

import numpy as np
import pytest

import samplerkit as sk

CORPUS = sk.Layout.tree({"web": sk.Layout([5, 7]), "code": 6, "n": sk.Layout.tree({"a": 4, "b": 5})})
SKIP = sk.Edit(at=3, skip=2)
WEIGHTS = sk.Edit(at=6, weights={"web": 1, "code": 3})
WITHOUT = sk.Edit(at=3, without=[1, 2])


def mixture(seed=2, labels=(0, 1, 0, 1, 0, 1), **arguments):
    code = sk.PKSampler(2, labels=np.array(labels), seed=1)
    code.add_child(sk.RandomSampler(seed=seed))
    return sk.MixtureSampler({"web": None, "code": code}, **arguments)


@pytest.mark.parametrize("change", [{"seed": 3}, {"labels": (1, 1, 0, 1, 0, 1)}], ids=repr)
def test_an_order_is_not_equal_to_one_of_another_source(change):
    assert mixture().order(CORPUS) != mixture(**change).order(CORPUS)
    one, other = (sk.Ledger(mixture(passes="restart", **said)) for said in ({}, change))
    assert one.order(CORPUS) != other.order(CORPUS)


def test_edits_tell_orders_of_ledgers_apart():
    orders = [
        sk.Ledger(sk.MixtureSampler({"web": None, "code": None}), edits).order(CORPUS)
        for edits in ([], [SKIP], [WEIGHTS], [SKIP, WEIGHTS], [WITHOUT], [WITHOUT, WEIGHTS])
    ]
    assert all(one != other for n, one in enumerate(orders) for other in orders[:n])


class Labelled:
    """A dataset that tells labels, which `PKSampler` looks at."""

    def __init__(self, labels):
        self.label = labels

    def __len__(self):
        return len(self.label)

    def __getitem__(self, index):
        return index


def test_what_samplers_look_at_in_a_dataset_tells_orders_apart():
    one, same, other = (
        sk.Ledger(sk.PKSampler(2)).order(Labelled(labels))
        for labels in ([0, 1, 0, 1, 0, 1], [0, 1, 0, 1, 0, 1], [0, 0, 0, 1, 1, 1])
    )
    assert one == same
    assert one != other


def test_a_source_that_comes_once_an_epoch_is_read_again_where_passes_restart():
    once = sk.MixtureSampler({"a": None, "b": None}, stop="once")
    sources, weights = {"web": None, "n": once}, {"web": 1, "n": 1}
    ids = sk.MixtureSampler(sources, 60, weights=weights, passes="restart").order(CORPUS, 3)[:]
    (begin, end), size = (18, 27), 9
    passes = ids[(ids >= begin) & (ids < end)][: 2 * size].reshape(2, size)
    assert np.sort(passes, axis=1).tolist() == [[*range(begin, end)]] * 2
    assert passes[0].tolist() != passes[1].tolist()


# A mixture of which no order can be made is an error that says what to do.


@pytest.mark.parametrize("ask", [lambda mix: mix.order(CORPUS), lambda mix: mix.is_distributed])
def test_a_mixture_that_was_put_into_its_own_sources_is_refused(ask):
    mix = mixture()
    mix.sources["web"] = mix
    with pytest.raises(sk.errors.CompositionError, match="MixtureSampler: is a source of itself"):
        ask(mix)


def test_an_epoch_that_ends_beyond_all_positions_names_num_samples():
    weights = {"web": 1e-300, "code": 1}
    with pytest.raises(sk.errors.ArgumentRangeError, match=r"num_samples: .*; say num_samples") as caught:
        sk.MixtureSampler({"web": None, "code": None}, weights=weights, stop="all").order(CORPUS)
    assert caught.value.place == "num_samples"
    assert (
        len(sk.MixtureSampler({"web": None, "code": None}, 9, weights=weights, stop="all").order(CORPUS)) == 9
    )


@pytest.mark.parametrize("line", ['{"at": 3, ', "[]", '{"at": -1, "skip": 2}', '{"until": 5}'])
def test_a_broken_line_of_a_file_of_edits_has_its_number_and_a_hint(tmp_path, line):
    path = tmp_path / "edits.jsonl"
    path.write_text(f'{{"at": 3, "skip": 2}}\n{line}\n', encoding="utf-8")
    with pytest.raises(sk.errors.ArgumentValueError, match="holds no edit in line 2") as caught:
        sk.Ledger(sk.SequentialSampler(), edits_file=path)
    assert "take the line out" in caught.value.hint
