"""The laws of a plan, checked by what it gives: each position once, limits kept, inverses, resume, steps."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np

from samplerkit.batches.plan import BatchPlan
from samplerkit.batches.recipe import Plans
from samplerkit.loading.delivery import Delivery

TAILS = ("pad", "drop", "ragged")


def read(plan: BatchPlan) -> list[list[int]]:
    """All batches of a plan, one by one."""
    return [plan[number].tolist() for number in range(len(plan))]


def require_access(plan: BatchPlan) -> list[list[int]]:
    """Every way to ask gives the same; no batch is empty, and no draw comes twice."""
    batches = read(plan)
    numbers = np.arange(len(batches))
    assert [batch.tolist() for batch in plan] == batches
    assert [batch.tolist() for batch in plan.batches(numbers[::-1])] == batches[::-1]
    assert all(batches)
    draws = [plan.positions(number).tolist() for number in numbers]
    assert [len(draw) for draw in draws] == [len(batch) for batch in batches]
    flat = [position for draw in draws for position in draw]
    assert len(flat) == len({*flat})
    assert [plan.has(number) for number in range(-1, len(batches) + 1)] == [False, *map(bool, batches), False]
    return batches


def require_each_once(plan: BatchPlan, expected: list[int]) -> None:
    """Each position of the order stands in exactly one batch, but for those that are counted as dropped."""
    batches = require_access(plan)
    left = Counter(expected)
    left.subtract(id for batch in batches for id in batch)
    assert all(count >= 0 for count in left.values())
    assert sum(left.values()) == plan.dropped


def require_inverse(plan: BatchPlan, ids: range) -> None:
    """`batch_of` finds each batch in which a sample stands, and no other."""
    batches = read(plan)
    for id in [-1, *ids, ids.stop]:
        where = [number for number, batch in enumerate(batches) for other in batch if other == id]
        assert plan.batch_of(id).tolist() == where
    which, numbers = plan.batch_of(list(ids))
    assert [(ids[w], k) for w, k in zip(which, numbers, strict=True)] == sorted(
        (id, number) for number, batch in enumerate(batches) for id in batch
    )


def require_limits(plan: BatchPlan, budget: int) -> None:
    """No batch is over the budget, in padded tokens."""
    for number in range(len(plan)):
        count, *longest = plan.shape(number)
        assert count * sum(longest) <= budget
        assert count * sum(longest) == plan.padded_tokens([number])[0]
        assert plan.tokens([number])[0] <= count * sum(longest)


def require_resume(plans: Plans, epoch: int) -> int:
    """A plan made from the state's pair alone goes on with the same batches, from every batch on."""
    plan = plans.plan(epoch)
    batches = read(plan)
    for number in range(len(batches) + 1):
        resumed = plans.plan(epoch, known=plan.window_of(number))
        seen = []
        while resumed.has(number + len(seen)):
            seen.append(resumed[number + len(seen)].tolist())
        assert seen == batches[number:]
    return len(batches) + 1


def require_delivery(plan: BatchPlan, ranks: range) -> int:
    """Dealt like cards, with stops after any step and two resizes: nothing is lost, nothing comes twice."""
    count = len(plan)
    cases = 0
    for tail, first, second, third in product(TAILS, ranks, ranks, ranks):
        for stop in range(count // first + 1):
            middle = Delivery(count, min(count, stop * first), second, 1, tail)
            for more in range(min(2, middle.job_steps) + 1):
                begun = Delivery(count, middle.position_after(more), third, 1, tail)
                seen = [*range(middle.start), *dealt(middle, more), *dealt(begun, begun.job_steps)]
                real = [number for number in seen if number < count]
                assert len(real) == len({*real})
                lost = count - len(real)
                assert lost < third if tail == "drop" else lost == 0
                if tail != "ragged":
                    assert len({begun.steps(rank) for rank in range(third)}) == 1
                cases += 1
    return cases


def dealt(delivery: Delivery, steps: int) -> list[int]:
    """The numbers that all ranks read in the first steps."""
    return [
        number
        for step in range(steps)
        for rank in range(delivery.num_shards)
        if step < delivery.steps(rank)
        for number in delivery.positions(rank, step).tolist()
    ]
