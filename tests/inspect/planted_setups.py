"""Set-ups with a mistake each, and the code of its finding."""

from __future__ import annotations

import time

import numpy as np
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, Subset, WeightedRandomSampler

import samplerkit as sk
from samplerkit.storage.files.dataset import FileDataset
from tests.inspect import unweighted_loss
from tests.inspect.setups import (
    CLASSES,
    FOUR,
    ROWS,
    TOKENS,
    CutStream,
    Dealt,
    DrawsFromPython,
    Epochs,
    FromNumpy,
    Shards,
    Stream,
    Texts,
    bridged,
    by_class,
    deal_of_a_deal,
    in_batches,
    mixed,
    of_eight,
    of_files,
    of_torch,
    ours,
    over,
    restored,
    tokens,
    windows,
    with_list,
)
from tests.inspect.threaded_setups import PLANTED_IN_THREADS
from tests.inspect.trainer_setups import PLANTED_IN_TRAINERS
from tests.loading.rings import Rings

PLANTED = {
    **PLANTED_IN_THREADS,
    **PLANTED_IN_TRAINERS,
    "two distributed samplers, one over the other's ids": (
        "double-sharding",
        lambda: DataLoader(ROWS, sampler=Dealt(of_torch(), 4, 1)),
    ),
    "a Subset cut by rank under a distributed sampler": (
        "double-sharding",
        lambda: DataLoader(Subset(ROWS, range(1, 1000, 4)), sampler=of_torch(rows=range(250))),
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
    "a rank that is written down": ("other-world", lambda: DataLoader(ROWS, sampler=of_torch(rank=0))),
    "a fixed shard in a Loader": ("other-world", lambda: ours(sk.DistributedSampler(4, 0), world=None)),
    "more shards than ranks in a Loader": (
        "other-world",
        lambda: ours(sk.DistributedSampler(8, 1), world=None),
    ),
    "a fixed shard through the bridge": (
        "other-world",
        lambda: bridged(sk.DistributedSampler(4, 0), world=None),
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
    "a padded evaluation through the bridge": (
        "padded-evaluation",
        lambda: bridged(sk.DistributedSampler(shuffle=False), range(1001)),
    ),
    "a repeat of shuffled files on four ranks": (
        "repeats-break-lanes",
        lambda: ours(over(sk.RandomSampler(shuffle="files"), sk.RepeatSampler(3)), sk.Layout([100] * 12)),
    ),
    "more draws with replacement than there are samples": (
        "draws-limited",
        lambda: ours(sk.RandomSampler(replacement=True, num_samples=3000)),
    ),
    "more samples of a subset than it has": (
        "draws-limited",
        lambda: ours(over(sk.SubsetSampler(list(range(800))), sk.RandomSampler(num_samples=1600))),
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
    "a wrapper that deals numpy's shuffle": (
        "random-from-process",
        lambda: DataLoader(range(100), sampler=Dealt(FromNumpy(), 4, 1)),
    ),
    "a user's sampler that draws from Python's state": (
        "random-from-process",
        lambda: ours(DrawsFromPython()),
    ),
    "blocks that divide the files": (
        "partial-size-in-file",
        lambda: of_files([1000] * 8, shuffle="partial", partial_size=500),
    ),
    "fewer files than ranks x workers": (
        "few-files",
        lambda: of_files([100] * 6, workers=2, shuffle="files"),
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
    "lengths of another dataset": ("lengths-do-not-fit", lambda: in_batches(tokens(lengths=TOKENS[:-1]))),
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
    "a small source of a large weight": (
        "read-too-often",
        lambda: ours(mixed(2, 1, 600), sk.TreeDataset({"web": ROWS, "wiki": range(40)})),
    ),
    "documents whose weights are no shares of tokens": (
        "weights-of-documents",
        lambda: in_batches(
            sk.PackBatches(4000, long="truncate"),
            sk.TreeDataset({"web": Texts([10, 12] * 300), "wiki": Texts([100] * 400)}),
            mixed(3, 1),
        ),
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
    "a file of tokens that was cut": (
        "refused",
        lambda: ours(sk.RandomSampler(), windows(4000, cut=True)),
    ),
    "FILES over a dataset without files": ("refused", lambda: ours(sk.RandomSampler(shuffle="files"))),
}

ALONG_WITH = {
    "files-read-again": {"reads-everything"},
    "one-class-batches": {"reads-everything"},
    "too-many-weights": {"not-sharded"},
    "workers-repeat": {"ranks-repeat"},
}
"""What is wrong in the same set-up as well."""
