"""The plans of the rule batches-1 are the same as when it was released."""

import json

import pytest

import samplerkit as sk
from samplerkit.batches import cutting
from samplerkit.batches.packs.pack_plan import PackPlan
from samplerkit.batches.recipe import RULE
from samplerkit.batches.set_plan import StaticPlan
from samplerkit.batches.window_plan import WindowPlan
from tests.batches.golden_plans import FILES, evaluated, planned
from tests.order.golden_vectors import recorded

FROZEN = [recorded(file) for file in FILES]
CASES = [case for frozen in FROZEN for case in frozen["plans"]]


def is_as_recorded(case):
    return json.loads(json.dumps(evaluated(case)))["batches"] == case["batches"]


def test_the_files_are_of_this_rule_and_say_why_they_must_never_change():
    assert {frozen["rule"] for frozen in FROZEN} == {RULE} == {"batches-1"}
    assert all("must never change" in frozen["why"] for frozen in FROZEN)


def test_default_windows_keep_their_sizes():
    lengths = [1 + number * 7919 % 97 for number in range(50_000)]
    for recipe, windows in ((sk.TokenBatches, [4096, 16384, 65536]), (sk.PackBatches, [16384, 16384, 65536])):
        plans = (
            recipe(512, lengths=lengths, abreast=abreast).plan(sk.RandomSampler(replacement=True), 50_000)
            for abreast in (1, 64, 256)
        )
        assert [plan.window for plan in plans] == windows


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['recipe']} {case['arguments']}"[:60])
def test_plans_are_as_recorded(case):
    assert is_as_recorded(case)


def test_every_recipe_and_both_kinds_of_plans_are_recorded():
    assert {case["recipe"] for case in CASES} == {name for name in sk.__all__ if name.endswith("Batches")}
    kinds = {(case["recipe"], type(planned(case))) for case in CASES}
    assert {("TokenBatches", StaticPlan), ("TokenBatches", WindowPlan)} <= kinds
    assert {("PackBatches", PackPlan), ("PackBatches", WindowPlan)} <= kinds


def test_another_order_of_groups_changes_the_plans(monkeypatch):
    plans = FROZEN[0]["plans"]
    monkeypatch.setattr(cutting.Groups, "forward", lambda self, numbers: numbers)
    assert sum(not is_as_recorded(case) for case in plans) > len(plans) // 2
