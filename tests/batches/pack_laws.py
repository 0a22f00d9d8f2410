"""The laws of packs, checked by what a plan gives: each kept token once, limits kept, inverses, resume."""

from __future__ import annotations

import numpy as np

from samplerkit.batches.packs import PackBatches
from samplerkit.batches.plan import BatchPlan
from samplerkit.batches.recipe import Plans
from samplerkit.batches.segments import Packs

Told = tuple[list[int], list[int], list[int], list[int]]


def told(batch: Packs) -> Told:
    """A batch of packs as lists."""
    return batch.ids.tolist(), batch.starts.tolist(), batch.lengths.tolist(), batch.rows.tolist()


def read(plan: BatchPlan) -> list[Told]:
    """All batches of a plan, one by one."""
    return [told(plan[number]) for number in range(len(plan))]


def require_packs(
    plan: BatchPlan, recipe: PackBatches, expected: list[int], lengths: list[int]
) -> list[Told]:
    """Each token of each position of the order stands in exactly one segment, and no pack is above its limit.

    Args:
        plan: of the recipe.
        recipe: how packs are made.
        expected: the ids of the order.
        lengths: of all samples.

    Returns:
        All batches, one by one.
    """
    batches = read(plan)
    numbers = np.arange(len(batches))
    assert [told(batch) for batch in plan] == batches
    assert [told(batch) for batch in plan.batches(numbers[::-1])] == batches[::-1]
    assert [plan.has(number) for number in range(-1, len(batches) + 1)] == [False, *map(bool, batches), False]
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
    for several in parts.values():
        end = 0
        for start, id, size in sorted(several):
            assert (start, id) == (end, several[0][1])
            end = start + size
        id = several[0][1]
        assert end == (min(lengths[id], recipe.seq_len) if recipe.long == "truncate" else lengths[id])
        drawn.append(id)
    kept = [id for id in expected if 0 < lengths[id] <= longest(recipe)]
    assert sorted(drawn) == sorted(kept)
    assert plan.dropped == len(expected) - len(kept)
    assert all(0 <= draw < plan.num_draws for draw in parts)
    return batches


def longest(recipe: PackBatches) -> int:
    return recipe.seq_len if recipe.long == "drop" else 1 << 40


def require_inverse(plan: BatchPlan, size: int, batches: list[Told] | None = None) -> None:
    """`batch_of` finds each batch in which a part of a sample stands, once, and no other."""
    batches = read(plan) if batches is None else batches
    for id in range(-1, size + 1):
        assert plan.batch_of(id).tolist() == [k for k, batch in enumerate(batches) if id in batch[0]]
    which, numbers = plan.batch_of(list(range(max(1, size))))
    assert [*zip(which.tolist(), numbers.tolist(), strict=True)] == sorted(
        (id, number) for number, batch in enumerate(batches) for id in {*batch[0]}
    )


def require_resume(plans: Plans, epoch: int, batches: list[Told] | None = None) -> int:
    """A plan made from the state's pair alone goes on with the same batches, from every batch on."""
    plan = plans.plan(epoch)
    batches = read(plan) if batches is None else batches
    for number in range(len(batches) + 1):
        resumed = plans.plan(epoch, known=plan.window_of(number))
        seen = []
        while resumed.has(number + len(seen)):
            seen.append(told(resumed[number + len(seen)]))
        assert seen == batches[number:]
    return len(batches) + 1


def best_fit(sizes: list[int], capacity: int) -> list[list[int]]:
    """List best-fit decreasing: of items from the largest on, those in each bin, in the order they came."""
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
