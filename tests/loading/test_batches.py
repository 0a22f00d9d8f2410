"""A loader of batches: what is dealt are the batches of a plan, and all else holds as it does for samples."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
import torch
import torch.distributed
from torchdata.stateful_dataloader import StatefulDataLoader

import samplerkit as sk
from samplerkit.batches.static import StaticPlan
from samplerkit.batches.windows import WindowPlan
from samplerkit.loading.agreement import Agreement
from samplerkit.loading.state import _checksum
from tests.loading.worker_kinds import THREADS

SIZE = 300
LENGTHS = np.clip(np.random.default_rng(0).lognormal(3, 1, SIZE), 2, 120).astype(np.int64)
RECIPE = sk.TokenBatches(240, lengths=LENGTHS)
SMALL_WINDOWS = sk.TokenBatches(240, lengths=LENGTHS, window=64)

SAMPLERS = {
    "global": (lambda: sk.RandomSampler(seed=7), RECIPE),
    "windows": (lambda: sk.RandomSampler(seed=7), SMALL_WINDOWS),
    "partial": (lambda: sk.RandomSampler(seed=7, shuffle="partial", partial_size=50), SMALL_WINDOWS),
    "in order": (sk.SequentialSampler, SMALL_WINDOWS),
}


class Noisy:
    """Sample i is (i, a number from its draw)."""

    layout = sk.Layout([60] * 5)

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        return index, float(sk.draw_rng().random())


def loader(kind="global", ranks=1, rank=0, dataset=None, resumed=None, **options):
    make, recipe = SAMPLERS[kind]
    dataset = Noisy() if dataset is None else dataset
    given = {"batches": recipe, "collate_fn": list, "world": sk.World(ranks, rank), **options}
    made = sk.Loader(dataset, make(), **given)
    if resumed is not None:
        made.load_state_dict(json.loads(resumed))
    return made


def read(run):
    """The samples of all steps, each with whether it is a pad."""
    steps = []
    for batch in run:
        pads = run.pads(run.step - 1)
        assert [index for index, _ in batch] == run.ids(run.step - 1).tolist()
        assert pads.all() or not pads.any()
        steps.append([(index, noise, bool(pad)) for (index, noise), pad in zip(batch, pads, strict=True)])
    return steps


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 2}, THREADS, {"run_ahead": True}, {"device": "cpu"}, {"seed_draws": True}],
    ids=str,
)
def test_a_loader_hands_out_the_batches_of_its_plan_and_goes_on_with_other_ranks(kind, options):
    plan = loader(kind, 4).plan
    alone = sk.Loader(Noisy(), SAMPLERS[kind][0](), batch_size=SIZE, collate_fn=list)
    whole = [index for batch in alone for index, _ in batch]
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
    assert sorted(index for index, *_ in seen) == sorted(whole)
    # A sample has the same draw on any ranks, whether it was read before the stop or after.
    steps = [
        sample for rank in range(2) for step in read(loader(kind, 2, rank, resumed=state)) for sample in step
    ]
    assert {(index, noise) for index, noise, is_pad in steps if not is_pad} < {sample[:2] for sample in seen}


def test_a_state_says_how_batches_are_made_in_under_300_bytes():
    run = loader("partial", 4, 0)
    state = run.state_dict(step=7)
    section = state["sections"]["batches"]
    assert (state["unit"], state["position"]) == ("batches", 28)
    assert section["recipe"] == "batches-1: TokenBatches(max_tokens=240, window=64)"
    assert section["window"] == list(run.plan.window_of(28))
    assert len(json.dumps(state["sections"])) < 300
    assert len(json.dumps(state)) < 4096


def test_a_state_of_samples_and_one_of_batches_are_refused_by_unit_with_the_mend():
    samples = sk.Loader(Noisy(), sk.RandomSampler(seed=7), batch_size=8)
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


def test_abreast_is_fixed_by_the_first_start_whatever_it_was():
    first = loader(ranks=4, batches=sk.TokenBatches(240, lengths=LENGTHS, abreast=8))
    resumed = loader(ranks=3, batches=sk.TokenBatches(240, lengths=LENGTHS))
    resumed.load_state_dict(first.state_dict(step=5))
    assert resumed.plan.abreast == 8
    assert resumed.ids(0).tolist() == first.plan[20].tolist()
    assert loader(ranks=3).plan.abreast == 3


def test_tokens_of_all_ranks_are_known_to_each():
    runs = [loader("windows", 3, rank, tail="split") for rank in range(3)]
    for step in range(runs[0].steps_left):
        tokens = sum(int(LENGTHS[run.ids(step)].sum()) for run in runs)
        assert {run.tokens(step) for run in runs} == {tokens}
    with pytest.raises(sk.OutOfDatasetError):
        runs[0].tokens(runs[0].steps_left)
    assert sk.Loader(range(10), sk.SequentialSampler(), batch_size=4).tokens(2) == 2


def test_split_gives_every_sample_once_in_equal_steps():
    for ranks in range(1, 9):
        runs = [loader("global", ranks, rank, tail="split") for rank in range(ranks)]
        assert len({run.steps_left for run in runs}) == 1
        ids = [run.ids(step) for run in runs for step in range(run.steps_left)]
        assert not any(run.pads(step).any() for run in runs for step in range(run.steps_left))
        assert sorted(np.concatenate(ids).tolist()) == list(range(SIZE))
        assert all(LENGTHS[batch].max() * batch.size <= 240 for batch in ids)


def test_split_marks_pads_where_samples_are_fewer_than_ranks():
    recipe = sk.TokenBatches(10, lengths=[10] * 5)
    runs = [
        sk.Loader(range(5), sk.RandomSampler(), batches=recipe, tail="split", world=sk.World(8, rank))
        for rank in range(8)
    ]
    assert [run.steps_left for run in runs] == [1] * 8
    assert sum(int((~run.pads(0)).sum()) for run in runs) == 5
    assert sum(int(run.pads(0).sum()) for run in runs) == 3


def test_nothing_but_a_length_passes_over_an_epoch_of_windows():
    run = loader("partial", 2, 1)
    looked = []
    plan = run.plan
    made = plan._made
    plan._made = lambda window: looked.append(window) or made(window)
    batches = iter(run)
    next(batches)
    assert run.state_dict()["position"] == 2
    assert run.ids(0).size
    assert run.tokens(0)
    assert set(looked) == {0}
    assert len(run) > 3
    assert set(looked) == set(range(5))


def test_a_resume_looks_at_one_window(monkeypatch):
    saved = loader("partial", 2, 1)
    last = saved.steps_left - 4
    state = saved.state_dict(step=last)
    assert state["sections"]["batches"]["window"][0] >= 2
    looked, made, expected = [], WindowPlan._made, saved.ids(last).tolist()
    monkeypatch.setattr(WindowPlan, "_made", lambda plan, number: looked.append(number) or made(plan, number))
    run = loader("partial", 2, 1)
    run.load_state_dict(state)
    assert [index for index, _ in next(iter(run))] == expected
    assert set(looked) == {state["sections"]["batches"]["window"][0]}


def changed(state, **section):
    """The state with other values in its section of batches, and a checksum that fits."""
    saved = {**state["sections"]["batches"], **section}
    saved = {name: value for name, value in saved.items() if value is not Ellipsis}
    body = {**state, "sections": {"batches": saved}}
    del body["checksum"], body["samplerkit"]
    return {"samplerkit": "loader", **body, "checksum": _checksum(body)}


DAMAGED = {
    "no recipe": ({"recipe": ...}, "batches"),
    "an unknown name": ({"edits": []}, "batches"),
    "a recipe that is no text": ({"recipe": 3}, "recipe"),
    "another rule": ({"recipe": "batches-0: TokenBatches(max_tokens=240, window=64)"}, "recipe"),
    "lengths that are no digest": ({"lengths": [3]}, "lengths"),
    "other lengths": ({"lengths": "0123456789abcdef"}, "lengths"),
    "no batches abreast": ({"abreast": 0}, "abreast"),
    "a bool abreast": ({"abreast": True}, "abreast"),
    "too many abreast": ({"abreast": 1 << 40}, "abreast"),
    "a window that is no pair": ({"window": [3]}, "window"),
    "a negative window": ({"window": [-1, 0]}, "window"),
    "a window of text": ({"window": ["1", "2"]}, "window"),
    "no window": ({"window": None}, "window"),
    "another window": ({"window": [1, 3]}, "window"),
    "a window behind the position": ({"window": [4, 4000]}, "window"),
    "a window behind the end": ({"window": [99, 0]}, "window"),
    "a newer version": ({"version": 2}, "batches"),
}


@pytest.mark.parametrize(("section", "field"), DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_section_is_refused_by_field_and_the_run_is_as_it_was(section, field):
    run = loader("partial", 2, 1)
    state = run.state_dict(step=run.steps_left - 3)
    before = json.dumps(run.state_dict())
    with pytest.raises(sk.StateError) as caught:
        run.load_state_dict(changed(state, **section))
    assert caught.value.field == field
    assert json.dumps(run.state_dict()) == before
    run.load_state_dict(changed(state))
    assert run.state_dict() == state


@pytest.mark.parametrize("kind", ["global", "partial"])
def test_a_position_outside_of_the_plan_is_refused(kind):
    run = loader(kind)
    for position in (-1, len(run.plan) + 1, 10**12):
        state = {**run.state_dict(step=0), "position": position}
        with pytest.raises(sk.StateError) as caught:
            run.load_state_dict(changed(state))
        assert caught.value.field in ("position", "window")


def test_a_state_of_batches_without_its_section_is_refused():
    body = {**loader().state_dict(step=1), "sections": {}}
    del body["checksum"], body["samplerkit"]
    with pytest.raises(sk.StateError) as caught:
        loader().load_state_dict({"samplerkit": "loader", **body, "checksum": _checksum(body)})
    assert caught.value.field == "sections"


def test_a_state_goes_on_in_the_next_epoch_from_its_beginning():
    run = loader("partial", 2, 1)
    run.load_state_dict(run.state_dict(step=run.steps_left - 2))
    whole = loader("partial", 2, 1)
    whole.set_epoch(1)
    assert len(read(run)) == 2
    assert read(run) == read(whole)


def test_the_first_batches_are_looked_up_alone(monkeypatch):
    asked = []
    samples = StaticPlan.samples
    monkeypatch.setattr(
        StaticPlan, "samples", lambda plan, numbers: asked.append(numbers.size) or samples(plan, numbers)
    )
    batches = iter(loader(dataset=range(SIZE)))
    for _ in range(9):
        next(batches)
    assert asked == [1, 2, 4, 8]


def test_ranks_that_make_other_batches_are_told():
    identities = []
    for recipe in (RECIPE, sk.TokenBatches(241, lengths=LENGTHS)):
        run = loader(batches=recipe, ranks=2)
        identities.append(run.state_dict())
    store, told = torch.distributed.HashStore(), []

    def rank(number):
        try:
            Agreement(store, number, 2).require(identities[number], 20)
        except sk.DisagreementError as error:
            told.append(str(error))

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
    [thread.start() for thread in threads]
    [thread.join(30) for thread in threads]
    assert len(told) == 2
    assert all("max_tokens=241" in message for message in told)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["global", "windows"])
def test_torchdata_resumes_batches_exactly(kind, workers):
    make, recipe = SAMPLERS[kind]

    def stateful():
        sampler = sk.TorchSampler(make(), range(SIZE), sk.World(3, 1))
        batches = sk.TorchBatchSampler(sampler, batches=recipe, tail="split")
        return StatefulDataLoader(range(SIZE), batch_sampler=batches, num_workers=workers)

    whole = [batch.tolist() for batch in stateful()]
    first = stateful()
    batches = iter(first)
    received = [next(batches).tolist() for _ in range(4)]
    state = json.loads(json.dumps(first.state_dict())) if not workers else first.state_dict()
    resumed = stateful()
    resumed.load_state_dict(state)
    assert received + [batch.tolist() for batch in resumed] == whole


def test_a_sampler_counts_samples_or_batches_and_never_both():
    sampler = sk.TorchSampler(sk.RandomSampler(), range(SIZE), sk.World(3, 1))
    next(iter(sampler))
    with pytest.raises(sk.ArgumentValueError, match="has begun"):
        sk.TorchBatchSampler(sampler, batches=RECIPE)
    sampler = sk.TorchSampler(sk.RandomSampler(), range(SIZE), sk.World(3, 1))
    samples = sampler.state_dict()
    batches = sk.TorchBatchSampler(sampler, batches=RECIPE, drop_last=True)
    assert batches.state_dict()["tail"] == "drop"
    with pytest.raises(sk.StateError) as caught:
        batches.load_state_dict({**samples})
    assert caught.value.field in ("tail", "unit")
    for ask in (sampler.__len__, lambda: sampler.order, lambda: next(iter(sampler))):
        with pytest.raises(sk.CompositionError):
            ask()


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"batch_size": 4}, sk.ArgumentValueError, "batch_size"),
        ({"batches": None}, sk.ArgumentValueError, "batch_size"),
        ({"batches": 16}, sk.ArgumentTypeError, "TokenBatches"),
        ({"batches": None, "batch_size": 4, "tail": "split"}, sk.ArgumentValueError, "ragged"),
        ({"tail": "cut"}, sk.ArgumentValueError, "split"),
        ({"batches": sk.ClassBatches(2, 2), "tail": "split"}, sk.ArgumentValueError, 'say "pad" or "drop"'),
    ],
    ids=["both", "neither", "a number", "split of samples", "another tail", "split of classes"],
)
def test_bad_arguments_are_typed(options, error, match):
    with pytest.raises(error, match=match):
        loader(**options)


def test_num_samples_is_refused_where_a_whole_set_is_read():
    with pytest.raises(sk.ArgumentRangeError, match="num_batches"):
        next(iter(sk.Loader(Noisy(), sk.RandomSampler(num_samples=20), batches=RECIPE)))


def test_a_loader_whose_lengths_do_not_fit_can_still_load_a_state():
    run = loader(batches=sk.TokenBatches(240, lengths=LENGTHS[:-1]))
    for _ in range(2):
        with pytest.raises(sk.DatasetError):
            next(iter(run))
        assert not run._cursor.at.is_open


def test_bad_samples_are_left_out_of_their_batch():
    class Broken(Noisy):
        def __getitem__(self, index):
            if index % 50 == 3:
                raise OSError("damaged")
            return super().__getitem__(index)

    run = loader(dataset=Broken(), bad_samples="skip")
    received = [index for step in read(run) for index, *_ in step]
    assert sorted(received) == [index for index in range(SIZE) if index % 50 != 3]
    assert run.stats.skipped == 6


@pytest.mark.parametrize("workers", [0, 2])
def test_datasets_are_told_the_batches_to_come(workers):
    class Expecting(Noisy):
        def expect(self, upcoming):
            self.upcoming = [ids.tolist() for ids in upcoming]

        def __getitems__(self, ids):
            assert self.upcoming.pop(0) == ids.tolist()
            return [(index, 0.0) for index in ids.tolist()]

    with loader("partial", 2, 1, Expecting(), num_workers=workers) as run:
        for _ in range(2):
            assert sum(len(step) for step in read(run)) > 100


def test_it_continues_after_a_break_and_begins_anew():
    run = loader("windows", after_break="continue")
    first = [index for index, _ in next(iter(run))]
    rest = [index for step in read(run) for index, *_ in step]
    assert sorted(first + rest) == list(range(SIZE))
    run = loader("windows")
    assert next(iter(run)) == next(iter(run))


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_plain_dataloader_reads_the_batches_of_a_rank(kind):
    class Quiet(Noisy):
        def __getitem__(self, index):
            return index, 0.0

    make, recipe = SAMPLERS[kind]
    sampler = sk.TorchSampler(make(), Noisy(), sk.World(3, 1))
    batches = sk.TorchBatchSampler(sampler, batches=recipe)
    plain = torch.utils.data.DataLoader(Quiet(), batch_sampler=batches, collate_fn=list)
    ours = loader(kind, 3, 1)
    for epoch in range(2):
        assert sampler.epoch == epoch
        ids = [[index for index, _ in batch] for batch in ours]
        assert [[index for index, _ in batch] for batch in plain] == ids
    assert len(batches) == len(ours)
    sampler.set_epoch(0)
    with pytest.raises(sk.CompositionError):
        iter(sampler).__next__()
