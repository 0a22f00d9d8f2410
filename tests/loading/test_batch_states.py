"""A loader of batches deals the batches of a plan; its states are those of any loader."""

import json

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.batches.set_plan import StaticPlan
from samplerkit.batches.window_plan import WindowPlan
from samplerkit.compat.megatron.samplers import MegatronPretrainingRandomSampler
from tests.loading.batch_loaders import LENGTHS, NOISY, SAMPLERS, SIZE, SMALL_WINDOWS, loader, read
from tests.loading.forged_states import forged
from tests.loading.worker_kinds import THREADS

OPTIONS = [{"num_workers": 2}, THREADS, {"run_ahead": True}, {"device": "cpu"}, {"seed_draws": True}]


@pytest.mark.parametrize(
    ("kind", "options"),
    [*((kind, {}) for kind in SAMPLERS), *(("windows", more) for more in OPTIONS)],
    ids=str,
)
def test_a_loader_hands_out_the_batches_of_its_plan_and_resumes_on_other_ranks(kind, options):
    plan = loader(kind, 4).plan
    alone = sk.Loader(NOISY, SAMPLERS[kind][0](), batch_size=SIZE, collate_fn=list)
    expected = [index for batch in alone for index, _ in batch]
    first = [loader(kind, 4, rank, **options) for rank in range(4)]
    seen, states = [], set()
    for rank, run in enumerate(first):
        with run:
            for batch in run:
                assert [index for index, _ in batch] == plan[4 * (run.step - 1) + rank].tolist()
                seen += [(*sample, False) for sample in batch]
                states.add(json.dumps(run.state_dict())) if run.step == 3 else None
                if run.step == 3:
                    break
    (state,) = states
    for rank in range(3):
        with loader(kind, 3, rank, resumed=state, **options) as run:
            assert run.plan.abreast == 4
            seen += [sample for step in read(run) for sample in step if not sample[2]]
            assert (run.epoch, run.state_dict()["position"]) == (1, 0)
    assert sorted(index for index, *_ in seen) == sorted(expected)
    # A sample has the same draw on any ranks, whether it was read before the stop or after.
    steps = [
        sample for rank in range(2) for step in read(loader(kind, 2, rank, resumed=state)) for sample in step
    ]
    assert {(index, noise) for index, noise, is_pad in steps if not is_pad} < {sample[:2] for sample in seen}


def test_each_rank_knows_the_tokens_of_all_ranks():
    runs = [loader("windows", 3, rank, tail="split") for rank in range(3)]
    for step in range(runs[0].steps_left):
        tokens = sum(int(LENGTHS[run.ids(step)].sum()) for run in runs)
        assert {run.tokens(step) for run in runs} == {tokens}
    with pytest.raises(sk.OutOfDatasetError):
        runs[0].tokens(runs[0].steps_left)
    assert sk.Loader(range(10), sk.SequentialSampler(), batch_size=4).tokens(2) == 2


def test_split_divides_the_last_batches_and_joins_none():
    lengths = np.array([1, 1, 1, 1, 9])
    recipe, sampler = sk.TokenBatches(9, lengths=lengths), sk.RandomSampler(seed=1)
    runs = [
        sk.Loader(range(5), sampler, batches=recipe, tail="split", world=sk.World(3, rank))
        for rank in range(3)
    ]
    assert sorted(map(runs[0].plan.shape, range(2))) == [(1, 9), (4, 1)]
    assert sorted(lengths[run.ids(0)].tolist() for run in runs) == [[1, 1], [1, 1], [9]]


def test_only_len_computes_all_windows_of_an_epoch():
    run = loader("partial", 2, 1)
    windows = []
    plan = run.plan
    make = plan._compute
    plan._compute = lambda window: windows.append(window) or make(window)
    batches = iter(run)
    next(batches)
    assert run.state_dict()["position"] == 2
    assert run.ids(0).size
    assert run.tokens(0)
    assert set(windows) == {0}
    assert len(run) > 3
    assert set(windows) == set(range(5))


def test_batches_are_looked_up_in_growing_blocks(monkeypatch):
    sizes = []
    samples = StaticPlan.samples
    monkeypatch.setattr(
        StaticPlan, "samples", lambda plan, numbers: sizes.append(numbers.size) or samples(plan, numbers)
    )
    batches = iter(loader(dataset=range(SIZE)))
    for _ in range(9):
        next(batches)
    assert sizes == [1, 2, 4, 8]


def test_batches_continue_another_package_only_after_a_full_epoch():
    def loader_after(consumed):
        sampler = MegatronPretrainingRandomSampler(2, 1, consumed_samples=consumed)
        return sk.Loader(range(16), sampler, batches=sk.TokenBatches(8, lengths=[1] * 16, window=8))

    assert (loader_after(32).epoch, loader_after(32).state_dict()["position"]) == (2, 0)
    with pytest.raises(sk.NotSupportedError, match="a sampler that begins within an epoch, at sample, got 4"):
        loader_after(36)


def test_a_state_of_samples_and_one_of_batches_are_refused_by_unit_with_the_hint():
    samples = sk.Loader(NOISY, sk.RandomSampler(seed=7), batch_size=8)
    with pytest.raises(sk.StateError, match="batch_size=") as caught:
        loader().load_state_dict(samples.state_dict(step=1))
    assert caught.value.field == "unit"
    with pytest.raises(sk.StateError, match="batches=") as caught:
        samples.load_state_dict(loader().state_dict(step=1))
    assert caught.value.field == "unit"


@pytest.mark.parametrize(
    ("other", "field"),
    [
        (sk.TokenBatches(241, lengths=LENGTHS), "recipe"),
        (sk.TokenBatches(240, lengths=LENGTHS[::-1].copy()), "lengths"),
        (sk.TokenBatches(240, lengths=LENGTHS, abreast=3), "abreast"),
        (SMALL_WINDOWS, "recipe"),
    ],
    ids=["recipe", "lengths", "abreast", "windows"],
)
def test_a_state_of_other_batches_is_refused_by_field(other, field):
    state = loader().state_dict(step=2)
    run = loader(batches=other)
    with pytest.raises(sk.StateError) as caught:
        run.load_state_dict(state)
    assert caught.value.field == field
    assert run.state_dict()["position"] == 0


class Slices(sk.BatchRecipe):
    """Some neighbours at a time; an attribute counts the windows it has cut."""

    window = 64

    def __init__(self, count, weights=(1, 2)):
        self.count, self.weights, self.lengths = count, np.array(weights), LENGTHS
        self.windows_cut = 0

    def cut(self, ids, lengths, context):
        self.windows_cut += 1
        return np.split(np.arange(ids.size), range(self.count, ids.size, self.count))


def test_a_custom_recipe_resumes_with_the_same_arguments_and_is_refused_with_others():
    first = loader(batches=Slices(4))
    next(iter(first))
    assert first.batches.windows_cut
    state = first.state_dict()
    assert "Slices(window=64, count=4, weights=<2 values, " in state["sections"]["batches"]["recipe"]
    loader(batches=Slices(4)).load_state_dict(state)
    first.close()
    first.load_state_dict(state)
    assert first.state_dict() == state
    wider = Slices(4)
    wider.window = 100
    for other in (Slices(5), Slices(4, (1, 3)), wider):
        with pytest.raises(sk.StateError) as caught:
            loader(batches=other).load_state_dict(state)
        assert caught.value.field == "recipe"


def test_abreast_stays_that_of_the_first_start():
    first = loader(ranks=4, batches=sk.TokenBatches(240, lengths=LENGTHS, abreast=8))
    resumed = loader(ranks=3, batches=sk.TokenBatches(240, lengths=LENGTHS))
    resumed.load_state_dict(first.state_dict(step=5))
    assert resumed.plan.abreast == 8
    assert resumed.ids(0).tolist() == first.plan[20].tolist()
    assert loader(ranks=3).plan.abreast == 3


def test_a_resume_computes_one_window(monkeypatch):
    saved = loader("partial", 2, 1)
    last = saved.steps_left - 4
    state = saved.state_dict(step=last)
    assert state["sections"]["batches"]["window"][0] >= 2
    seen, make, expected = [], WindowPlan._compute, saved.ids(last).tolist()
    monkeypatch.setattr(
        WindowPlan, "_compute", lambda plan, number: seen.append(number) or make(plan, number)
    )
    run = loader("partial", 2, 1)
    run.load_state_dict(state)
    assert [index for index, _ in next(iter(run))] == expected
    assert set(seen) == {state["sections"]["batches"]["window"][0]}


@pytest.mark.parametrize("kind", ["global", "partial"])
def test_a_position_outside_of_the_plan_is_refused(kind):
    run = loader(kind)
    for position in (-1, len(run.plan) + 1, 10**12):
        with pytest.raises(sk.StateError) as caught:
            run.load_state_dict(forged(run.state_dict(step=0), position=position))
        assert caught.value.field in ("position", "window")


def test_a_first_window_without_a_batch_is_saved_and_loaded():
    lengths = [0, 0, 0, 0, 4, 0, 0, 4]

    def run():
        recipe = sk.PackBatches(4, lengths=lengths, window=2)
        documents = [[id] * length for id, length in enumerate(lengths)]
        return sk.Loader(documents, sk.SequentialSampler(), batches=recipe, collate_fn=list)

    uninterrupted = run()
    states, batches = [uninterrupted.state_dict()], []
    for batch in uninterrupted:
        batches.append(batch)
        states.append(uninterrupted.state_dict())
    assert [state["sections"]["batches"]["window"] for state in states[:2]] == [[0, 0], [3, 1]]
    for done, state in enumerate(states[:2]):
        resumed = run()
        resumed.load_state_dict(state)
        assert list(resumed) == batches[done:]


WINDOW = 64
RECIPE = sk.TokenBatches(240, lengths=LENGTHS, window=WINDOW, abreast=2)
CHAIN = sk.RandomSampler(seed=7)


def loader_of(edits=(), *, ranks=1, rank=0, sampler=None, **options):
    defaults = {"batches": RECIPE, "collate_fn": list, "world": sk.World(ranks, rank), **options}
    return sk.Loader(range(SIZE), sk.Ledger(CHAIN, edits) if sampler is None else sampler, **defaults)


@pytest.mark.parametrize("options", [{}, {"num_workers": 1, "prefetch_factor": 2}, THREADS])
def test_an_edit_applies_at_the_start_of_the_next_window_that_was_not_requested(options):
    run, read, applied = loader_of(**options), [], []
    plain = loader_of()
    for batch in run:
        read.append(batch)
        if run.step == 2:
            first = run.editable_from
            assert first % WINDOW == 0
            with pytest.raises(sk.ArgumentRangeError, match=f"at: is before position {first}"):
                run.edit(at=first - 1, skip=10)
            applied = [run.edit(skip=10), run.edit(at=first + 1, without=[5, 6])]
    assert applied == [first, first + WINDOW]
    assert run.sampler.edits == (sk.Edit(at=first, skip=10), sk.Edit(at=first + WINDOW, without=[5, 6]))
    order = sk.Ledger(CHAIN, run.sampler.edits).order(SIZE)[:]
    counts = [batch.tolist() for batch in plain.plan]
    by_recipe = RECIPE.plan(sk.IterSampler(order, seed=CHAIN.seed), SIZE)
    assert read == [batch.tolist() for batch in by_recipe]
    before = sum(len(batch) for batch in read[:2])
    assert before <= first
    assert read[:2] == counts[:2]


def test_a_state_inside_a_window_comes_after_all_edits_of_that_window():
    edits = [sk.Edit(at=WINDOW, skip=20)]
    edited = loader_of(edits)
    numbers = [edited.plan.window_of(number) for number in range(20)]
    border = next(number for number, (window, _) in enumerate(numbers) if window == 1)
    other = loader_of([sk.Edit(at=WINDOW, skip=21)])
    other.load_state_dict(edited.state_dict(step=border))
    with pytest.raises(sk.StateError, match="edit 1, before position"):
        other.load_state_dict(edited.state_dict(step=border + 1))
    plain = loader_of(sampler=CHAIN)
    with pytest.raises(sk.StateError, match="edit 1, before position"):
        plain.load_state_dict(edited.state_dict(step=border + 1))
    edited.load_state_dict(plain.state_dict(step=border))
    with pytest.raises(sk.StateError, match="edit 1, before position"):
        edited.load_state_dict(plain.state_dict(step=border + 1))
    assert edited.state_dict()["position"] == border


def test_windows_after_an_edit_are_computed_again():
    run, fresh = loader_of(), loader_of([sk.Edit(at=2 * WINDOW, skip=20)])
    assert [run.plan.window_of(number) for number in range(len(run))]
    run.edit(at=2 * WINDOW, skip=20)
    windows, expected = ([x.plan.window_of(number) for number in range(len(x))] for x in (run, fresh))
    assert windows == expected
    assert [ids.tolist() for ids in run.plan] == [ids.tolist() for ids in fresh.plan]


def test_batches_over_a_whole_set_cannot_be_edited_and_a_step_has_no_other_size():
    with pytest.raises(sk.NotSupportedError, match="batches: over a whole set have no windows"):
        len(loader_of(batches=sk.TokenBatches(240, lengths=LENGTHS)))
    with pytest.raises(sk.NotSupportedError, match="a step is one batch of the recipe"):
        loader_of([sk.Edit(at=64, global_batch=8)])
    run = loader_of()
    with pytest.raises(sk.NotSupportedError, match="a step is one batch of the recipe"):
        run.edit(at=64, global_batch=8)
    assert run.sampler.edits == ()
