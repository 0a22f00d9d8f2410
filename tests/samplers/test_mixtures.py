"""Mixtures over trees and files: their inverse, once, passes, seeds, and refusals.

`test_removed_ids.py` and the golden vectors have what they read, draw by draw.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset

import samplerkit as sk
from samplerkit.loading.state.identity import describe_chain, seeds_of
from samplerkit.samplers.base import from_plain, plain
from samplerkit.samplers.chain import RunConstants
from samplerkit.samplers.mixing.sources import EpochOrders

CORPUS = sk.Layout.tree(
    {
        "web": sk.Layout([50, 70, 30]),
        "code": 40,
        "books": sk.Layout.tree({"old": sk.Layout([9, 11]), "new": 20}),
    }
)
NAMES = ("web", "code", "books")


def of(names: tuple[str, ...], samplers: Any = None, **arguments: Any) -> sk.MixtureSampler:
    """A mixture of the parts with these names; those without a sampler are read whole."""
    return sk.MixtureSampler({**dict.fromkeys(names), **(samplers or {})}, **arguments)


def test_orders_of_a_source_at_other_lanes_or_epochs_are_not_equal():
    sampler, one, two = sk.RandomSampler(seed=1), RunConstants(lanes=1), RunConstants(lanes=2)
    orders = EpochOrders(sampler, 40, one)
    for other in (EpochOrders(sampler, 40, two), EpochOrders(sampler, 40, one, step=2), None):
        assert orders != other


def test_a_source_without_a_sampler_has_a_seed_by_its_name_and_place():
    same = sk.Layout.tree({"a": 500, "b": 500, "c": sk.Layout.tree({"a": 500})})
    inner = of(("a",), weights={"a": 1})
    mixture = of(("a", "b", "c"), {"c": inner}, weights=dict.fromkeys("abc", 1), num_samples=900)
    ids = mixture.order(same)[:]
    orders = [ids[(ids >= begin) & (ids < begin + 500)] - begin for begin in (0, 500, 1000)]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        together = min(orders[one].size, orders[other].size)
        assert np.count_nonzero(orders[one][:together] == orders[other][:together]) < 10


@pytest.mark.parametrize(
    ("lanes", "sizes"), [(1, [5, 0, 3]), (2, [1, 400]), (8, [150, 40, 37]), (64, [150, 40, 37])]
)
def test_once_is_a_bijection_in_proportion_to_the_sizes(lanes, sizes):
    layout = sk.Layout.tree({str(number): size for number, size in enumerate(sizes)})
    mixture = of(tuple(layout.parts), stop="once", lanes=lanes, seed=5)
    orders = [mixture.order(layout, epoch) for epoch in range(3)]
    for order in orders:
        ids = order[:]
        assert sorted(ids.tolist()) == list(range(sum(sizes)))
        assert order[order.positions_of(np.arange(sum(sizes)))[1]].tolist() == list(range(sum(sizes)))
        assert not order.passes_at(np.arange(len(order))).any()
    assert sum(sizes) < 10 or len({tuple(order[:].tolist()) for order in orders}) == 3
    some = of(tuple(layout.parts), stop="once", lanes=lanes, seed=5, num_samples=7).order(layout, 0)
    assert some[:].tolist() == orders[0][:7].tolist()


def test_first_ends_before_a_source_restarts_and_all_when_each_was_read():
    for lanes in (1, 3, 8):
        given = {"weights": {"web": 5, "code": 2, "books": 1}, "lanes": lanes, "seed": 2}
        first, every = (of(NAMES, stop=stop, **given).order(CORPUS) for stop in ("first", "all"))
        longer = of(NAMES, num_samples=10**4, **given).order(CORPUS)[:]
        assert np.unique(first[:]).size == len(first)
        assert longer[: len(every)].tolist() == every[:].tolist()
        known = set(longer[: len(first)].tolist())
        assert longer[len(first)] in known or lanes > 1
        assert {*range(len(CORPUS))} == {*every[:].tolist()} != {*longer[: len(every) - 1].tolist()}


def test_sources_run_on_over_epochs_or_restart():
    layout = sk.Layout.tree({"a": 1000, "b": 1000})
    given = {"weights": {"a": 1, "b": 1}, "num_samples": 600, "lanes": 1}
    running, restarting = (of(("a", "b"), passes=passes, **given) for passes in ("run_on", "restart"))
    once, again = (
        np.unique(np.concatenate([sampler.order(layout, epoch)[:] for epoch in range(3)])).size
        for sampler in (running, restarting)
    )
    assert once == 1800
    assert again < 1700
    assert running.order(layout, 0) == running.order(layout, 0) != running.order(layout, 1)
    in_order = {name: sk.SequentialSampler() for name in ("a", "b")}
    in_sequence = of(("a", "b"), in_order, passes="restart", **given)
    assert max((in_sequence.order(layout, epoch)[:] % 1000).max() for epoch in range(5)) < 400
    assert in_sequence.order(layout, 4)[:].tolist() != in_sequence.order(layout, 5)[:].tolist()
    twice = of(("a",), weights={"a": 1}, num_samples=2000, passes="restart", lanes=1)
    passes = [twice.order(sk.Layout.tree({"a": 1000}), epoch)[:].reshape(2, 1000) for epoch in (0, 1)]
    assert (passes[0][1] != passes[1][0]).any()  # no pass of an epoch is one of another
    assert len(restarting.order(layout, 2**40 - 1)) == len(running.order(layout, 2**40)) == 600
    with pytest.raises(sk.ArgumentRangeError, match=r"below 2\^40"):
        restarting.order(layout, 2**40)


def test_orders_of_mixtures_are_equal_if_the_samplers_of_their_sources_are_made_alike():
    def order_of(sampler):
        return of(("web", "code"), {"web": sampler}, num_samples=90).order(CORPUS)

    assert order_of(sk.RandomSampler(seed=1)) == order_of(sk.RandomSampler(seed=1))
    assert order_of(sk.RandomSampler(seed=1)) != order_of(sk.RandomSampler(seed=2))
    # A user's sampler may depend on more than its arguments.
    own = sk.IterSampler([3, 4])
    assert order_of(own) == order_of(own) != order_of(sk.IterSampler([3, 4]))


def test_a_source_that_comes_once_an_epoch_is_read_again_where_passes_restart():
    once, weights = of(("old", "new"), stop="once"), dict.fromkeys(NAMES, 1)
    mixture = of(NAMES, {"books": once}, weights=weights, passes="restart", num_samples=400)
    ids = mixture.order(CORPUS, 3)[:]
    passes = ids[ids >= 190][:80].reshape(2, 40)
    assert np.sort(passes, axis=1).tolist() == [[*range(190, 230)]] * 2
    assert passes[0].tolist() != passes[1].tolist()


@pytest.mark.parametrize(
    ("weights", "arguments"),
    [
        ([3, 1], {"stop": "first"}),
        (None, {"stop": "all", "lanes": 3}),
        ([3, 1], {"num_samples": 500, "passes": "restart", "lanes": 2}),
        (None, {"stop": "once"}),
        (None, {"num_samples": 500, "shuffle": False}),
    ],
    ids=repr,
)
def test_a_list_of_weights_mixes_files_as_sources_with_their_numbers_for_names(weights, arguments):
    files, tree = sk.Layout([300, 100]), sk.Layout.tree({"0": 300, "1": 100})
    by_name = None if weights is None else dict(zip("01", weights, strict=True))
    mixture = of(("0", "1"), weights=by_name, seed=1, **arguments)
    listed = sk.MixtureSampler(weights, seed=1, **arguments)
    for epoch in (0, 1):
        expected = mixture.order(tree, epoch)[:].tolist()
        assert listed.order(files, epoch)[:].tolist() == expected
        assert listed.order(ConcatDataset([range(300), range(100)]), epoch)[:].tolist() == expected


def name_of(sampler: sk.Sampler) -> str:
    described = describe_chain(sampler)
    return f"{sampler.chain.algorithm} {seeds_of(sampler)} {described}"


def changed(value: Any, key: Any = None) -> list[Any]:
    """All that differ in one place from the plain data of a tree."""
    if isinstance(value, dict):
        return [{**value, name: other} for name, one in value.items() for other in changed(one, name)]
    if isinstance(value, list):
        places = range(len(value))
        return [[*value[:at], other, *value[at + 1 :]] for at in places for other in changed(value[at])]
    if value is None:
        return {"num_samples": [17], "lanes": [5], "web": [{"class": "RandomSampler"}]}.get(key, [])
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1 if isinstance(value, int) else value * (1 + 2**-50)]
    return {"shuffle": ["infile"], "passes": ["restart"], "stop": ["all"]}.get(key, [])


@given(st.integers(0, 2**63), st.integers(0, 9), st.booleans())
@settings(max_examples=3, deadline=None, derandomize=True)
def test_no_two_recipes_have_one_fingerprint(seed, inner, is_deep):
    chain = sk.SubsetRandomSampler([3, 1, 2], seed=inner)
    chain.add_child(sk.RandomSampler(seed=inner))
    books: Any = of(("old", "new"), {"old": chain}, weights={"old": 1, "new": 2}, seed=inner)
    if is_deep:
        books = of(("x", "y"), {"x": books}, weights={"x": 1, "y": 1}, seed=inner)
    code = sk.RandomSampler(shuffle="partial", seed=inner)
    given = {"code": code, "books": books}
    tree = of(NAMES, given, weights=dict.fromkeys(NAMES, 1), seed=seed)
    dealt = sk.DistributedSampler(shuffle=False)
    dealt.add_child(tree)
    swapped = of(NAMES, {"code": books, "books": code}, weights=tree.weights, seed=seed)
    recipes: list[Any] = [swapped, tree, dealt]
    for data in changed(plain(dealt, "")):
        with suppress(sk.errors.SamplerkitError):  # arguments that do not fit the others
            recipes.append(from_plain(data))
    # Recipes with equal text are equal, however they were made.
    distinct = {repr(recipe): name_of(recipe) for recipe in recipes}
    assert len(distinct) > 40
    assert len({*distinct.values()}) == len(distinct)
    again = of(NAMES[::-1], given, weights=dict.fromkeys(NAMES[::-1], 1), seed=seed)
    assert name_of(again) == name_of(tree)


def test_a_state_of_a_hundred_sources_stays_small():
    names = tuple(f"source {number}" for number in range(100))
    seeded = {name: sk.RandomSampler(seed=2**64 - 1 - number) for number, name in enumerate(names)}
    mixture = of(names, seeded, num_samples=1000)
    assert len(str(seeds_of(mixture))) + len(describe_chain(mixture)) < 2200


def distributed_later() -> sk.MixtureSampler:
    web = sk.RandomSampler()
    mixture = of(NAMES, {"web": web}, num_samples=10)
    web.add_child(sk.DistributedSampler(2, 0))
    return mixture


def in_itself() -> sk.MixtureSampler:
    mixture = of(NAMES)
    mixture.sources["web"] = mixture
    return mixture


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (lambda: of(NAMES, {"web": sk.DistributedSampler()}), sk.CompositionError, "sources.web"),
    (lambda: distributed_later().order(CORPUS)[:], sk.CompositionError, "source web"),
    (lambda: in_itself().order(CORPUS), sk.CompositionError, "MixtureSampler: is a source of itself"),
    (lambda: sk.MixtureSampler(weights={"web": 1}), sk.ArgumentTypeError, "name the sources too"),
    (lambda: in_itself().chain, sk.CompositionError, "MixtureSampler: is a source of itself"),
]


@pytest.mark.parametrize(("make", "error", "text"), REFUSED)
def test_what_cannot_be_mixed_is_refused_by_name(make, error, text):
    with pytest.raises(error) as refused:
        make()
    assert text in str(refused.value)


class Shrinking(sk.Sampler):
    """A source whose passes differ in length."""

    def draw(self, layout: sk.Layout, context: sk.Context) -> np.ndarray[Any, Any]:
        return np.arange(max(1, len(layout) - context.epoch))


def test_a_source_whose_passes_differ_in_length_is_named():
    with pytest.raises(sk.DatasetError, match=r"source web: .* in pass 1 than in the first, 150"):
        _ = of(NAMES, {"web": Shrinking()}, num_samples=1000).order(CORPUS)[:]


def test_a_mixture_resumes_on_other_ranks_after_a_source_has_ended():
    dataset = ConcatDataset([range(5), range(100, 140)])
    recipe = sk.MixtureSampler([1, 1], stop="all", seed=2)
    runs = [sk.Loader(dataset, recipe, batch_size=4, world=sk.World(2, rank)) for rank in range(2)]
    whole = recipe.undealt_order(dataset, constants=recipe.chain.constants(sk.World(2, 0)))[:].tolist()
    received = []
    for step in range(6):  # the source of five samples began again in the second step
        received += [run.ids(step).tolist() for run in runs]
    state = runs[0].state_dict(step=6)
    for rank in range(3):
        run = sk.Loader(dataset, recipe, batch_size=3, world=sk.World(3, rank))
        run.load_state_dict(state)
        received += [run.ids(step)[~run.pads(step)].tolist() for step in range(run.steps_left)]
    assert Counter(sum(received, [])) == Counter(whole)
