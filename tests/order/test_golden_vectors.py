"""The orders of the algorithm samplerkit-1 are what they were when it was released."""

from __future__ import annotations

import json

import pytest

import samplerkit as sk
from samplerkit.order import permutation
from samplerkit.order.keys import ALGORITHM
from tests.order import golden_vectors
from tests.order.golden_vectors import ordered, permuted, recorded, source_draws, trees

FROZEN = recorded()


def test_the_file_is_of_this_algorithm_and_says_why_it_must_never_change():
    assert FROZEN["algorithm"] == ALGORITHM == "samplerkit-1"
    assert "must never change" in FROZEN["why"]


@pytest.mark.parametrize("case", FROZEN["permutations"], ids=lambda case: f"{case['key']}-{case['size']}")
def test_permutations_are_as_recorded(case):
    assert permuted(case) == case["values"]


@pytest.mark.parametrize("case", FROZEN["orders"], ids=lambda case: case["chain"][-1]["sampler"])
def test_orders_are_as_recorded(case):
    assert ordered(case) == case["ids"]


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
    assert all(permuted(case) != case["values"] for case in large)


@pytest.mark.parametrize(("section", "cases"), [("source draws", source_draws), ("trees", trees)])
def test_draws_of_sources_and_mixtures_of_trees_are_as_recorded(section, cases):
    assert json.loads(json.dumps(list(cases()))) == FROZEN[section]


def test_the_writer_writes_what_is_recorded_and_refuses_to_overwrite(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(golden_vectors, "FILE", tmp_path / "golden_vectors.json")
    assert golden_vectors.main() == 0
    written = golden_vectors.FILE.read_text(encoding="utf-8")
    assert json.loads(written) == FROZEN
    assert golden_vectors.main() == 1
    assert "frozen" in capsys.readouterr().err
    assert golden_vectors.FILE.read_text(encoding="utf-8") == written
