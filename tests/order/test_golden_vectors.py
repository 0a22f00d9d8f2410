"""The orders of the algorithm samplerkit-1 are what they were when it was released."""

import pytest

import samplerkit as sk
from samplerkit.order import permutation
from samplerkit.order.keys import ALGORITHM
from tests.order.golden_vectors import EVALUATE, permuted, recorded

FROZEN = recorded()


def test_the_file_is_of_this_algorithm_and_says_why_it_must_never_change():
    assert FROZEN["algorithm"] == ALGORITHM == "samplerkit-1"
    assert "must never change" in FROZEN["why"]


@pytest.mark.parametrize("section", EVALUATE)
def test_orders_are_as_recorded(section):
    for case in FROZEN[section]:
        assert {**case, **EVALUATE[section](case)} == case


def test_every_mode_and_every_sampler_is_recorded():
    links = [link for case in FROZEN["orders"] for link in case["chain"]]
    modes = {link["arguments"].get("shuffle") for link in links}
    assert {mode.value for mode in sk.Shuffle} <= modes
    classes = {name: getattr(sk, name) for name in sk.__all__ if name.endswith("Sampler")}
    ours = {name for name, value in classes.items() if issubclass(value, sk.Sampler)}
    assert {link["sampler"] for link in links} == ours - {"Sampler"}


def test_a_changed_constant_shows(monkeypatch):
    large = [case for case in FROZEN["permutations"] if case["size"] > permutation.TABLE_LIMIT]
    monkeypatch.setattr(permutation, "ROUNDS", 7)
    assert all(permuted(case)["values"] != case["values"] for case in large)
