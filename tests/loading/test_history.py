"""What a run has read, as an order, is what its loops received; what it cannot say, it does not say."""

from __future__ import annotations

import json
import random
import tracemalloc

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.compat import mindspore
from samplerkit.compat.megatron.samplers import MegatronPretrainingRandomSampler
from samplerkit.loading.state.past import MOST_STRETCHES, EpochsRead, Past
from tests.loading.forged_states import forged_section
from tests.numbers import Damaged, Numbers

SIZE = 24
LENGTHS = [1 + number * 7 % 11 for number in range(SIZE)]
PARTS = {"web": 12, "code": 8, "books": 4}


class Ids(Numbers):
    """Each sample is its id, also in parts of it."""

    def __getsegments__(self, segments):
        return [id for id, _, _ in segments.tolist()]


FILES, TREE = Ids(sk.Layout([9, 0, 15])), Ids(sk.Layout.tree(PARTS))


def mixture(seed):
    weights = {"web": 0.5, "code": 0.3, "books": 0.2}
    return sk.MixtureSampler(dict.fromkeys(PARTS), 20, weights=weights, seed=seed, lanes=2)


KINDS = {
    "shuffled": lambda seed: (FILES, sk.RandomSampler(seed=seed), {}),
    "in storage order": lambda seed: (FILES, None, {}),
    "by files": lambda seed: (FILES, sk.DistributedSampler(shuffle="files", seed=seed), {}),
    "a part of them": lambda seed: (FILES, sk.DistributedSampler(num_samples=5, seed=seed), {}),
    "weighted": lambda seed: (FILES, sk.WeightedRandomSampler(LENGTHS, seed=seed), {}),
    "mixed": lambda seed: (TREE, mixture(seed), {}),
    "edited": lambda seed: (TREE, sk.Ledger(mixture(seed)), {}),
    "as in MindSpore": lambda seed: (FILES, mindspore.RandomSampler(seed=seed), {}),
    "as in Megatron": lambda seed: (FILES, MegatronPretrainingRandomSampler(2, 2), {}),
    "batches": lambda seed: (
        FILES,
        sk.RandomSampler(seed=seed),
        {"batches": sk.TokenBatches(22, lengths=LENGTHS)},
    ),
    "batches of windows": lambda seed: (
        TREE,
        mixture(seed),
        {"batches": sk.TokenBatches(22, lengths=LENGTHS, window=8)},
    ),
    "edited batches": lambda seed: (
        TREE,
        sk.Ledger(mixture(seed)),
        {"batches": sk.TokenBatches(22, lengths=LENGTHS, window=4)},
    ),
    "edited packs": lambda seed: (
        TREE,
        sk.Ledger(mixture(seed)),
        {"batches": sk.PackBatches(8, lengths=LENGTHS, window=4)},
    ),
    "packs": lambda seed: (
        FILES,
        sk.RandomSampler(seed=seed),
        {"batches": sk.PackBatches(8, lengths=LENGTHS)},
    ),
}


class Job:
    """The ranks of a job in lock step, and a log of what their loops received.

    Args:
        seed: from which the kind of run, and all that happens to it, is drawn.
    """

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.kind = self.dice.choice([*KINDS])
        self.seed, self.edits, self.log, self.saved = seed % 5, (), [], []
        tails = ["pad", "drop", "ragged"] + ["split"] * (self.kind == "batches")
        self.tail, self.breaks = self.dice.choice(tails), self.dice.choice(["restart", "continue"])
        self.iterators = None
        self.start()

    def start(self, state=None):
        """Starts the job on any number of ranks, from a state or from the beginning."""
        ranks = self.dice.randint(1, 3)
        data, sampler, options = KINDS[self.kind](self.seed)
        sampler = sk.Ledger(sampler.get_child(), self.edits) if self.edits else sampler
        options = options or {"batch_size": self.dice.randint(1, 4)}
        self.loaders = [
            sk.Loader(
                data,
                sampler,
                world=sk.World(ranks, rank),
                tail=self.tail,
                after_break=self.breaks,
                collate_fn=lambda batch: batch,
                **options,
            )
            for rank in range(ranks)
        ]
        self.iterators = None
        for loader in self.loaders if state else ():
            loader.load_state_dict(state)

    def read(self):
        """Reads some steps; the log has the ids of each, without pads, in the order of the epoch."""
        self.iterators = self.iterators or [iter(loader) for loader in self.loaders]
        for _ in range(self.dice.randint(1, 9)):
            received = [next(iterator, None) for iterator in self.iterators]
            read = []
            for loader, batch in zip(self.loaders, received, strict=True):
                if batch is not None:
                    step = loader.step - 1
                    positions = loader._reading.draws(step)
                    if loader.plan is not None:  # batches come one after another, samples by their positions
                        positions[:] = loader.world.shard_id
                    kept = ~loader.pads(step)
                    read += zip(positions[kept].tolist(), np.array(batch)[kept].tolist(), strict=True)
            self.log += [id for _, id in sorted(read, key=lambda one: one[0])]
            if all(batch is None for batch in received):
                self.iterators = None
                return

    def leave(self):
        """Leaves the epoch in the middle."""
        for iterator in self.iterators or ():
            iterator.close()
        self.iterators = None

    def set_epoch(self):
        """Sends all ranks to another epoch."""
        self.leave()
        epoch = self.dice.randint(0, 4)
        for loader in self.loaders:
            loader.set_epoch(epoch)

    def save(self):
        """Saves a state, with the log up to there."""
        self.saved.append((json.dumps(self.loaders[0].state_dict()), len(self.log), self.edits))

    def kill(self):
        """Ends the job and starts it from a state; what was read behind that is not in its past."""
        self.leave()
        state, length, self.edits = self.dice.choice(self.saved) if self.saved else (None, 0, ())
        self.saved = [one for one in self.saved if one[1] <= length]
        self.log = self.log[:length]
        self.start(state and json.loads(state))

    def edit(self):
        """Skips samples, or changes weights, from some position on, where the run can be edited."""
        if self.kind.startswith("edited"):
            said = self.dice.choice(
                [{"skip": 5}, {"weights": {"web": 0.2, "code": 0.4, "books": 0.4}}, {"without": [1, 14]}]
            )
            latest = max((edit.at for edit in self.edits), default=0)
            at = max(latest, self.loaders[0].editable_from) + self.dice.randint(0, 9)
            # Weights are said once at each position.
            at += "weights" in said and any(edit.at == at and edit.weights for edit in self.edits)
            for loader in self.loaders:
                loader.edit(at=at, **said)
            self.edits = self.loaders[0].sampler.edits


def check(job):
    """The history of the loader, and that of each saved state, holds what the log holds, in its order."""
    loader = job.loaders[0]
    history = loader.history()
    assert history.is_complete, job.kind
    assert history[:].tolist() == job.log, (job.kind, job.tail, history.past)
    size = len(job.log)
    counts = np.bincount(job.log, minlength=SIZE)
    assert history.count(list(range(SIZE))).tolist() == counts.tolist()
    assert len(history) == size
    assert history.unread()[:].tolist() == np.flatnonzero(counts == 0).tolist()
    for state, length, _ in job.saved[-2:]:
        saved = json.loads(state)
        assert loader.history(saved)[:].tolist() == job.log[:length], (job.kind, history.past)
        assert history.since(saved)[:].tolist() == job.log[length:], (job.kind, history.past)
    if job.log:
        which = job.dice.randrange(size)
        assert which in history.positions_of(job.log[which])
        assert history.up_to(which)[:].tolist() == job.log[:which]


def run_at_random(seed):
    """Lets a job do whatever it can, and checks its history at the end."""
    job = Job(seed)
    acts = [job.read] * 6 + [job.save] * 2 + [job.leave, job.set_epoch, job.kill, job.edit]
    for _ in range(job.dice.randint(1, 20)):
        job.dice.choice(acts)()
    check(job)
    job.leave()
    return job


def test_the_history_of_random_runs_is_the_log_of_what_their_loops_received():
    assert {run_at_random(seed).kind for seed in range(40)} == {*KINDS}


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(1_000, 2_000, 250))
def test_the_history_of_thousands_of_random_runs_is_the_log_of_what_their_loops_received(first):
    read = sum(len(run_at_random(seed).log) for seed in range(first, first + 250))
    print(f"250 runs, {read:,} samples, 0 differences")
    assert read > 250


def test_a_history_of_forty_epochs_of_a_trillion_samples_is_asked_in_small_memory():
    loader = sk.Loader(range(10**12), sk.RandomSampler(seed=7), batch_size=4)
    history = sk.History(loader.history().run, Past((EpochsRead(0, 40, 0, -1), EpochsRead(40, 1, 0, 1000))))
    tracemalloc.start()
    assert len(history) == 40 * 10**12 + 1000
    assert history.count(list(range(1000))).tolist() == [40] * 1000
    middle = history[20 * 10**12 + 5 : 20 * 10**12 + 1005]
    assert middle.tolist() == loader._cursor.run.undealt(20)[5:1005].tolist()
    assert history.epochs_of([0, 20 * 10**12 + 5, -1 + len(history)]).tolist() == [0, 20, 40]
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


# What a state holds.


def test_more_than_64_stretches_are_summed_up_and_the_answer_is_said_to_be_a_bound():
    loader = sk.Loader(range(1000), sk.RandomSampler(seed=1), batch_size=100)
    for epoch in [5, 0] * MOST_STRETCHES:
        loader.set_epoch(epoch)
        next(iter(loader))
    history = loader.history()
    assert (len(history.past.stretches), history.past.older) == (MOST_STRETCHES, MOST_STRETCHES)
    assert (history.is_complete, len(history)) == (False, 100 * MOST_STRETCHES)
    assert len(json.dumps(loader.state_dict())) < 4096
    with pytest.raises(sk.StateError, match="does not hold all that was read"):
        history.unread()


def test_what_was_read_by_another_order_is_known_no_more_and_the_answer_is_said_to_be_a_bound():
    before = sk.Loader(range(10), sk.RandomSampler(seed=1), batch_size=5)
    for _ in before:
        pass
    after = sk.Loader(range(10), sk.RandomSampler(seed=2), batch_size=5)
    after.load_state_dict(before.state_dict(), allow={"seed"})
    assert after.history().past == Past((), older=1)
    next(iter(after))
    assert after.history()[:].tolist() == after.order[:5].tolist()
    assert not after.history().is_complete


def test_an_edit_cannot_change_an_epoch_that_was_read_before_the_run_went_back():
    loader = sk.Loader(range(10), sk.Ledger(sk.RandomSampler(seed=1)), batch_size=5)
    loader.set_epoch(3)
    next(iter(loader))
    loader.set_epoch(0)
    next(iter(loader))
    resumed = sk.Loader(range(10), sk.Ledger(sk.RandomSampler(seed=1)), batch_size=5)
    resumed.load_state_dict(loader.state_dict())
    with pytest.raises(sk.ArgumentRangeError, match="up to which samples were requested"):
        resumed.edit(at=20, skip=5)


@pytest.mark.parametrize(("epoch", "batches", "back_to", "editable"), [(3, 1, 1, 35), (0, 2, 0, 10)])
def test_a_resumed_run_that_goes_back_can_be_edited_behind_all_that_was_read(
    epoch, batches, back_to, editable
):
    loader, resumed = (
        sk.Loader(range(10), sk.Ledger(sk.RandomSampler(seed=1)), batch_size=5, after_break="continue")
        for _ in range(2)
    )
    loader.set_epoch(epoch)
    assert sum(1 for _ in zip(range(batches), loader, strict=False)) == batches
    if back_to == epoch:
        loader.set_epoch(back_to)
    resumed.load_state_dict(loader.state_dict())
    resumed.set_epoch(back_to)
    assert resumed.editable_from == editable


# What can be asked.


@pytest.fixture
def read_loader():
    """A loader of 30 samples in three parts, 25 of which were read."""
    loader = sk.Loader(TREE, sk.RandomSampler(seed=3), batch_size=5)
    for _ in zip(range(4), loader, strict=False):
        pass
    return loader


def test_the_history_counts_the_samples_of_each_part(read_loader):
    history = read_loader.history()
    counted = TREE.layout.part_starts.searchsorted(history[:], side="right") - 1
    assert history.by_source() == {name: int((counted == at).sum()) for at, name in enumerate(PARTS)}
    assert history.unread()[:].tolist() == sorted({*range(24)} - {*history})
    assert history.up_to(7)[:].tolist() == history[:7].tolist()
    plain = sk.Loader(range(10), sk.RandomSampler(), batch_size=5)
    assert plain.history().by_source() == {"all": 0}


def test_a_config_says_what_a_state_has_read():
    written = {
        "dataset": {"kind": "size", "size": 100},
        "sampler": {"kind": "random", "seed": 4},
        "loader": {"batch_size": 10},
    }
    config = sk.load_config(written)
    loader = sk.Loader(config.dataset, config.sampler, batch_size=7, world=sk.World(2, 1))
    history = sk.History.of(config, loader.state_dict(step=3))
    assert history[:].tolist() == loader.order[:42].tolist()


def test_windows_of_another_length_carry_what_was_read_over(tmp_path):
    tokens = np.arange(960, dtype=np.uint16)
    np.save(tmp_path / "tokens.npy", tokens)

    def loader(seq_len):
        data = sk.TokenDataset(str(tmp_path / "tokens.npy"), seq_len, block_len=32)
        return sk.Loader(data, sk.BlockSampler(pool=3, seed=2), batch_size=96 // seq_len, tail="drop")

    before, after = loader(16), loader(8)
    for _ in zip(range(4), before, strict=False):
        pass
    after.load_state_dict(before.state_dict())
    read, again = (
        np.sort(np.add.outer(run.history()[:] * seq_len, np.arange(seq_len)), axis=None)
        for run, seq_len in ((before, 16), (after, 8))
    )
    assert read.size == 4 * 96
    assert np.array_equal(read, again)


def test_samples_that_could_not_be_read_are_in_the_history_and_the_loader_names_them():
    loader = sk.Loader(Damaged(sk.Layout(10), [3]), sk.SequentialSampler(), batch_size=5, bad_samples="skip")
    for _ in loader:
        pass
    assert loader.history()[:].tolist() == list(range(10))
    assert [skipped.id for skipped in loader.skipped] == [3]


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda history: history[99], sk.OutOfDatasetError),
        (lambda history: history.up_to(21), sk.OutOfDatasetError),
        (lambda history: history.up_to(-1), sk.OutOfDatasetError),
        (lambda history: history.index(next(iter({*range(24)} - {*history}))), sk.ArgumentValueError),
    ],
)
def test_what_cannot_be_answered_is_a_typed_error(read_loader, ask, error):
    with pytest.raises(error):
        ask(read_loader.history())


@pytest.mark.parametrize(
    "said",
    [
        {"stretches": [[0, 1, 0, 24]]},
        {"stretches": [[5, 1, 0, 10]]},
        {"stretches": [[0, 1, 0, 5], [0, 1, 0, 5]]},
        {"stretches": [[0, 0, 0, 10]]},
        {"stretches": [[0, 1, 9, 9]]},
        {"stretches": [[0, 1, -1, 9]]},
        {"stretches": [[0, 1, 0]]},
        {"stretches": "all"},
        {"older": -1},
        {"older": 7},
    ],
    ids=str,
)
def test_a_state_of_a_past_that_is_not_in_this_one_is_refused(read_loader, said):
    state = forged_section(read_loader.state_dict(), "read", **said)
    with pytest.raises(sk.StateError):
        read_loader.history().since(state)
