"""A loader of batches: the batches of a plan are dealt, and everything else is as for samples."""

from __future__ import annotations

import json

import pytest

import samplerkit as sk
from samplerkit.batches.set_plan import StaticPlan
from samplerkit.compat.megatron.samplers import MegatronPretrainingRandomSampler
from tests.loading.batch_loaders import LENGTHS, SAMPLERS, SIZE, Noisy, loader, read
from tests.loading.worker_kinds import THREADS

OPTIONS = [{"num_workers": 2}, THREADS, {"run_ahead": True}, {"device": "cpu"}, {"seed_draws": True}]


@pytest.mark.parametrize(
    ("kind", "options"),
    [*((kind, {}) for kind in SAMPLERS), *(("windows", more) for more in OPTIONS)],
    ids=str,
)
def test_a_loader_hands_out_the_batches_of_its_plan_and_resumes_on_other_ranks(kind, options):
    plan = loader(kind, 4).plan
    alone = sk.Loader(Noisy(), SAMPLERS[kind][0](), batch_size=SIZE, collate_fn=list)
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
    with pytest.raises(sk.NotSupportedError, match="are counted, but the sampler begins at a sample, got 4"):
        loader_after(36)
