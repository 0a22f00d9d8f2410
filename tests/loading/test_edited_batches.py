"""Ledgers with batches of unlike samples: states count batches, and edits apply at the borders of windows."""

from __future__ import annotations

import json

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.inspect.time_machine import at, when
from tests.loading.worker_kinds import THREADS

SIZE, WINDOW = 300, 64
LENGTHS = np.clip(np.random.default_rng(0).lognormal(3, 1, SIZE), 2, 120).astype(np.int64)
RECIPE = sk.TokenBatches(240, lengths=LENGTHS, window=WINDOW, abreast=2)
CHAIN = sk.RandomSampler(seed=7)


def loader_of(edits=(), *, ranks=1, rank=0, sampler=None, **options):
    given = {"batches": RECIPE, "collate_fn": list, "world": sk.World(ranks, rank), **options}
    return sk.Loader(range(SIZE), sk.Ledger(CHAIN, edits) if sampler is None else sampler, **given)


def batches_of(order, epoch):
    """The batches of an order, by the recipe itself."""

    class Listed(sk.Sampler):
        seed = CHAIN.seed

        def draw(self, layout, context):
            return order

    return [batch.tolist() for batch in RECIPE.plan(Listed(), SIZE, epoch)]


@pytest.mark.parametrize("options", [{}, {"num_workers": 1, "prefetch_factor": 2}, THREADS])
def test_an_edit_applies_at_the_next_border_of_a_window_that_nobody_asked_for(options):
    loader, read, applied = loader_of(**options), [], []
    plain = loader_of()
    for batch in loader:
        read.append(batch)
        if loader.step == 2:
            first = loader.editable_from
            assert first % WINDOW == 0
            with pytest.raises(sk.ArgumentRangeError, match=f"at: is before position {first}"):
                loader.edit(at=first - 1, skip=10)
            applied = [loader.edit(skip=10), loader.edit(at=first + 1, without=[5, 6])]
    assert applied == [first, first + WINDOW]
    assert loader.sampler.edits == (sk.Edit(at=first, skip=10), sk.Edit(at=first + WINDOW, without=[5, 6]))
    order = sk.Ledger(CHAIN, loader.sampler.edits).order(SIZE)[:]
    counts = [batch.tolist() for batch in plain.plan]
    assert read == batches_of(order, 0)
    before = sum(len(batch) for batch in read[:2])
    assert before <= first
    assert read[:2] == counts[:2]


def test_a_run_of_batches_is_edited_stopped_and_resumed_on_other_ranks():
    edits = [sk.Edit(at=WINDOW, skip=20), sk.Edit(at=3 * WINDOW, without=range(50))]
    whole = batches_of(sk.Ledger(CHAIN, edits).order(SIZE), 0)
    read, state = [], None
    for ranks, steps in ((2, 3), (1, 5), (3, 4), (2, 6), (1, 99)):
        made = edits if len(read) > 9 else edits[:1]
        loaders = [loader_of(made, ranks=ranks, rank=rank, tail="ragged") for rank in range(ranks)]
        for loader in loaders if state else ():
            loader.load_state_dict(json.loads(json.dumps(state)))
        going = [iter(loader) for loader in loaders]
        for _ in range(steps):
            batches = [next(one, None) for one in going]
            read += [batch for batch in batches if batch is not None]
        states = [loader.state_dict() for loader in loaders]
        assert all(one == states[0] for one in states)
        state = states[0]
        assert len(json.dumps(state)) < 2048
    assert sorted(map(sorted, read[: len(whole)])) == sorted(map(sorted, whole))


def test_a_state_inside_a_window_is_behind_the_edits_of_all_of_the_window():
    edits = [sk.Edit(at=WINDOW, skip=20)]
    edited = loader_of(edits)
    numbers = [edited.plan.window_of(number) for number in range(20)]
    border = next(number for number, (window, _) in enumerate(numbers) if window == 1)
    other = loader_of([sk.Edit(at=WINDOW, skip=21)])
    other.load_state_dict(edited.state_dict(step=border))
    with pytest.raises(sk.StateError, match="edit 1 of the saved run is another one"):
        other.load_state_dict(edited.state_dict(step=border + 1))
    plain = loader_of(sampler=CHAIN)
    with pytest.raises(sk.StateError, match="edit 1 of the saved run is missing"):
        plain.load_state_dict(edited.state_dict(step=border + 1))
    edited.load_state_dict(plain.state_dict(step=border))
    with pytest.raises(sk.StateError, match="before which this run has an edit that its run had not"):
        edited.load_state_dict(plain.state_dict(step=border + 1))
    assert edited.state_dict()["position"] == border


def test_where_and_when_a_sample_is_read_is_told_across_edits_of_batches():
    loader = loader_of([sk.Edit(at=WINDOW, skip=20)], ranks=2)
    read = at(loader, epoch=0, step=9, rank=1)
    times = when(loader, int(read.ids[0]), epochs=0)[0].occurrences
    assert (9, 1) in {(time.step, time.rank) for time in times}


def test_a_whole_set_has_no_windows_to_edit_and_a_step_no_other_size():
    with pytest.raises(sk.NotSupportedError, match="batches: over a whole set have no windows"):
        len(loader_of(batches=sk.TokenBatches(240, lengths=LENGTHS)))
    with pytest.raises(sk.NotSupportedError, match="a step is one batch of the recipe"):
        loader_of([sk.Edit(at=64, global_batch=8)])
    loader = loader_of()
    with pytest.raises(sk.NotSupportedError, match="a step is one batch of the recipe"):
        loader.edit(at=64, global_batch=8)
    assert loader.sampler.edits == ()
