"""The drop-in for PartiallyShuffle resumes at a step, or from a state."""

from __future__ import annotations

import pytest

import samplerkit as sk
from tests.compat.partially_shuffle.folders import (
    UNEQUAL,
    flat,
    ids_of,
    items_of,
    make_dataset,
    make_sampler,
)

SIZES = UNEQUAL[:20]


@pytest.fixture(name="dataset")
def fixture_dataset(tmp_path_factory):
    return make_dataset(tmp_path_factory.mktemp("files"), SIZES)


@pytest.mark.parametrize(("version", "ranks", "rank"), [(1, 1, 0), (2, 4, 3)])
def test_any_step_resumes_with_the_remaining_items_and_reads_only_their_files(dataset, version, ranks, rank):
    def make():
        sampler = make_sampler(dataset, ranks, rank, version=version, shuffle_buffer=40, file_buffer=20)
        sampler.set_epoch(3)
        return sampler

    whole = [(ids_of(item), item[2]) for item in make()]
    for step in range(len(whole) + 1):
        sampler = make()
        dataset.read.clear()
        sampler.find_ckpt_position(step)
        assert dataset.read == []
        rest = [(ids_of(item), item[2]) for item in sampler]
        assert rest == whole[step:]
        assert sorted(dataset.read) == sorted({file for _, files in rest for file in files})
        assert sampler.epoch == 4


@pytest.mark.parametrize("calls", ["epoch, step", "step, epoch"])
def test_a_step_applies_to_an_epoch_that_is_set_before_or_after_it(dataset, calls):
    whole, sampler = make_sampler(dataset), make_sampler(dataset)
    whole.set_epoch(2)
    for call in calls.split(", "):
        if call == "epoch":
            sampler.set_epoch(2)
        else:
            sampler.find_ckpt_position(5)
    assert items_of(sampler) == items_of(whole)[5:]


@pytest.mark.parametrize("ranks", [1, 2, 6])
def test_on_other_ranks_each_step_has_the_same_samples(dataset, ranks):
    def steps(samplers):
        rows = zip(*(items_of(sampler) for sampler in samplers), strict=True)
        return [sorted(flat(items)) for items in rows]

    def samplers_of(ranks, state=None):
        samplers = [make_sampler(dataset, ranks, rank, batch_size=24 // ranks) for rank in range(ranks)]
        for sampler in samplers:
            if state is not None:
                sampler.load_state_dict(state)
        return samplers

    whole, first = steps(samplers_of(4)), make_sampler(dataset, 4, 2, batch_size=6)
    iterator = iter(first)
    for _ in range(5):
        next(iterator)
    rest = steps(samplers_of(ranks, first.state_dict()))
    assert rest[:-1] == whole[5:-1]
    # In the last step some samples are repeated, so that all ranks read as many.
    assert set(whole[-1]) <= set(rest[-1])
    assert len(rest[-1]) - len(whole[-1]) < ranks


REFUSED = {
    "another seed": ({"seed": 5}, "seed"),
    "another buffer": ({"shuffle_buffer": 61}, "sampler"),
}


@pytest.mark.parametrize(("named", "field"), REFUSED.values(), ids=REFUSED)
def test_a_state_of_another_order_is_refused(dataset, named, field):
    state = make_sampler(dataset).state_dict()
    make_sampler(dataset, batch_size=3, file_buffer=7).load_state_dict(state)
    with pytest.raises(sk.StateError) as caught:
        make_sampler(dataset, **named).load_state_dict(state)
    assert caught.value.field == field
