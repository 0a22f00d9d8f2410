"""Batches of samples of different lengths: where each sample is read, the costs, and the pictures."""

from __future__ import annotations

import numpy as np
import pytest
import torch.utils.data

import samplerkit as sk
from samplerkit.inspect.batches import batch_figures, new_companions
from samplerkit.inspect.pictures.plot_data import plot_data
from samplerkit.inspect.plan import plan
from samplerkit.inspect.time_machine import at, when
from samplerkit.inspect.view import RunView
from tests.inspect.reported_steps import reported_steps

LENGTHS = [1 + number * 7 % 13 for number in range(40)]
SAMPLERS = {
    "the whole set": lambda: sk.RandomSampler(seed=3),
    "windows": sk.SequentialSampler,
    "repeats": lambda: sk.WeightedRandomSampler([1.0] * 40, 60, seed=2),
}


def loader(sampler, tail="pad", ranks=1, rank=0, **more):
    recipe = sk.TokenBatches(30, lengths=LENGTHS)
    world = sk.World(ranks, rank)
    return sk.Loader(list(range(40)), sampler, batches=recipe, tail=tail, world=world, **more)


@pytest.mark.parametrize(
    ("name", "tail", "ranks"),
    [
        ("the whole set", "pad", 3),
        ("the whole set", "split", 16),
        ("windows", "drop", 3),
        ("windows", "split", 3),
        ("repeats", "ragged", 3),
        ("repeats", "pad", 3),
    ],
)
def test_at_and_when_agree_with_what_the_loaders_of_all_ranks_read(name, tail, ranks):
    def of(rank):
        return loader(SAMPLERS[name](), tail, ranks, rank)

    for inspected, reported, batch in reported_steps(of, ranks):
        assert reported.ids.tolist() == batch.tolist()
        assert reported.batch.tokens == sum(LENGTHS[sample] for sample in batch.tolist())
        assert reported.batch.step_tokens == inspected._cursor.run.reading(0, 0).tokens(reported.step)
        planned = [inspected.plan[number].tolist() for number in reported.batch.numbers]
        assert set(batch.tolist()) <= set().union(*planned)


@pytest.mark.parametrize(
    ("window", "tail", "ranks"), [(None, "pad", 3), (16, "ragged", 3), (None, "split", 16)]
)
def test_at_and_when_agree_with_the_packs_that_the_loaders_of_all_ranks_read(window, tail, ranks):
    recipe = sk.PackBatches(8, lengths=LENGTHS, packs=2, window=window)
    dataset = [np.arange(length) for length in LENGTHS]

    def of(rank):
        world = sk.World(ranks, rank)
        return sk.Loader(dataset, sk.RandomSampler(seed=3), batches=recipe, tail=tail, world=world)

    for _, reported, batch in reported_steps(of, ranks):
        assert reported.batch.tokens == int((batch["segment_ids"] > 0).sum())
        assert reported.batch.shape == tuple(batch["input_ids"].shape)


@pytest.mark.parametrize(
    ("long", "cut", "window"),
    [("split", 15, None), ("split", 15, 10), ("truncate", 15, 10), ("drop", 0, None)],
)
def test_the_figures_of_packs_are_those_of_the_packs(long, cut, window):
    assert sum(length > 8 for length in LENGTHS) == 15
    recipe = sk.PackBatches(8, lengths=LENGTHS, long=long, window=window)
    run = sk.Loader(range(40), sk.RandomSampler(seed=7), batches=recipe, world=sk.World(4, 0))
    figures = batch_figures(RunView.of(run), 0)
    packs = list(run.plan)
    assert (figures.batches, figures.documents_cut) == (len(packs), cut)
    assert figures.tokens == sum(int(pack.lengths.sum()) for pack in packs)
    assert figures.efficiency == figures.tokens / (8 * len(packs)) == run.plan.efficiency()
    assert figures.plain_efficiency == figures.tokens / (8 * sum(map(len, packs)))
    assert figures.imbalance == 1.0
    assert 0 < new_companions(RunView.of(run), 0) <= 1
    shown = plot_data({"packs": run})[0]
    steps, ranks, low, high = shown.batches
    parts = [run.plan[number].lengths for number in (4 * steps + ranks).tolist()]
    assert low.tolist() == [int(lengths.min()) for lengths in parts]
    assert high.tolist() == [int(lengths.max()) for lengths in parts]


def test_a_resumed_run_is_inspected_from_its_start():
    before = loader(sk.RandomSampler(seed=3), ranks=2)
    after = loader(sk.RandomSampler(seed=3), ranks=3)
    after.load_state_dict(before.state_dict(step=3))
    assert at(after, 0, 0, 1).batch.numbers == (7,)
    first = before.plan[0][0]
    assert when(after, int(first), 0)[0].unread == (0,)


def test_a_torch_loader_with_batches_is_inspected_like_a_loader():
    sampler = sk.TorchSampler(sk.RandomSampler(seed=3), range(40), sk.World(2, 1))
    batches = sk.TorchBatchSampler(sampler, batches=sk.TokenBatches(30, lengths=LENGTHS))
    bridge = torch.utils.data.DataLoader(range(40), batch_sampler=batches)
    ours = loader(sk.RandomSampler(seed=3), ranks=2)
    for step in range(4):
        assert at(bridge, 0, step, 1).ids.tolist() == at(ours, 0, step, 1).ids.tolist()


def test_the_figures_of_batches_are_those_of_the_batches():
    lengths = np.clip(np.random.default_rng(0).lognormal(5, 1, 20_000), 4, 2000).astype(np.int64)
    recipe = sk.TokenBatches(8000, lengths=lengths)
    run = sk.Loader(range(20_000), sk.RandomSampler(seed=7), batches=recipe, world=sk.World(4, 0))
    figures = batch_figures(RunView.of(run), 0)
    batches = list(run.plan)
    padded = np.array([batch.size * lengths[batch].max() for batch in batches])
    steps = padded[: padded.size // 4 * 4].reshape(-1, 4)
    assert figures.batches == len(batches)
    assert (figures.smallest, figures.largest) == (min(map(len, batches)), max(map(len, batches)))
    assert figures.mean == pytest.approx(20_000 / len(batches))
    assert RunView.of(run).samples_a_batch == round(np.mean([len(batch) for batch in batches[:64]]))
    assert figures.tokens == lengths.sum()
    assert (
        figures.efficiency
        == pytest.approx(lengths.sum() / padded.sum())
        == pytest.approx(run.plan.efficiency())
    )
    assert figures.fill == pytest.approx(lengths.sum() / (len(batches) * 8000))
    assert figures.imbalance == pytest.approx(steps.max(axis=1).sum() / steps.mean(axis=1).sum())
    assert 0.1 < figures.plain_efficiency < 0.4
    assert figures.saved == pytest.approx(1 - figures.plain_efficiency / figures.efficiency)
    assert figures.is_counted
    # In each epoch the same batches come in another order: companions stay the same.
    fixed = sk.BucketBatches(None, 2, keys=np.arange(20_000) // 2)
    again = sk.Loader(range(20_000), sk.RandomSampler(seed=7), batches=fixed, world=sk.World(4, 0))
    assert new_companions(RunView.of(again), 0) == pytest.approx(1 / 6)
    assert new_companions(RunView.of(run), 0) > 0.5


def test_a_long_epoch_is_sampled_in_steps_and_marked_as_estimated():
    recipe = sk.TokenBatches(8, lengths=np.tile(np.arange(1, 9), 20_000))
    run = sk.Loader(range(160_000), sk.RandomSampler(), batches=recipe, world=sk.World(8, 0))
    figures = batch_figures(RunView.of(run), 0)
    assert not figures.is_counted
    assert figures.efficiency == pytest.approx(run.plan.efficiency(), abs=0.01)
    assert figures.tokens == pytest.approx(160_000 * 4.5, rel=0.02)


@pytest.mark.parametrize(
    ("recipe", "efficiency"),
    [
        (sk.ClassBatches(2, 4, labels=[number % 3 for number in range(40)]), None),
        (sk.BucketBatches(None, 4, keys=[number % 3 for number in range(40)]), None),
        (sk.TokenBatches(60, lengths=[[length, 2] for length in LENGTHS]), float),
        (sk.BucketBatches([5, 13], [6, 2], lengths=LENGTHS), float),
    ],
    ids=["classes", "keys", "pairs", "boundaries"],
)
def test_every_recipe_has_a_plan_and_the_data_of_a_picture(recipe, efficiency):
    run = sk.Loader(range(40), sk.RandomSampler(seed=1), batches=recipe, world=sk.World(2, 0))
    planned = plan(run)
    assert (planned.batches.efficiency is None) == (efficiency is None)
    assert planned.steps == len(list(run))
    assert planned.to_dict()["batches"]["batches"] == len(run.plan)
    shown = plot_data({"run": run})[0]
    steps, ranks, low, high = shown.batches
    assert shown.has_lengths == (efficiency is not None)
    assert steps.size == ranks.size == low.size == high.size == 2 * (len(run.plan) // 2) * shown.has_lengths


def test_all_batches_are_counted_if_there_are_more_ranks_than_batches(monkeypatch):
    monkeypatch.setattr("samplerkit.inspect.batches.COUNTED_BATCHES", 4)
    run = loader(sk.RandomSampler(seed=3), ranks=40)
    figures = batch_figures(RunView.of(run), 0)
    assert 4 < figures.batches == len(run.plan) < 40
    assert figures.tokens == sum(LENGTHS)
