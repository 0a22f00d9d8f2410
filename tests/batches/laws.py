"""The laws of a plan: each position once, limits, inverses, resume.

The deal of batches does not depend on the plan: see `tests/loading/test_batches_by_values.py`.
"""

from collections import Counter
from typing import Any

import numpy as np

from samplerkit.batches.packs.pack_batches import PackBatches
from samplerkit.batches.plan import BatchPlan
from samplerkit.batches.recipe import Plans
from samplerkit.batches.segments import Packs


def listed(batch: Any) -> Any:
    """A batch as lists: its ids, or ids, starts, lengths and rows of its packs."""
    if isinstance(batch, Packs):
        return batch.ids.tolist(), batch.starts.tolist(), batch.lengths.tolist(), batch.rows.tolist()
    return batch.tolist()


def read(plan: BatchPlan) -> list[Any]:
    """All batches of a plan, one by one."""
    return [listed(plan[number]) for number in range(len(plan))]


def require_same(plan: BatchPlan) -> list[Any]:
    """Checks that every way to read batches returns the same ones."""
    batches = read(plan)
    assert [*map(listed, plan)] == batches
    assert [*map(listed, plan.batches(np.arange(len(batches))[::-1]))] == batches[::-1]
    assert [plan.has(number) for number in range(-1, len(batches) + 1)] == [False, *map(bool, batches), False]
    return batches


def require_access(plan: BatchPlan) -> list[list[int]]:
    """Checks also that no batch is empty, and that no draw occurs twice."""
    batches = require_same(plan)
    numbers = np.arange(len(batches))
    assert all(batches)
    draws = [plan.positions(number).tolist() for number in numbers]
    assert [len(draw) for draw in draws] == [len(batch) for batch in batches]
    flat = [position for draw in draws for position in draw]
    assert len(flat) == len({*flat})
    return batches


def require_each_once(plan: BatchPlan, expected: list[int]) -> None:
    """Checks that each position of the order is in exactly one batch, or counted as dropped."""
    batches = require_access(plan)
    missing = Counter(expected)
    missing.subtract(id for batch in batches for id in batch)
    assert all(count >= 0 for count in missing.values())
    assert sum(missing.values()) == plan.dropped


def require_inverse(plan: BatchPlan, size: int) -> None:
    """Checks that `batch_of` finds each batch of a sample: once for each of its places, or in packs once for
    all of its parts."""
    in_batch = [sorted({*batch[0]}) if isinstance(batch, tuple) else batch for batch in read(plan)]
    for id in range(-1, size + 1):
        assert plan.batch_of(id).tolist() == [
            number for number, ids in enumerate(in_batch) for other in ids if other == id
        ]
    which, numbers = plan.batch_of(list(range(max(1, size))))
    assert [*zip(which.tolist(), numbers.tolist(), strict=True)] == sorted(
        (id, number) for number, ids in enumerate(in_batch) for id in ids
    )


def require_limits(plan: BatchPlan, budget: int) -> None:
    """Checks that no batch has more padded tokens than the budget."""
    for number in range(len(plan)):
        count, *longest = plan.shape(number)
        assert count * sum(longest) <= budget
        assert count * sum(longest) == plan.padded_tokens([number])[0]
        assert plan.tokens([number])[0] <= count * sum(longest)


def require_resume(plans: Plans, epoch: int) -> None:
    """Checks that a plan that begins at any batch, by `window_of`, continues with the same batches."""
    plan = plans.plan(epoch)
    batches = read(plan)
    for number in range(len(batches) + 1):
        resumed = plans.plan(epoch, known=plan.window_of(number))
        seen = []
        while resumed.has(number + len(seen)):
            seen.append(listed(resumed[number + len(seen)]))
        assert seen == batches[number:]


def require_packs(plan: BatchPlan, expected: list[int], recipe: PackBatches, lengths: list[int]) -> None:
    """Checks that each token of the order is in exactly one segment, and that no pack is too long.

    Args:
        plan: of the recipe.
        expected: the ids of the order.
        recipe: that the plan is of.
        lengths: of all samples.
    """
    batches = require_same(plan)
    parts: dict[int, list[tuple[int, int, int]]] = {}
    for number, (ids, starts, sizes, rows) in enumerate(batches):
        padded = [-(-size // recipe.length_multiple) * recipe.length_multiple for size in sizes]
        assert all(size > 0 for size in sizes)
        assert np.bincount(rows, weights=padded).max() <= recipe.seq_len
        assert rows == sorted(rows)
        assert {*rows} == {*range(rows[-1] + 1)}
        assert rows[-1] < recipe.packs
        assert plan.shape(number) == (rows[-1] + 1, recipe.seq_len)
        assert plan.tokens([number])[0] == sum(sizes)
        assert plan.padded_tokens([number])[0] == (rows[-1] + 1) * recipe.seq_len
        for draw, *part in zip(plan.positions(number).tolist(), ids, starts, sizes, strict=True):
            parts.setdefault(draw, []).append((part[1], part[0], part[2]))
    drawn = []
    for segments in parts.values():
        end, id = 0, segments[0][1]
        for start, id_of_segment, size in sorted(segments):
            assert (start, id_of_segment) == (end, id)
            end = start + size
        assert end == (min(lengths[id], recipe.seq_len) if recipe.long == "truncate" else lengths[id])
        drawn.append(id)
    kept = [id for id in expected if 0 < lengths[id] <= longest(recipe)]
    assert sorted(drawn) == sorted(kept)
    assert plan.dropped == len(expected) - len(kept)
    assert all(0 <= draw < plan.num_draws for draw in parts)


def planned(case: Any, recipe: Any) -> tuple[BatchPlan, list[int]]:
    """The plan of a generated chain, after checks of its inverse and of resume, and the ids of the order."""
    sampler, constants = case.sampler(), case.constants()
    plans = recipe.over(sampler, case.dataset, constants=constants)
    plan = plans.plan(case.epoch)
    if len(case.layout):
        require_inverse(plan, len(case.layout))
    require_resume(plans, case.epoch)
    return plan, list(sampler.undealt_order(case.dataset, case.epoch, constants=constants))


def longest(recipe: PackBatches) -> int:
    return recipe.seq_len if recipe.long == "drop" else 1 << 40


def best_fit(sizes: list[int], capacity: int) -> list[list[int]]:
    """Best-fit decreasing over a list of descending sizes: returns the items of each bin."""
    spaces: list[int] = []
    bins: list[list[int]] = []
    for item, size in enumerate(sizes):
        fitting = [number for number, space in enumerate(spaces) if space >= size]
        if not fitting:
            fitting = [len(bins)]
            spaces.append(capacity)
            bins.append([])
        best = min(fitting, key=lambda number: (spaces[number], number))
        spaces[best] -= size
        bins[best].append(item)
    return bins
