"""Random runs with batches: nothing is lost or repeated, whatever the recipe, the lengths and the moves.

These are samples; `python -m tests.campaigns.batch_runs 10000` makes so many runs.
"""

from __future__ import annotations

from dataclasses import fields

import pytest

import samplerkit as sk
from tests.campaigns.batch_runs.recipes import OPTIONS
from tests.campaigns.batch_runs.runs import KINDS, runs_at_random

ALWAYS = {"max_tokens", "seq_len", "boundaries", "batch_size", "num_class", "num_val"}
BESIDE = {"lengths", "keys", "labels", "class_column"}


@pytest.mark.parametrize("seeds", [range(50), pytest.param(range(50, 300), marks=pytest.mark.campaign)])
def test_random_runs_with_batches_lose_and_repeat_nothing(seeds):
    runs = runs_at_random(seeds)
    print(f"{runs.kinds.total()} runs, {runs.steps:,} steps, {len(runs.wrong)} wrong")
    assert runs.wrong == []
    assert {*runs.kinds} == {*KINDS}
    assert runs.steps > 5 * len(seeds)


@pytest.mark.parametrize(
    ("recipe", "kind"),
    [
        (sk.TokenBatches, "tokens"),
        (sk.PackBatches, "packs"),
        (sk.BucketBatches, "buckets"),
        (sk.ClassBatches, "classes"),
    ],
)
def test_random_runs_draw_every_option_of_every_recipe(recipe, kind):
    assert {field.name for field in fields(recipe)} == {*OPTIONS[kind]} | (
        (ALWAYS | BESIDE) & {field.name for field in fields(recipe)}
    )
