"""Every legal chain of samplers has its figures, whatever it draws from."""

from __future__ import annotations

import math

from hypothesis import given, settings

from samplerkit.errors import ArgumentRangeError
from samplerkit.inspect.quality import effective_batch, label_mixing, mixing
from samplerkit.testing.strategies import chains


@settings(max_examples=150, deadline=None)
@given(case=chains())
def test_the_figures_of_any_chain_are_numbers_and_not_negative(case):
    sampler, world = case.sampler(), case.world(0)
    size = len(case.layout)
    try:
        found = mixing(sampler, case.dataset, 3, world=world, epochs=3, windows=3)
    except ArgumentRangeError as error:
        # Fewer than four samples tell nothing.
        assert error.value < 4  # noqa: PT017  # it is one of two right outcomes
        return
    assert math.isfinite(found.value)
    assert found.value >= 0
    assert found.standard_error >= 0
    assert found.value == min(part.value for part in found.parts)
    if size < 2:
        return
    labels = [number % 2 for number in range(size)]
    for figure in (label_mixing, effective_batch):
        value = figure(sampler, case.dataset, 3, labels, world=world, epochs=3, windows=3).value
        assert math.isfinite(value)
        assert value >= 0
