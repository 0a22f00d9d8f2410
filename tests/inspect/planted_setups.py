"""Setups with one mistake each; the name begins with the code of its finding."""

from __future__ import annotations

import time

import numpy as np
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, Subset, WeightedRandomSampler

import samplerkit as sk
from samplerkit.compat import mindspore
from samplerkit.storage.files.dataset import FileDataset
from tests.chains import under
from tests.inspect import unweighted_loss
from tests.inspect.setups import (
    CLASSES,
    FOUR,
    ROWS,
    TOKENS,
    Dealt,
    DrawsFromPython,
    Epochs,
    FromNumpy,
    Shards,
    SplitStream,
    Stream,
    Texts,
    bridged,
    by_class,
    in_batches,
    mixed,
    of_eight,
    of_eight_shards,
    of_files,
    of_torch,
    ours,
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
    "double-sharding: two distributed samplers, one over the other's ids": lambda: DataLoader(
        ROWS, sampler=Dealt(of_torch(), 4, 1)
    ),
    "double-sharding: a Subset cut by rank under a distributed sampler": lambda: DataLoader(
        Subset(ROWS, range(1, 1000, 4)), sampler=of_torch(rows=range(250))
    ),
    "double-sharding: a distributed sampler below another one": lambda: ours(
        under(sk.DistributedSampler(4, 1), sk.DistributedSampler(4, 1))
    ),
    "double-sharding: torch's distributed sampler inside of a Loader": lambda: ours(
        sk.IterSampler(of_torch())
    ),
    "double-sharding: accelerate's kind of batch sampler over a TorchSampler": lambda: DataLoader(
        ROWS,
        batch_sampler=Dealt(BatchSampler(sk.TorchSampler(None, ROWS, FOUR), 8, drop_last=False), 4, 1),
    ),
    "not-sharded: shuffle=True in a job of four": lambda: DataLoader(ROWS, shuffle=True),
    "other-world: a rank that is written down": lambda: DataLoader(ROWS, sampler=of_torch(rank=0)),
    "other-world: a fixed shard in a Loader": lambda: ours(sk.DistributedSampler(4, 0), world=None),
    "other-world: more shards than ranks in a Loader": lambda: ours(sk.DistributedSampler(8, 1), world=None),
    "other-world: a fixed shard through the bridge": lambda: bridged(sk.DistributedSampler(4, 0), world=None),
    "epoch-frozen: set_epoch that is never called": lambda: DataLoader(ROWS, sampler=of_torch(epoch=0)),
    "epoch-in-workers: persistent workers with a copy of the epoch": lambda: DataLoader(
        Epochs(0), sampler=of_torch(), num_workers=2, persistent_workers=True
    ),
    "padded-evaluation: a padded evaluation": lambda: DataLoader(
        range(1001), sampler=of_torch(rows=range(1001), shuffle=False)
    ),
    "padded-evaluation: a padded evaluation through the bridge": lambda: bridged(
        sk.DistributedSampler(shuffle=False), range(1001)
    ),
    "repeats-break-lanes: a repeat of shuffled files on four ranks": lambda: ours(
        under(sk.RepeatSampler(3), sk.RandomSampler(shuffle="files")), sk.Layout([100] * 12)
    ),
    "draws-limited: more draws with replacement than there are samples": lambda: ours(
        sk.RandomSampler(replacement=True, num_samples=3000)
    ),
    "draws-limited: more samples of a subset than it has": lambda: ours(
        under(sk.RandomSampler(num_samples=1600), sk.SubsetSampler(list(range(800))))
    ),
    "copies-together: repeats by factors in storage order": lambda: ours(
        sk.RepeatFactorSampler([1.5] * 800), range(800)
    ),
    "held-out-shuffled: training on what is held out": lambda: ours(
        under(sk.RandomSampler(), sk.FoldSampler(5, 0, held_out=True)), range(800)
    ),
    "folds-overlap: folds of windows that overlap": lambda: ours(
        under(sk.FoldSampler(5, 0), sk.WindowSampler(4)), sk.Layout([100] * 8)
    ),
    "uneven-steps: ragged training": lambda: ours(sk.RandomSampler(), range(1025), tail="ragged"),
    "seed-from-clock: a seed from the clock": lambda: ours(sk.RandomSampler(seed=int(time.time()))),
    "random-from-process: a wrapper that deals numpy's shuffle": lambda: DataLoader(
        range(100), sampler=Dealt(FromNumpy(), 4, 1)
    ),
    "random-from-process: a user's sampler that draws from Python's state": lambda: ours(DrawsFromPython()),
    "partial-size-in-file: blocks that divide the files": lambda: of_files(
        [1000] * 8, shuffle="partial", partial_size=500
    ),
    "few-files: fewer files than ranks x workers": lambda: of_files([100] * 6, workers=2, shuffle="files"),
    "files-read-again: blocks of three files of which two are kept": lambda: ours(
        sk.RandomSampler(shuffle="partial", partial_size=300), of_eight(2), sk.World(1, 0)
    ),
    "files-read-again: shards of which two are held open": lambda: ours(
        sk.RandomSampler(shuffle="partial", partial_size=300), of_eight_shards(2), sk.World(1, 0)
    ),
    "lanes-do-not-divide: six lanes on four ranks": lambda: of_files([100] * 6, shuffle="files", lanes=6),
    "materialises: torch's shuffle of 1e8 samples": lambda: DataLoader(
        range(10**8), sampler=of_torch(rows=range(10**8))
    ),
    "materialises: MindSpore's shuffle of 1e8 samples": lambda: ours(
        mindspore.RandomSampler(seed=7), range(10**8)
    ),
    "materialises: an iterable of 1e8 ids": lambda: ours(sk.IterSampler(range(10**8)), range(10**8)),
    "too-many-weights: more weights than torch draws from": lambda: DataLoader(
        ROWS, sampler=WeightedRandomSampler(np.ones(2**24 + 1, np.float32), 10)
    ),
    "python-lists: a list of five million paths and four workers": lambda: with_list(5_000_000, 4),
    "drops-everything: an incomplete batch that is the only one": lambda: DataLoader(
        range(100), 32, sampler=of_torch(rows=range(100)), drop_last=True
    ),
    "drops-everything: an incomplete global batch that is the only one": lambda: ours(
        sk.RandomSampler(), range(31), tail="drop"
    ),
    "batch-larger-than-shard: a batch larger than the shard": lambda: ours(
        sk.RandomSampler(), batch_size=300
    ),
    "workers-repeat: a stream that workers do not split": lambda: DataLoader(Stream(), num_workers=2),
    "ranks-repeat: a stream that ranks do not split": lambda: DataLoader(Stream()),
    "idle-workers: a stream of few shards": lambda: DataLoader(SplitStream(6), num_workers=2),
    "resume-inexact: a bridge whose state was loaded, with workers": restored,
    "costly-remote: samples of remote shards whose sizes are not available": lambda: ours(
        sk.RandomSampler(), Shards(fails=True)
    ),
    "lengths-unknown: remote files that were not counted": lambda: ours(
        sk.RandomSampler(), FileDataset(["http://127.0.0.1:9/a.npz"], "npz")
    ),
    "concat-padded: a ConcatDataset that the core pads": lambda: bridged(
        sk.DistributedSampler(seed=7), ConcatDataset([range(3), range(1000)])
    ),
    "one-class-batches: PK that nothing mixes": lambda: by_class(sk.PKSampler(50, labels=CLASSES)),
    "lengths-do-not-fit: lengths of another dataset": lambda: in_batches(tokens(lengths=TOKENS[:-1])),
    "sample-above-budget: a sample above the budget": lambda: in_batches(tokens(20)),
    "sample-above-budget: a sample above the last boundary": lambda: in_batches(
        sk.BucketBatches([10, 20], 4, lengths=TOKENS)
    ),
    "sample-above-budget: a document above a pack": lambda: in_batches(
        sk.PackBatches(20, lengths=TOKENS, long="raise")
    ),
    "tokens-cut-off: documents that are cut off": lambda: in_batches(
        sk.PackBatches(20, lengths=TOKENS, long="truncate")
    ),
    "samples-left-out: documents that are dropped": lambda: in_batches(
        sk.PackBatches(20, lengths=TOKENS, long="drop")
    ),
    "documents-read-again: documents that are read for each part": lambda: in_batches(
        sk.PackBatches(4, lengths=TOKENS)
    ),
    "padding-wasted: packs of one document": lambda: in_batches(
        sk.PackBatches(40, lengths=[21] * len(TOKENS))
    ),
    "boundaries-unreached: boundaries that nothing reaches": lambda: in_batches(
        sk.BucketBatches([10, 20, 30, 300, 3000], 4, lengths=TOKENS)
    ),
    "padding-wasted: one bucket for all": lambda: in_batches(sk.BucketBatches([30], 16, lengths=TOKENS)),
    "abreast-does-not-fit: five abreast on four ranks": lambda: in_batches(tokens(abreast=5)),
    "samples-left-out: long samples that are dropped": lambda: in_batches(tokens(25, long="drop", waste=0.5)),
    "fewer-batches-than-ranks: two batches for four ranks": lambda: in_batches(
        tokens(240, lengths=[4] * 100), range(100)
    ),
    "fewer-batches-than-ranks: the same, dropped": lambda: in_batches(
        tokens(240, lengths=[4] * 100), range(100), tail="drop"
    ),
    "loss-ignores-tokens: a loop that takes the mean of means": lambda: unweighted_loss.loader,
    "uneven-steps: batches that one rank may have more of": lambda: in_batches(
        tokens(lengths=TOKENS[:998]), range(998), tail="ragged"
    ),
    "padded-evaluation: an evaluation whose last batch is repeated": lambda: in_batches(
        tokens(lengths=TOKENS[:950]), range(950), sk.SequentialSampler()
    ),
    "evaluation-with-phase: tokens evaluated in order, with a phase": lambda: ours(
        sk.SequentialSampler(), Rings([400], 4, 4)
    ),
    "empty-part: a dataset without samples": lambda: ours(sk.RandomSampler(), []),
    "empty-part: a part of a tree without samples": lambda: ours(
        sk.RandomSampler(), sk.TreeDataset({"web": ROWS, "code": []})
    ),
    "read-too-often: a small source of a large weight": lambda: ours(
        mixed(2, 1, 600), sk.TreeDataset({"web": ROWS, "wiki": range(40)})
    ),
    "weights-of-documents: documents whose weights are not shares of tokens": lambda: in_batches(
        sk.PackBatches(4000, long="truncate"),
        sk.TreeDataset({"web": Texts([10, 12] * 300), "wiki": Texts([100] * 400)}),
        mixed(3, 1),
    ),
    "same-part: one dataset twice in a tree": lambda: ours(
        sk.RandomSampler(), sk.TreeDataset({"a": ROWS, "b": sk.TreeDataset({"c": ROWS})})
    ),
    "parts-hidden: a concatenation of datasets with an epoch": lambda: ours(
        sk.RandomSampler(), ConcatDataset([Epochs(0), ROWS])
    ),
    "seq-len-fixed: windows of blocks in a global order": lambda: ours(
        sk.RandomSampler(), Rings([4096], 4, 16)
    ),
    "pools-missed: pools that no step meets": lambda: ours(sk.BlockSampler(251), Rings([4096], 4, 16)),
    "vocabulary-beyond-dtype: a tokenizer with more tokens than the type of the files": lambda: ours(
        sk.RandomSampler(), windows(4000, vocab_size=65_537)
    ),
    "short-files: tokens in files shorter than a block": lambda: ours(
        sk.RandomSampler(), windows(4000, 50, 60, 2)
    ),
    "refused: a file of tokens that was cut": lambda: ours(sk.RandomSampler(), windows(4000, cut=True)),
    "refused: FILES over a dataset without files": lambda: ours(sk.RandomSampler(shuffle="files")),
}


def code_of(name: str) -> str:
    return name.partition(": ")[0]


ALONG_WITH = {
    "files-read-again": {"reads-everything"},
    "one-class-batches": {"reads-everything"},
    "too-many-weights": {"not-sharded"},
    "workers-repeat": {"ranks-repeat"},
}
"""Other mistakes in the same setup."""
