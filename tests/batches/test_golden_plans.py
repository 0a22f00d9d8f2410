"""The plans of the rule batches-1 are what they were when it was released."""

from __future__ import annotations

import json

import pytest

import samplerkit as sk
from samplerkit.batches import cutting
from samplerkit.batches.packs.pack_plan import PackPlan
from samplerkit.batches.recipe import RULE
from samplerkit.batches.set_plan import StaticPlan
from samplerkit.batches.window_plan import WindowPlan
from tests.batches.golden_plans import FILES, evaluated, planned, recorded, write

FROZEN = {name: recorded(name) for name in FILES}
CASES = [case for frozen in FROZEN.values() for case in frozen["plans"]]


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_of_this_rule_and_says_why_it_must_never_change(name):
    assert FROZEN[name]["rule"] == RULE == "batches-1"
    assert "must never change" in FROZEN[name]["why"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['recipe']} {case['arguments']}"[:60])
def test_plans_are_as_recorded(case):
    assert json.loads(json.dumps(evaluated(case))) == case["batches"]


def test_every_recipe_and_both_evaluators_are_recorded():
    assert {case["recipe"] for case in CASES} == {name for name in sk.__all__ if name.endswith("Batches")}
    kinds = {(case["recipe"], type(planned(case))) for case in CASES}
    assert {("TokenBatches", StaticPlan), ("TokenBatches", WindowPlan)} <= kinds
    assert {("PackBatches", PackPlan), ("PackBatches", WindowPlan)} <= kinds


@pytest.mark.parametrize("name", FILES)
def test_what_is_recorded_is_what_the_module_names(name):
    named = json.loads(json.dumps(list(FILES[name]())))
    assert [{**case, "batches": None} for case in FROZEN[name]["plans"]] == [
        {**case, "batches": None} for case in named
    ]


def test_groups_in_another_order_show(monkeypatch):
    plans = FROZEN["golden_plans.json"]["plans"]
    monkeypatch.setattr(cutting.Groups, "forward", lambda self, numbers: numbers)
    changed = [case for case in plans if evaluated(case) != case["batches"]]
    assert len(changed) > len(plans) // 2


@pytest.mark.parametrize("name", FILES)
def test_the_writer_refuses_to_overwrite(name, capsys):
    assert write(name) == 1
    assert "frozen" in capsys.readouterr().err
    assert recorded(name) == FROZEN[name]
