"""Mixtures over trees and files: their inverse, once, passes, seeds, refusals, and weights by tokens.

`test_removed_ids.py` and the golden vectors have what they read, draw by draw.
"""

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
from samplerkit.samplers.mixing import sources
from samplerkit.samplers.mixing.sources import EpochOrders
from tests.chains import under
from tests.numbers import Texts

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
    twice = of(("a",), num_samples=2000, passes="restart", lanes=1)
    passes = [twice.order(layout, epoch)[:].reshape(2, 1000) for epoch in (0, 1)]
    assert np.max(passes) < 1000  # the part "b" is no source
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
    chain = under(sk.SubsetRandomSampler([3, 1, 2], seed=inner), sk.RandomSampler(seed=inner))
    books: Any = of(("old", "new"), {"old": chain}, weights={"old": 1, "new": 2}, seed=inner)
    if is_deep:
        books = of(("x", "y"), {"x": books}, weights={"x": 1, "y": 1}, seed=inner)
    code = sk.RandomSampler(shuffle="partial", seed=inner)
    given = {"code": code, "books": books}
    tree = of(NAMES, given, weights=dict.fromkeys(NAMES, 1), seed=seed)
    dealt = under(sk.DistributedSampler(shuffle=False), tree)
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
    assert len(seeds_of(mixture)) == 1 + 32
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


WEIGHTS = {"web": 0.6, "code": 0.3, "books": 0.1}


def corpus(seed: int = 0) -> sk.TreeDataset:
    """Three sources whose documents are of very different lengths."""
    rng = np.random.default_rng(seed)
    means = {"web": (900, 5000), "code": (30, 4000), "books": (70_000, 300)}
    return sk.TreeDataset({name: Texts(rng.poisson(mean, size) + 1) for name, (mean, size) in means.items()})


def shares_of_tokens(data: Any, ids: np.ndarray) -> np.ndarray:
    part = np.searchsorted(data.layout.part_starts, ids, side="right") - 1
    tokens = np.bincount(part, weights=data.lengths[ids], minlength=len(data.layout.parts))
    return tokens / tokens.sum()


def mixture(**more: Any) -> sk.MixtureSampler:
    return sk.MixtureSampler(
        dict.fromkeys(WEIGHTS), **{"weights": WEIGHTS, "by": "tokens", "seed": 3, **more}
    )


def test_shares_of_tokens_are_weights_divided_by_the_mean_lengths():
    data = corpus()
    means = {name: part.lengths.sum() / len(part) for name, part in data.parts.items()}
    divided = {name: float(share / means[name]) for name, share in WEIGHTS.items()}
    by_samples = mixture(num_samples=5000, by="samples", weights=divided)
    assert (mixture(num_samples=5000).order(data, 3)[:] == by_samples.order(data, 3)[:]).all()


def test_a_source_that_reads_a_few_samples_has_their_mean_length():
    data = sk.TreeDataset({"a": Texts([1000] * 90 + [10] * 10), "b": Texts([10] * 100)})
    few = {"a": sk.SubsetRandomSampler(range(90, 100)), "b": None}
    drawn = sk.MixtureSampler(few, 4096, weights={"a": 1, "b": 1}, by="tokens", lanes=1)
    assert (drawn.order(data)[:] < 100).sum() == 2048


def test_a_nested_mixture_has_the_mean_length_of_its_draws():
    inner = sk.TreeDataset({"old": Texts([100] * 50), "new": Texts([300] * 50)})
    data = sk.TreeDataset({"web": Texts([200] * 100), "books": inner})
    books = sk.MixtureSampler({"old": None, "new": None}, weights={"old": 1, "new": 1})
    drawn = sk.MixtureSampler(
        {"web": None, "books": books}, 4096, weights={"web": 1, "books": 1}, by="tokens", lanes=1
    )
    assert (drawn.order(data)[:] < 100).sum() == 2048


def test_files_of_a_list_of_weights_have_the_lengths_of_the_dataset():
    class Joined(Texts):
        layout = sk.Layout([50, 50])

    data = Joined([30] * 50 + [10] * 50)
    drawn = sk.MixtureSampler([1, 1], 4096, by="tokens", lanes=1).order(data)[:]
    assert (drawn < 50).sum() == 1024


def test_weights_of_an_edit_are_shares_of_tokens_too():
    data = corpus()
    later = {"web": 0.2, "code": 0.2, "books": 0.6}
    ledger = sk.Ledger(mixture(num_samples=100_000, lanes=1), [sk.Edit(at=40_000, weights=later)])
    ids = ledger.order(data)[:]
    np.testing.assert_allclose(shares_of_tokens(data, ids[:40_000]), list(WEIGHTS.values()), atol=0.02)
    np.testing.assert_allclose(shares_of_tokens(data, ids[40_000:]), list(later.values()), atol=0.02)


def test_a_state_notices_other_lengths_and_any_position_is_random_access():
    loader = sk.Loader(corpus(), mixture(num_samples=600), batch_size=8, collate_fn=len)
    state = loader.state_dict(step=5)
    sk.Loader(corpus(), mixture(num_samples=600), batch_size=8).load_state_dict(state)
    with pytest.raises(sk.StateError, match="dataset"):
        sk.Loader(corpus(seed=1), mixture(num_samples=600), batch_size=8).load_state_dict(state)
    order = mixture(num_samples=600).order(corpus())
    at = np.random.default_rng(0).integers(0, 600, 50)
    assert (order[at] == order[:][at]).all()


def test_lengths_that_are_missing_or_no_numbers_of_tokens_are_refused():
    parts = {"web": range(5), "code": Texts([3, 4]), "books": Texts([1])}
    with pytest.raises(sk.DatasetError, match=r"a source has no lengths.*web.*divide each weight"):
        mixture(num_samples=9).order(sk.TreeDataset(parts))
    for lengths, text in (([0] * 5, "without any"), ([-1] * 5, "must be in"), ([0.5] * 5, "whole numbers")):
        with pytest.raises(sk.DatasetError, match=text):
            mixture(num_samples=9).order(sk.TreeDataset({**parts, "web": Texts(lengths)}))
    above = under(mixture(num_samples=9), sk.SequentialSampler())
    with pytest.raises(sk.CompositionError, match="if the mixture has a child sampler"):
        above.order(corpus())


def test_the_argument_by_is_described_only_if_it_is_tokens():
    assert "by" not in mixture(by="samples").arguments()
    assert mixture().arguments()["by"] == "tokens"


def test_the_first_pass_over_a_part_of_a_source_is_added_up_once_for_all_epochs(monkeypatch):
    added_up = []
    mean = sources._mean
    monkeypatch.setattr(sources, "_mean", lambda *given: added_up.append(given) or mean(*given))
    mix = sk.MixtureSampler(
        {"web": sk.SubsetSampler(range(10)), "code": None}, 40, weights={"web": 0.5, "code": 0.5}, by="tokens"
    )
    data = sk.TreeDataset({"web": Texts(range(1, 21)), "code": Texts(range(1, 31))})
    first = [mix.order(data, epoch)[:].tolist() for epoch in range(3)]
    assert len(added_up) == 1
    again = sk.MixtureSampler(mix.sources, 40, weights=mix.weights, by="tokens")
    assert [again.order(data, epoch)[:].tolist() for epoch in range(3)] == first
