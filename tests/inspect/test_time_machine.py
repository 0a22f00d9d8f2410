"""What `at` and `when` report of a run, as its loaders read it; the figures and plots of batches."""

import json
from collections import defaultdict
from functools import partial

import numpy as np
import pytest
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st

import samplerkit as sk
from samplerkit.inspect import check
from samplerkit.inspect.batches import batch_figures, new_companions
from samplerkit.inspect.doctor.findings import MEANINGS
from samplerkit.inspect.pictures.plot_data import plot_data
from samplerkit.inspect.plan import plan
from samplerkit.inspect.time_machine import at, when
from samplerkit.inspect.view import RunView
from tests.chains import under
from tests.numbers import Numbers
from tests.testing.strategies import chains


def reported_steps(make, ranks, epochs=(0,)):
    """Yields each step as `at` reports it, with the inspected loader and the batch that a loop received.

    After the last one, `when` must report each time that a sample was read, and no other, for all samples.

    Args:
        make: returns the loader of a rank, of any kind.
        ranks: the number of ranks.
        epochs: the epochs that each of them reads.
    """
    inspected, seen = make(0), defaultdict(list)
    for rank in range(ranks):
        loader = make(rank)
        for epoch in epochs:
            steps = num_steps = 0
            for step, batch in enumerate(loader):
                reported = at(inspected, epoch, step, rank)
                steps, num_steps = step + 1, reported.num_steps
                if hasattr(loader, "pads"):
                    assert reported.pads.tolist() == loader.pads(step).tolist()
                for place, sample in enumerate(reported.ids.tolist()):
                    seen[epoch, sample].append((rank, step, place, bool(reported.pads[place])))
                yield inspected, reported, batch
            assert steps == num_steps
    view = RunView.of(inspected)
    leaves_out = view.run.tail == "drop" or view.drops_last or view.start > 0
    for sample in range(view.layout.num_samples):
        for result in when(inspected, sample, epochs):
            times = [(time.rank, time.step, time.place, time.is_pad) for time in result.occurrences]
            assert sorted(times) == sorted(seen[result.epoch, sample])
            assert leaves_out or not result.unread


LAYOUT = sk.Layout([9, 0, 17, 4, 11, 6])
ROWS = Numbers(LAYOUT)


def partial_on(ranks, rank):
    sampler = sk.RandomSampler(shuffle="partial", partial_size=8, seed=5)
    return sk.Loader(ROWS, sampler, batch_size=4, world=sk.World(ranks, rank))


def resumed(rank):
    """A rank of two, of a run in which four ranks had read a step."""
    run = partial_on(2, rank)
    run.load_state_dict(json.loads(json.dumps(partial_on(4, 0).state_dict(step=1))))
    return run


def plain(offset, drop_last, rank):
    recipe = under(sk.RandomSampler(seed=3), sk.DistributedSampler(shuffle="files", seed=5))
    if offset is not None:
        recipe = sk.DistributedSampler(shuffle="files", lanes=2, offset=offset, seed=5)
    sampler = sk.TorchSampler(recipe, ROWS, sk.World(3, rank))
    return torch.utils.data.DataLoader(ROWS, batch_size=4, sampler=sampler, drop_last=drop_last)


RUNS = {
    "resumed on another number of ranks": (2, resumed),
    **{
        f"a plain DataLoader, {name}, {drop_last=}": (3, partial(plain, offset, drop_last))
        for name, offset, drop_last in (
            ("padded", -1, False),
            ("rotated", 1, True),
            ("below the root", None, False),
        )
    },
}


@pytest.mark.parametrize(("ranks", "make"), RUNS.values(), ids=RUNS.keys())
def test_at_and_when_agree_with_what_all_ranks_read_in_three_epochs(ranks, make):
    for _, reported, batch in reported_steps(make, ranks, range(3)):
        assert reported.ids.tolist() == batch.tolist()
        assert np.array_equal(reported.files, LAYOUT.file_of(reported.ids))


@pytest.mark.parametrize("offset", [-1, 1])
def test_samples_that_a_plain_dataloader_drops_are_in_no_figure(offset):
    recipe = sk.DistributedSampler(shuffle="global", offset=offset)
    sampler = sk.TorchSampler(recipe, ROWS, sk.World(3, 0))
    planned = plan(torch.utils.data.DataLoader(ROWS, batch_size=5, sampler=sampler, drop_last=True))
    assert (planned.steps, planned.epoch_samples, planned.dropped, planned.pads) == (3, 45, 2, 0)


def test_samples_read_before_a_resume_are_unread():
    unread = [when(resumed(0), sample, 0)[0].unread for sample in range(len(LAYOUT))]
    assert sorted(position for positions in unread for position in positions) == list(range(16))


@settings(max_examples=30, deadline=None)
@given(case=chains(), tail=st.sampled_from(["pad", "drop", "ragged"]), batch=st.integers(1, 5))
def test_every_legal_chain_can_be_inspected(case, tail, batch):
    alone = None if case.dealer is not None else sk.World(1, 0)

    def run(rank):
        world = case.world(rank) or alone
        rows = Numbers(case.layout)
        loader = sk.Loader(rows, case.sampler(rank), batch_size=batch, tail=tail, world=world)
        loader.set_epoch(case.epoch)
        return loader

    steps, pads = [len(run(rank)) for rank in case.shards], 0
    for _, reported, read in reported_steps(run, len(steps), [case.epoch]):
        assert reported.ids.tolist() == read.tolist()
        pads += reported.pads.sum()
    planned = plan(run(0), epoch=case.epoch)
    assert (planned.fewest_steps, planned.steps, planned.pads) == (min(steps), max(steps), pads)
    assert all(finding.code in MEANINGS for finding in check(run(0)))


HUGE = 10**12


@pytest.mark.parametrize("shuffle", ["global", "partial", "files"])
def test_an_epoch_of_1e12_samples_is_inspected_without_a_search(shuffle):
    layout = sk.Layout([HUGE // 1000] * 1000)
    sampler = sk.DistributedSampler(shuffle=shuffle, seed=1)
    source = sk.Loader(layout, sampler, batch_size=256, world=sk.World(8, 3))
    last = at(source, epoch=7, step=0, rank=0).num_steps - 1
    for step in (0, 340, 10**8 + 1, last):
        read = at(source, epoch=7, step=step, rank=3)
        for place in (0, len(read.ids) - 1):
            (result,) = when(source, int(read.ids[place]), 7)
            (time,) = result.occurrences
            assert (time.rank, time.step, time.place, time.position) == (
                3,
                step,
                place,
                read.positions[place],
            )


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
