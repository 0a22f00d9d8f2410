"""The plans of the rule batches-1 are what they were when it was released."""

from __future__ import annotations

import json

import pytest

import samplerkit as sk
from samplerkit.batches import cuts
from samplerkit.batches.pack_plan import PackPlan
from samplerkit.batches.recipe import RULE
from samplerkit.batches.static import StaticPlan
from samplerkit.batches.windows import WindowPlan
from tests.batches import golden_packs, golden_plans
from tests.batches.golden_plans import evaluated, planned, recorded

FROZEN = recorded()
PACKS = golden_packs.recorded()


def test_the_file_is_of_this_rule_and_says_why_it_must_never_change():
    assert FROZEN["rule"] == RULE == "batches-1"
    assert "must never change" in FROZEN["why"]


@pytest.mark.parametrize("case", FROZEN["plans"], ids=lambda case: case["recipe"])
def test_plans_are_as_recorded(case):
    assert evaluated(case) == case["batches"]


def test_every_recipe_and_both_evaluators_are_recorded():
    assert {case["recipe"] for frozen in (FROZEN, PACKS) for case in frozen["plans"]} == {
        name for name in sk.__all__ if name.endswith("Batches")
    }
    kinds = {type(planned(case)) for case in FROZEN["plans"]}
    assert {StaticPlan, WindowPlan} <= kinds
    assert {type(golden_packs.planned(case)) for case in PACKS["plans"]} == {PackPlan, WindowPlan}


@pytest.mark.parametrize("case", PACKS["plans"], ids=lambda case: str(case["arguments"]))
def test_packs_are_as_recorded(case):
    assert [list(batch) for batch in golden_packs.evaluated(case)] == case["batches"]


def test_what_is_recorded_is_what_the_module_names():
    for module, frozen in ((golden_plans, FROZEN), (golden_packs, PACKS)):
        named = json.loads(json.dumps(list(module.cases())))
        assert [{**case, "batches": None} for case in frozen["plans"]] == [
            {**case, "batches": None} for case in named
        ]


def test_groups_in_another_order_show(monkeypatch):
    monkeypatch.setattr(cuts.Groups, "forward", lambda self, numbers: numbers)
    changed = [case for case in FROZEN["plans"] if evaluated(case) != case["batches"]]
    assert len(changed) > len(FROZEN["plans"]) // 2


@pytest.mark.parametrize("module", [golden_plans, golden_packs])
def test_the_writer_refuses_to_overwrite(module, capsys):
    before = module.FILE.read_bytes()
    assert module.main() == 1
    assert "frozen" in capsys.readouterr().err
    assert module.FILE.read_bytes() == before
