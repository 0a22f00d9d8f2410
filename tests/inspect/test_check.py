"""The doctor finds each planted mistake, with its mend, and is silent on healthy set-ups."""

from __future__ import annotations

import functools
import multiprocessing
import os
import random
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    Subset,
    WeightedRandomSampler,
    get_worker_info,
)
from torchdata.stateful_dataloader import StatefulDataLoader

import samplerkit as sk
from samplerkit.inspect import check
from samplerkit.inspect.doctor.finding import CODES
from samplerkit.storage.files.dataset import FileDataset
from tests.inspect import unweighted_loss, weighted_loss
from tests.loading.rings import Rings

ROWS = range(1000)
FOUR = sk.World(4, 1)


class Epochs:
    """A dataset with an epoch of its own."""

    def __init__(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return index

    def set_epoch(self, epoch):
        self.epoch = epoch


class Shards:
    """A dataset of remote shards, as far as the doctor asks it."""

    is_remote = True

    def __init__(self, fetch="ranges", max_cache_bytes=None, fails=False):
        self.layout = sk.Layout([100] * 16)
        self.max_cache_bytes, self.fails = max_cache_bytes, fails
        if fetch is not None:  # only shards can be read in two ways
            self.fetch = fetch

    def __len__(self):
        return 1600

    def shard_bytes(self):
        if self.fails:
            raise sk.DatasetError("https://host/0.tar", "cannot be reached")
        return np.full(16, 5 << 20)


class Stream(IterableDataset):
    """A stream that nobody cuts."""

    def __init__(self, shards=64):
        self.num_shards = shards

    def __iter__(self):
        return iter(range(100))


class CutStream(Stream):
    """A stream that workers and ranks share."""

    def __iter__(self):
        info, rank, world_size = get_worker_info(), 0, 4
        workers = 1 if info is None else info.num_workers
        return iter(range(rank, 100, world_size * workers))


class Dealt(torch.utils.data.Sampler):
    """Somebody's wrapper that deals another sampler's ids."""

    def __init__(self, sampler, num_replicas, rank):
        self.sampler, self.num_replicas, self.rank = sampler, num_replicas, rank

    def __iter__(self):
        return iter(list(self.sampler)[self.rank :: self.num_replicas])

    def __len__(self):
        return len(self.sampler) // self.num_replicas


class FromNumpy(torch.utils.data.Sampler):
    """Somebody's sampler that shuffles by numpy's process-wide state, or by a generator of its own."""

    def __init__(self, generator=None):
        self.generator_of_numpy = generator

    def __iter__(self):
        own = self.generator_of_numpy
        return iter((np.random if own is None else np.random.default_rng(own)).permutation(100).tolist())

    def __len__(self):
        return 100


class Advancing(FromNumpy):
    """Somebody's sampler that moves on to the next epoch by itself, as accelerate's does."""

    epoch = 0

    def __iter__(self):
        yield from np.random.default_rng(self.epoch).permutation(100).tolist()
        self.set_epoch(self.epoch + 1)

    def set_epoch(self, epoch):
        self.epoch = epoch


class Endless(torch.utils.data.Sampler):
    """A sampler that does not know its length."""

    def __iter__(self):
        return iter(range(100))


class DrawsFromPython(sk.Sampler):
    """A samplerkit sampler of a user's that uses Python's process-wide state."""

    def draw(self, layout, context):
        return random.sample(range(len(layout)), len(layout))


def of_torch(rank=1, rows=ROWS, epoch=1, ranks=4, **options):
    sampler = DistributedSampler(rows, num_replicas=ranks, rank=rank, **options)
    sampler.set_epoch(epoch)
    return sampler


def over(child, parent):
    parent.add_child(child)
    return parent


def ours(sampler, dataset=ROWS, world=FOUR, batch_size=8, **options):
    return sk.Loader(dataset, sampler, batch_size=batch_size, world=world, **options)


def of_files(sizes, world=FOUR, workers=0, **options):
    return ours(sk.RandomSampler(**options), sk.Layout(sizes), world, num_workers=workers)


def of_eight(max_files=4):
    return FileDataset([f"{number}.npz" for number in range(8)], "npz", [100] * 8, max_files=max_files)


def with_list(entries, workers):
    rows = Epochs(0)
    rows.paths = [None] * entries
    return DataLoader(rows, num_workers=workers)


def bridged(sampler, dataset=ROWS, world=FOUR, make=DataLoader, **options):
    return make(dataset, batch_size=8, sampler=sk.TorchSampler(sampler, dataset, world), **options)


def deal_of_a_deal():
    outer, inner = sk.DistributedSampler(4, 1), sk.DistributedSampler(4, 1)
    outer.add_child(inner)
    return ours(outer)


def restored():
    loader = bridged(sk.RandomSampler(), world=sk.World(1, 0), num_workers=2)
    state = ours(sk.RandomSampler(), world=sk.World(1, 0)).state_dict(step=3)
    loader.sampler.load_state_dict({**state})
    return loader


CLASSES = np.arange(1000) // 100


def by_class(*links, **options):
    for parent, child in pairwise(links):
        parent.add_child(child)
    return ours(links[0], world=sk.World(1, 0), **options)


TOKENS = [1 + number * 7 % 30 for number in range(1000)]


def tokens(budget=240, **more):
    return sk.TokenBatches(budget, **{"lengths": TOKENS, "pool": 4, **more})


def in_batches(recipe, rows=ROWS, sampler=None, **more):
    return sk.Loader(rows, sampler or sk.RandomSampler(seed=7), batches=recipe, world=FOUR, **more)


@functools.cache
def folder():
    """Of files that are made for these loaders; it goes when the process ends."""
    return tempfile.TemporaryDirectory()


def windows(*sizes, cut=False, **given):
    """Windows of 100 tokens of files of uint16."""
    place = Path(tempfile.mkdtemp(dir=folder().name))
    for number, size in enumerate(sizes):
        np.save(place / f"{number}.npy", np.zeros(size, np.uint16))
        if cut:
            os.truncate(place / f"{number}.npy", size)
    return sk.TokenDataset(str(place / "*.npy"), 100, **given)


PLANTED = {
    "two distributed samplers, one over the other's ids": (
        "double-sharding",
        lambda: DataLoader(ROWS, sampler=Dealt(of_torch(), 4, 1)),
    ),
    "a Subset cut by rank under a distributed sampler": (
        "double-sharding",
        lambda: DataLoader(Subset(ROWS, range(1, 1000, 4)), sampler=of_torch(rows=range(250))),
    ),
    "a Subset cut by rank under a Loader": (
        "double-sharding",
        lambda: ours(sk.RandomSampler(), Subset(ROWS, list(range(1, 1000, 4)))),
    ),
    "a distributed sampler below another one": ("double-sharding", deal_of_a_deal),
    "torch's distributed sampler inside of a Loader": (
        "double-sharding",
        lambda: ours(sk.IterSampler(of_torch())),
    ),
    "accelerate's kind of batch sampler over a TorchSampler": (
        "double-sharding",
        lambda: DataLoader(
            ROWS,
            batch_sampler=Dealt(BatchSampler(sk.TorchSampler(None, ROWS, FOUR), 8, drop_last=False), 4, 1),
        ),
    ),
    "shuffle=True in a job of four": ("not-sharded", lambda: DataLoader(ROWS, shuffle=True)),
    "weights in a job of four": (
        "not-sharded",
        lambda: DataLoader(ROWS, sampler=WeightedRandomSampler([1.0] * 1000, 1000)),
    ),
    "a rank that is written down": ("other-world", lambda: DataLoader(ROWS, sampler=of_torch(rank=0))),
    "a number of ranks of another job": (
        "other-world",
        lambda: DataLoader(ROWS, sampler=of_torch(rank=1, ranks=3)),
    ),
    "set_epoch that is never called": ("epoch-frozen", lambda: DataLoader(ROWS, sampler=of_torch(epoch=0))),
    "persistent workers with a copy of the epoch": (
        "epoch-in-workers",
        lambda: DataLoader(Epochs(0), sampler=of_torch(), num_workers=2, persistent_workers=True),
    ),
    "a padded evaluation": (
        "padded-evaluation",
        lambda: DataLoader(range(1001), sampler=of_torch(rows=range(1001), shuffle=False)),
    ),
    "a padded evaluation in a Loader": (
        "padded-evaluation",
        lambda: ours(sk.SequentialSampler(), range(1001)),
    ),
    "a padded evaluation through the bridge": (
        "padded-evaluation",
        lambda: bridged(sk.DistributedSampler(shuffle=False), range(1001)),
    ),
    "a repeat of shuffled files on four ranks": (
        "repeats-break-lanes",
        lambda: ours(over(sk.RandomSampler(shuffle="files"), sk.RepeatSampler(3)), sk.Layout([100] * 12)),
    ),
    "repeats by factors as they stand": (
        "copies-together",
        lambda: ours(sk.RepeatFactorSampler([1.5] * 800), range(800)),
    ),
    "training on what is held out": (
        "held-out-shuffled",
        lambda: ours(over(sk.FoldSampler(5, 0, held_out=True), sk.RandomSampler()), range(800)),
    ),
    "folds of windows that overlap": (
        "folds-overlap",
        lambda: ours(over(sk.WindowSampler(4), sk.FoldSampler(5, 0)), sk.Layout([100] * 8)),
    ),
    "ragged training": ("uneven-steps", lambda: ours(sk.RandomSampler(), range(1025), tail="ragged")),
    "a seed from the clock": ("seed-from-clock", lambda: ours(sk.RandomSampler(seed=int(time.time())))),
    "torch's seed from the clock, in milliseconds": (
        "seed-from-clock",
        lambda: DataLoader(ROWS, sampler=of_torch(seed=int(time.time() * 1000))),
    ),
    "torch's RandomSampler inside of a Loader": (
        "random-from-process",
        lambda: ours(sk.IterSampler(torch.utils.data.RandomSampler(ROWS))),
    ),
    "a wrapper that deals numpy's shuffle": (
        "random-from-process",
        lambda: DataLoader(range(100), sampler=Dealt(FromNumpy(), 4, 1)),
    ),
    "a user's sampler that draws from Python's state": (
        "random-from-process",
        lambda: ours(DrawsFromPython()),
    ),
    "blocks as large as the files": (
        "partial-size-in-file",
        lambda: of_files([1437] * 8, shuffle="partial", partial_size=1437),
    ),
    "blocks that divide the files": (
        "partial-size-in-file",
        lambda: of_files([1000] * 8, shuffle="partial", partial_size=500),
    ),
    "fewer files than ranks x workers": (
        "few-files",
        lambda: of_files([100] * 6, workers=2, shuffle="files"),
    ),
    "GLOBAL over eight files of which four are kept": (
        "files-read-again",
        lambda: ours(sk.RandomSampler(), of_eight()),
    ),
    "blocks of three files of which two are kept": (
        "files-read-again",
        lambda: ours(sk.RandomSampler(shuffle="partial", partial_size=300), of_eight(2), sk.World(1, 0)),
    ),
    "six lanes on four ranks": ("lanes-do-not-divide", lambda: of_files([100] * 6, shuffle="files", lanes=6)),
    "torch's shuffle of 1e8 samples": (
        "materialises",
        lambda: DataLoader(range(10**8), sampler=of_torch(rows=range(10**8))),
    ),
    "an iterable of 1e8 ids": ("materialises", lambda: ours(sk.IterSampler(range(10**8)), range(10**8))),
    "more weights than torch draws from": (
        "too-many-weights",
        lambda: DataLoader(ROWS, sampler=WeightedRandomSampler(np.ones(2**24 + 1, np.float32), 10)),
    ),
    "a list of five million paths and four workers": ("python-lists", lambda: with_list(5_000_000, 4)),
    "an incomplete batch that is the only one": (
        "drops-everything",
        lambda: DataLoader(range(100), 32, sampler=of_torch(rows=range(100)), drop_last=True),
    ),
    "an incomplete global batch that is the only one": (
        "drops-everything",
        lambda: ours(sk.RandomSampler(), range(31), tail="drop"),
    ),
    "a batch larger than the shard": (
        "batch-larger-than-shard",
        lambda: ours(sk.RandomSampler(), batch_size=300),
    ),
    "a stream that workers do not cut": ("workers-repeat", lambda: DataLoader(Stream(), num_workers=2)),
    "a stream that ranks do not cut": ("ranks-repeat", lambda: DataLoader(Stream())),
    "a stream of few shards": ("idle-workers", lambda: DataLoader(CutStream(6), num_workers=2)),
    "a bridge whose state was loaded, with workers": ("resume-inexact", restored),
    "GLOBAL over small samples in remote shards": (
        "costly-remote",
        lambda: ours(sk.RandomSampler(), Shards()),
    ),
    "GLOBAL over remote files that a small cache does not hold": (
        "costly-remote",
        lambda: ours(sk.RandomSampler(), Shards(fetch=None, max_cache_bytes=10 << 20)),
    ),
    "samples of remote shards whose sizes cannot be asked": (
        "costly-remote",
        lambda: ours(sk.RandomSampler(), Shards(fails=True)),
    ),
    "remote files that nobody has counted": (
        "lengths-not-told",
        lambda: ours(sk.RandomSampler(), FileDataset(["http://127.0.0.1:9/a.npz"], "npz")),
    ),
    "a ConcatDataset that the core pads": (
        "concat-padded",
        lambda: bridged(sk.DistributedSampler(seed=7), ConcatDataset([range(3), range(1000)])),
    ),
    "PK below nothing that mixes": ("one-class-batches", lambda: by_class(sk.PKSampler(50, labels=CLASSES))),
    "PK whose classes are shuffled": (
        "one-class-batches",
        lambda: by_class(sk.PKSampler(50, shuffle=True, labels=CLASSES)),
    ),
    "lengths of another dataset": ("lengths-do-not-fit", lambda: in_batches(tokens(lengths=TOKENS[:-1]))),
    "lengths that are negative": ("lengths-do-not-fit", lambda: in_batches(tokens(lengths=[-1] * 1000))),
    "a file of lengths that is not there": (
        "lengths-do-not-fit",
        lambda: in_batches(tokens(lengths="no.npy")),
    ),
    "keys of another dataset": (
        "lengths-do-not-fit",
        lambda: in_batches(sk.BucketBatches(None, 4, keys=[1] * 7)),
    ),
    "a sample above the budget": ("sample-above-budget", lambda: in_batches(tokens(20))),
    "a sample above the last boundary": (
        "sample-above-budget",
        lambda: in_batches(sk.BucketBatches([10, 20], 4, lengths=TOKENS)),
    ),
    "a document above a pack": (
        "sample-above-budget",
        lambda: in_batches(sk.PackBatches(20, lengths=TOKENS, long="raise")),
    ),
    "documents that are cut off": (
        "tokens-cut-off",
        lambda: in_batches(sk.PackBatches(20, lengths=TOKENS, long="truncate")),
    ),
    "documents that are dropped": (
        "samples-left-out",
        lambda: in_batches(sk.PackBatches(20, lengths=TOKENS, long="drop")),
    ),
    "documents that are read for each part": (
        "documents-read-again",
        lambda: in_batches(sk.PackBatches(4, lengths=TOKENS)),
    ),
    "packs of one document": (
        "padding-wasted",
        lambda: in_batches(sk.PackBatches(40, lengths=[21] * len(TOKENS))),
    ),
    "boundaries that nothing reaches": (
        "boundaries-unreached",
        lambda: in_batches(sk.BucketBatches([10, 20, 30, 300, 3000], 4, lengths=TOKENS)),
    ),
    "one bucket for all": (
        "padding-wasted",
        lambda: in_batches(sk.BucketBatches([30], 16, lengths=TOKENS)),
    ),
    "five abreast on four ranks": ("abreast-does-not-fit", lambda: in_batches(tokens(abreast=5))),
    "two abreast on four ranks": ("abreast-does-not-fit", lambda: in_batches(tokens(abreast=2))),
    "long samples that are dropped": (
        "samples-left-out",
        lambda: in_batches(tokens(25, long="drop", waste=0.5)),
    ),
    "two batches for four ranks": (
        "fewer-batches-than-ranks",
        lambda: in_batches(tokens(240, lengths=[4] * 100), range(100)),
    ),
    "the same, dropped": (
        "fewer-batches-than-ranks",
        lambda: in_batches(tokens(240, lengths=[4] * 100), range(100), tail="drop"),
    ),
    "a loop that takes the mean of means": ("loss-ignores-tokens", lambda: unweighted_loss.loader),
    "batches that one rank may have more of": (
        "uneven-steps",
        lambda: in_batches(tokens(lengths=TOKENS[:998]), range(998), tail="ragged"),
    ),
    "an evaluation whose last batch comes twice": (
        "padded-evaluation",
        lambda: in_batches(tokens(lengths=TOKENS[:950]), range(950), sk.SequentialSampler()),
    ),
    "tokens evaluated in order, with a phase": (
        "evaluation-with-phase",
        lambda: ours(sk.SequentialSampler(), Rings([400], 4, 4)),
    ),
    "a part of a tree without samples": (
        "empty-part",
        lambda: ours(sk.RandomSampler(), sk.TreeDataset({"web": ROWS, "code": []})),
    ),
    "one dataset twice in a tree": (
        "same-part",
        lambda: ours(sk.RandomSampler(), sk.TreeDataset({"a": ROWS, "b": sk.TreeDataset({"c": ROWS})})),
    ),
    "a concatenation of datasets with an epoch": (
        "parts-not-told",
        lambda: ours(sk.RandomSampler(), ConcatDataset([Epochs(0), ROWS])),
    ),
    "windows of blocks in a global order": (
        "seq-len-fixed",
        lambda: ours(sk.RandomSampler(), Rings([4096], 4, 16)),
    ),
    "pools that no step meets": (
        "pools-missed",
        lambda: ours(sk.BlockSampler(251), Rings([4096], 4, 16)),
    ),
    "a tokenizer with more tokens than the type of the files": (
        "vocabulary-beyond-dtype",
        lambda: ours(sk.RandomSampler(), windows(4000, vocab_size=65_537)),
    ),
    "tokens in files shorter than a block": (
        "short-files",
        lambda: ours(sk.RandomSampler(), windows(4000, 50, 60, 2)),
    ),
    "a part of a split that is empty": (
        "refused",
        lambda: ours(sk.RandomSampler(), windows(4000, split="1,0,0", part="test")),
    ),
    "a file of tokens that was cut": (
        "refused",
        lambda: ours(sk.RandomSampler(), windows(4000, cut=True)),
    ),
    "FILES over a dataset without files": ("refused", lambda: ours(sk.RandomSampler(shuffle="files"))),
}


@pytest.mark.parametrize(("code", "make"), PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_mistake_is_found_and_nothing_else(code, make):
    findings = check(make(), world=FOUR)
    assert code in {finding.code for finding in findings}
    assert {finding.code for finding in findings} - {code} <= ALONG_WITH.get(code, set())
    for finding in findings:
        assert finding.code in CODES
        assert finding.severity in {"error", "warning"}
        assert len(finding.what) > 20
        assert len(finding.mend) > 10
        assert "\n" not in str(finding)


ALONG_WITH = {"too-many-weights": {"not-sharded"}, "workers-repeat": {"ranks-repeat"}}
"""What is wrong in the same set-up as well."""


def test_at_least_one_mistake_is_planted_for_every_code_but_the_one_that_needs_a_function():
    assert {code for code, _ in PLANTED.values()} == set(CODES) - {"ranks-disagree"}


HEALTHY = {
    "blocks of tokens whose pools are whole steps": (
        sk.World(4, 0),
        lambda: ours(sk.BlockSampler(8), Rings([4096], 4, 16)),
    ),
    "folds, windows and repeats as they should be": (
        sk.World(4, 0),
        lambda: ours(
            over(
                over(over(sk.FoldSampler(5, 0, by_files=True), sk.WindowSampler(4)), sk.RandomSampler()),
                sk.RepeatSampler(3),
            ),
            sk.Layout([100] * 10),
        ),
    ),
    "repeats by factors that are shuffled": (
        sk.World(4, 0),
        lambda: ours(over(sk.RepeatFactorSampler([1.5] * 800), sk.RandomSampler()), range(800)),
    ),
    "a tree in persistent workers of a plain loader": (
        sk.World(1, 0),
        lambda: DataLoader(
            sk.TreeDataset({"web": ROWS, "code": range(9)}), 10, num_workers=1, persistent_workers=True
        ),
    ),
    "batches of a budget": (FOUR, lambda: in_batches(tokens())),
    "batches of a budget, eight abreast": (FOUR, lambda: in_batches(tokens(abreast=8))),
    "batches in windows": (FOUR, lambda: in_batches(tokens(window=500))),
    "batches with boundaries": (
        FOUR,
        lambda: in_batches(sk.BucketBatches([6, 12, 20, 30], [32, 16, 8, 8], lengths=TOKENS)),
    ),
    "batches by class": (
        FOUR,
        lambda: in_batches(sk.ClassBatches(2, 4, labels=[n % 5 for n in range(1000)])),
    ),
    "an evaluation in batches that are split": (
        FOUR,
        lambda: in_batches(tokens(lengths=TOKENS[:998]), range(998), sk.SequentialSampler(), tail="split"),
    ),
    "a loop that divides by the tokens of all ranks": (FOUR, lambda: weighted_loss.loader),
    "one process that shuffles": (sk.World(), lambda: DataLoader(ROWS, 8, shuffle=True, num_workers=2)),
    "one process that evaluates": (sk.World(), lambda: DataLoader(range(1001), 8)),
    "torch's distributed sampler in its second epoch": (
        FOUR,
        lambda: DataLoader(ROWS, 8, sampler=of_torch()),
    ),
    "an evaluation that divides": (FOUR, lambda: DataLoader(ROWS, 8, sampler=of_torch(shuffle=False))),
    "a Loader, shuffled": (FOUR, lambda: ours(sk.RandomSampler(seed=7), num_workers=2)),
    "a Loader over files": (FOUR, lambda: of_files([100] * 64, workers=4, shuffle="files")),
    "blocks of 1.5 files": (FOUR, lambda: of_files([1000] * 8, shuffle="partial", partial_size=1500)),
    "two pools, whose second pass crosses files": (
        FOUR,
        lambda: of_files([1000] * 8, shuffle="partial", partial_size=500, pools=2),
    ),
    "an evaluation without repeats": (FOUR, lambda: ours(sk.SequentialSampler(), range(1001), tail="ragged")),
    "the bridge at its first epoch": (FOUR, lambda: bridged(sk.DistributedSampler(seed=7), num_workers=2)),
    "the bridge in a loader that knows what was received": (
        FOUR,
        lambda: bridged(sk.RandomSampler(), make=StatefulDataLoader, num_workers=2),
    ),
    "a ConcatDataset that divides": (
        FOUR,
        lambda: bridged(sk.DistributedSampler(seed=7), ConcatDataset([range(4), range(1000)])),
    ),
    "a ConcatDataset that is dealt without pads": (
        FOUR,
        lambda: bridged(sk.DistributedSampler(offset=0, seed=7), ConcatDataset([range(3), range(1000)])),
    ),
    "a ConcatDataset in a Loader": (
        FOUR,
        lambda: ours(sk.DistributedSampler(seed=7), ConcatDataset([range(3), range(1000)])),
    ),
    "PK below a shuffle": (
        sk.World(1, 0),
        lambda: by_class(sk.RandomSampler(seed=1), sk.PKSampler(50, labels=CLASSES)),
    ),
    "a few samples of each class in a batch": (
        sk.World(1, 0),
        lambda: by_class(sk.PKSampler(4, shuffle=True, labels=CLASSES)),
    ),
    "PK over one class": (sk.World(1, 0), lambda: by_class(sk.PKSampler(50, labels=[1] * 1000))),
    "PK in batches of one": (
        sk.World(1, 0),
        lambda: by_class(sk.PKSampler(50, labels=CLASSES), batch_size=1),
    ),
    "a chain that is dealt once": (FOUR, lambda: ours(sk.SubsetRandomSampler(range(0, 1000, 4)))),
    "a Subset of every fourth sample, for one process": (
        sk.World(),
        lambda: DataLoader(Subset(ROWS, range(0, 1000, 4)), 8),
    ),
    "weights of a Loader": (FOUR, lambda: ours(sk.WeightedRandomSampler([1.0, 2.0] * 500))),
    "1e8 samples in a Loader": (FOUR, lambda: ours(sk.RandomSampler(), range(10**8))),
    "GLOBAL over remote files that the cache holds": (
        FOUR,
        lambda: ours(sk.RandomSampler(), Shards(fetch=None)),
    ),
    "blocks of a few remote shards": (
        FOUR,
        lambda: ours(sk.RandomSampler(shuffle="partial", partial_size=400), Shards(fetch="auto")),
    ),
    "GLOBAL over eight files that are all kept": (FOUR, lambda: ours(sk.RandomSampler(), of_eight(8))),
    "blocks of three files and room for them": (
        sk.World(),
        lambda: ours(sk.RandomSampler(shuffle="partial", partial_size=300), of_eight(5), sk.World(1, 0)),
    ),
    "one file after another, one of them kept": (
        FOUR,
        lambda: ours(sk.RandomSampler(shuffle="files"), of_eight(1)),
    ),
    "a stream that is cut": (FOUR, lambda: DataLoader(CutStream(), num_workers=2)),
    "an epoch in shared memory": (
        FOUR,
        lambda: DataLoader(
            Epochs(multiprocessing.Value("q")), sampler=of_torch(), num_workers=2, persistent_workers=True
        ),
    ),
    "a Loader with persistent workers and an epoch": (
        FOUR,
        lambda: ours(sk.RandomSampler(), Epochs(0), num_workers=2, persistent_workers=True),
    ),
    "a wrapper whose shuffle has a seed": (
        FOUR,
        lambda: DataLoader(range(100), sampler=Dealt(FromNumpy(7), 4, 1)),
    ),
    "a sampler that moves on by itself": (sk.World(), lambda: DataLoader(range(100), sampler=Advancing(7))),
    "a sampler without a length": (sk.World(), lambda: DataLoader(range(100), 8, sampler=Endless())),
    "no batches": (sk.World(), lambda: DataLoader(range(100), batch_size=None, shuffle=True)),
    "batches on a device": (FOUR, lambda: sk.DeviceLoader(ours(sk.RandomSampler()), "cpu")),
    "two ranks that share a model of two": (
        FOUR,
        lambda: DataLoader(ROWS, sampler=of_torch(ranks=2, rank=0)),
    ),
}


@pytest.mark.parametrize(("world", "make"), HEALTHY.values(), ids=HEALTHY.keys())
def test_a_healthy_set_up_has_no_findings(world, make):
    assert check(make(), world=world) == ()


def test_before_training_the_epoch_that_is_told_is_the_right_one():
    fresh = DataLoader(ROWS, sampler=of_torch(epoch=0))
    assert check(fresh, world=FOUR, epoch=0) == ()
    (finding,) = check(fresh, world=FOUR, epoch=5)
    assert (finding.code, finding.severity) == ("epoch-frozen", "error")
    assert "stands at epoch 0, and training at 5" in finding.what


def test_the_figures_and_the_mend_of_the_trap_of_partial_size():
    (finding,) = check(of_files([1437] * 8, shuffle="partial", partial_size=1437))
    assert "1437" in finding.what
    assert "partial_size=2156" in finding.mend


def test_saving_the_state_of_the_bridge_is_said_before_anything_is_lost():
    loader = bridged(sk.RandomSampler(), num_workers=2)
    assert check(loader, world=FOUR) == ()
    (finding,) = check(loader, world=FOUR, saves_state=True)
    assert finding.code == "resume-inexact"
    assert "4 batches ahead" in finding.what
    assert check(bridged(sk.RandomSampler()), world=FOUR, saves_state=True) == ()


def made_by_the_clock():
    return ours(sk.RandomSampler(seed=time.time_ns() % 2**40))


def made_from_the_process():
    return DataLoader(ROWS, sampler=of_torch(seed=random.randrange(2**20)))


def test_a_function_that_makes_another_order_each_time_is_found():
    for make in (made_by_the_clock, made_from_the_process):
        (finding,) = check(make, world=FOUR)
        assert finding.code == "ranks-disagree"
        assert "the seed" in finding.what
    assert check(lambda: ours(sk.RandomSampler(seed=7))) == ()


def test_a_config_is_checked_too():
    layout = {"kind": "layout", "sizes": [500] * 8}
    sampler = {"kind": "distributed", "shuffle": "partial", "partial_size": 500}
    config = sk.load_config({"dataset": layout, "sampler": sampler})
    assert [finding.code for finding in check(config, world=sk.World(4, 0))] == ["partial-size-in-file"]


def test_checking_leaves_the_random_states_and_the_sampler_as_they_were():
    sampler = FromNumpy()
    loader = DataLoader(range(100), sampler=Dealt(sampler, 4, 1))
    legacy = np.random.mtrand._rand  # what np.random.permutation draws from
    before = torch.get_rng_state(), legacy.get_state()[1].copy(), random.getstate()
    check(loader, world=FOUR)
    check(made_from_the_process, world=FOUR)
    random.setstate(before[2])  # the function itself has drawn once
    check(loader, world=FOUR)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(legacy.get_state()[1], before[1])
    assert random.getstate() == before[2]


def test_what_is_no_loader_is_an_error():
    with pytest.raises(sk.ArgumentTypeError, match="must be a samplerkit Loader"):
        check([1, 2, 3])
    with pytest.raises(sk.ArgumentTypeError, match="must be a World"):
        check(ours(sk.RandomSampler()), world=4)
