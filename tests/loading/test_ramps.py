"""Batches that grow while a run reads: steps of several sizes, dealt, located and resumed."""

from __future__ import annotations

from itertools import zip_longest

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.inspect.time_machine import occurrences_of
from samplerkit.loading.run.delivery import Delivery
from tests.loading.test_edits import ranks_of


def counted_steps(total, start, size, ramp, tail):
    """The positions of each step, one after another: the place where a step begins decides its size."""
    steps, position = [], start
    while position < total:
        step_size = next((changed for place, changed in reversed(ramp) if place <= position), size)
        if tail == "drop" and position + step_size > total:
            break
        steps.append(list(range(position, min(total, position + step_size))))
        position += step_size
    return steps


def random_delivery(number):
    rng = np.random.default_rng(number)
    ranks, total = int(rng.integers(1, 5)), int(rng.integers(1, 90))
    places = np.sort(rng.integers(0, 90, rng.integers(0, 4))).tolist()
    ramp = tuple((place, ranks * int(rng.integers(1, 5))) for place in places)
    return Delivery(
        total=total,
        start=int(rng.integers(0, total)),
        num_shards=ranks,
        batch_size=int(rng.integers(1, 5)),
        tail=("pad", "drop", "ragged")[number % 3],
        rotation=int(rng.integers(0, ranks)),
        lanes=int(rng.integers(1, 6)),
        ramp=ramp,
    )


def test_steps_of_several_sizes_match_a_plain_count_and_each_place_is_located():
    cases = 400
    for number in range(cases):
        delivery = random_delivery(number)
        total, ranks = delivery.size, delivery.num_shards
        expected = counted_steps(
            total, delivery.start, ranks * delivery.batch_size, delivery.ramp, delivery.tail
        )
        assert delivery.job_steps == len(expected), number
        ends = [delivery.start, *(step[-1] + 1 for step in expected)]
        assert [delivery.position_after(steps) for steps in range(len(ends))] == ends
        seen = {}
        for rank in range(ranks):
            steps = delivery.steps(rank)
            assert [delivery.has(rank, step) for step in range(-1, len(expected) + 1)] == [
                0 <= step < steps for step in range(-1, len(expected) + 1)
            ]
            for step in range(steps):
                for place, position in enumerate(delivery.positions(rank, step).tolist()):
                    seen[position] = (rank, step, place)
        for step, positions in enumerate(expected):
            assert {seen[position][1] for position in positions} == {step}, number
        pads = set(seen) - {position for step in expected for position in step}
        assert len(pads) == (-(total - delivery.start) % ranks if delivery.tail == "pad" else 0)
        times = occurrences_of(0, delivery, np.arange(total))
        assert {time.position: (time.rank, time.step, time.place) for time in times} == seen, number
    print(f"{cases} cases")


RAMP = [sk.Edit(at=at, global_batch=size) for at, size in ((16, 8), (50, 24), (100, 12), (130, 4))]


def test_a_run_whose_batches_grow_is_resumed_on_other_ranks_with_the_same_steps():
    chain = sk.RandomSampler(seed=5)
    order = np.concatenate([chain.order(100, epoch) for epoch in range(2)]).tolist()
    expected = [
        sorted(order[100 * epoch + position] for position in step)
        for epoch, ramp in enumerate([((16, 8), (50, 24)), ((0, 12), (30, 4))])
        for step in counted_steps(100, 0, 4, ramp, "ragged")
    ]
    state, steps = None, []
    for ranks, count in ((2, 3), (4, 2), (1, 4), (2, 2), (4, 99)):
        loaders = ranks_of(
            range(100), sk.Ledger(chain, RAMP), ranks, state, batch_size=4 // ranks, tail="ragged"
        )
        while count and len(steps) < len(expected):
            for batches in zip_longest(*map(iter, loaders)):
                steps.append(sorted(id for batch in batches if batch is not None for id in batch.tolist()))
                count -= 1
                if not count:
                    break
        state = loaders[0].state_dict()
    assert steps == expected


def test_a_global_batch_that_the_ranks_do_not_divide_is_refused_when_edited_and_when_loaded():
    edits = [sk.Edit(at=10, global_batch=6), sk.Edit(at=60, global_batch=8)]
    two = sk.Loader(range(100), sk.Ledger(sk.RandomSampler(), edits), batch_size=5, world=sk.World(2, 0))
    with pytest.raises(sk.ArgumentValueError, match="edit at 70: sets a global_batch that 2 ranks do not"):
        two.edit(at=70, global_batch=9)
    assert two.sampler.edits == tuple(edits)
    early, late = two.state_dict(step=3), two.state_dict(step=11)
    assert [early["position"], late["position"]] == [22, 72]
    four = sk.Loader(range(100), sk.Ledger(sk.RandomSampler(), edits), batch_size=5, world=sk.World(4, 0))
    with pytest.raises(sk.StateError, match="edit at 10: sets a global_batch that 4 ranks do not divide"):
        four.load_state_dict(early)
    with pytest.raises(sk.ArgumentValueError, match="edit at 10: sets a global_batch that 4 ranks do not"):
        next(iter(four))
    four.load_state_dict(late)
    assert len(next(iter(four))) == 2
    assert len(four) == len(counted_steps(100, 0, 20, ((10, 6), (60, 8)), "pad"))


def test_a_history_has_no_samples_that_a_ramp_left_out():
    ledger = sk.Ledger(sk.SequentialSampler(), [sk.Edit(at=4, global_batch=4)])
    whole, whole_steps = (
        sk.Loader(range(11), ledger, batch_size=2, tail=tail) for tail in ("ragged", "drop")
    )
    whole_steps.load_state_dict(whole.state_dict(step=3), allow={"tail"})
    assert list(whole_steps) == []
    assert whole_steps.history()[:].tolist() == [*range(8)]
