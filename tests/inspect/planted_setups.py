"""Setups with one mistake each, named by the code of its finding; and setups without one."""

import multiprocessing
import time

import numpy as np
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    RandomSampler,
    Subset,
    WeightedRandomSampler,
)
from torchdata.stateful_dataloader import StatefulDataLoader

import samplerkit as sk
from samplerkit.compat import mindspore
from samplerkit.compat.torch import DistributedSampler as Torchs
from samplerkit.compat.torch import distributed
from samplerkit.storage.files.dataset import FileDataset
from tests.chains import under
from tests.inspect import unweighted_loss, weighted_loss
from tests.inspect.setups import (
    CLASSES,
    FOUR,
    HEALTHY_IN_THREADS,
    HEALTHY_IN_TRAINERS,
    PLANTED_IN_THREADS,
    PLANTED_IN_TRAINERS,
    ROWS,
    TOKENS,
    Advancing,
    Dealt,
    DrawsFromPython,
    Endless,
    Epochs,
    FromNumpy,
    Shards,
    SplitStream,
    Stream,
    Unsized,
    bridged,
    by_class,
    files_drop_in,
    in_batches,
    in_packs,
    mixed,
    of_drop_in,
    of_eight,
    of_eight_shards,
    of_files,
    of_torch,
    ours,
    restored,
    shards_drop_in,
    tokens,
    windows,
    with_list,
)
from tests.loading.rings import Rings
from tests.numbers import Texts

RINGS = Rings([4096], 4, 16)

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
    "costly-remote: single samples of remote shards": lambda: ours(sk.RandomSampler(), Shards()),
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
    "sample-above-budget: a document above a pack": lambda: in_packs(20, long="raise"),
    "tokens-cut-off: documents that are cut off": lambda: in_packs(20, long="truncate"),
    "samples-left-out: documents that are dropped": lambda: in_packs(20, long="drop"),
    "documents-read-again: documents that are read for each part": lambda: in_packs(4),
    "padding-wasted: packs of one document": lambda: in_packs(40, [21] * len(TOKENS)),
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
    "empty-part: files without samples": lambda: of_files([0] * 4, shuffle="partial"),
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
    "seq-len-fixed: windows of blocks in a global order": lambda: ours(sk.RandomSampler(), RINGS),
    "pools-missed: pools that no step meets": lambda: ours(sk.BlockSampler(251), RINGS),
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


HEALTHY = {
    **HEALTHY_IN_THREADS,
    **HEALTHY_IN_TRAINERS,
    "blocks of tokens whose pools are whole steps": lambda: ours(sk.BlockSampler(8), RINGS),
    "correct folds, windows and repeats": lambda: ours(
        under(
            sk.RepeatSampler(3),
            under(sk.RandomSampler(), under(sk.WindowSampler(4), sk.FoldSampler(5, 0, by_files=True))),
        ),
        sk.Layout([100] * 10),
    ),
    "draws with replacement from copies of the samples": lambda: ours(
        under(sk.RandomSampler(replacement=True, num_samples=2000), sk.RepeatSampler(2)), range(1000)
    ),
    "more draws with replacement than files have samples, as in MindSpore": lambda: ours(
        sk.RandomSampler(replacement=True, num_samples=1600), sk.Layout([100] * 8)
    ),
    "torch's RandomSampler in an IterSampler, which seeds it": lambda: ours(
        sk.IterSampler(RandomSampler(range(800))), range(800)
    ),
    "torch's DistributedSampler in an IterSampler below the bridge, which sets its epoch": lambda: bridged(
        sk.IterSampler(of_torch(0, epoch=0, ranks=1))
    ),
    "repeats by factors that are shuffled": lambda: ours(
        under(sk.RandomSampler(), sk.RepeatFactorSampler([1.5] * 800)), range(800)
    ),
    "batches of a budget": lambda: in_batches(tokens()),
    "batches of a budget, eight abreast": lambda: in_batches(tokens(abreast=8)),
    "batches in windows": lambda: in_batches(tokens(window=500)),
    "batches with boundaries": lambda: in_batches(
        sk.BucketBatches([6, 12, 20, 30], [32, 16, 8, 8], lengths=TOKENS)
    ),
    "batches by class": lambda: in_batches(sk.ClassBatches(2, 4, labels=[n % 5 for n in range(1000)])),
    "an evaluation in batches that are split": lambda: in_batches(
        tokens(lengths=TOKENS[:998]), range(998), sk.SequentialSampler(), tail="split"
    ),
    "a loop that divides by the tokens of all ranks": lambda: weighted_loss.loader,
    "two ranks that share a shard": lambda: ours(sk.DistributedSampler(2, 0), world=None),
    "two ranks that share a shard through the bridge": lambda: bridged(
        sk.DistributedSampler(2, 0), world=None
    ),
    "torch's distributed sampler in its second epoch": lambda: DataLoader(ROWS, 8, sampler=of_torch()),
    "an evaluation that divides": lambda: DataLoader(ROWS, 8, sampler=of_torch(shuffle=False)),
    "a Loader, shuffled": lambda: ours(sk.RandomSampler(seed=7), num_workers=2),
    "a Loader over files": lambda: of_files([100] * 64, workers=4, shuffle="files"),
    "blocks of 1.5 files": lambda: of_files([1000] * 8, shuffle="partial", partial_size=1500),
    "two pools, whose second pass crosses files": lambda: of_files(
        [1000] * 8, shuffle="partial", partial_size=500, pools=2
    ),
    "an evaluation without repeats": lambda: ours(sk.SequentialSampler(), range(1001), tail="ragged"),
    "the bridge at its first epoch": lambda: bridged(sk.DistributedSampler(seed=7), num_workers=2),
    "the bridge in a loader that knows what was received": lambda: bridged(
        sk.RandomSampler(), make=StatefulDataLoader, num_workers=2
    ),
    "a ConcatDataset that divides": lambda: bridged(
        sk.DistributedSampler(seed=7), ConcatDataset([range(4), range(1000)])
    ),
    "a ConcatDataset that is dealt without pads": lambda: bridged(
        sk.DistributedSampler(offset=0, seed=7), ConcatDataset([range(3), range(1000)])
    ),
    "a ConcatDataset in a Loader": lambda: ours(
        sk.DistributedSampler(seed=7), ConcatDataset([range(3), range(1000)])
    ),
    "a chain that is dealt once": lambda: ours(sk.SubsetRandomSampler(range(0, 1000, 4))),
    "weights of a Loader": lambda: ours(sk.WeightedRandomSampler([1.0, 2.0] * 500)),
    "1e8 samples in the drop-in for torch's": lambda: of_drop_in(
        Torchs(range(10**8), 4, 1, algorithm="samplerkit-1"), range(10**8)
    ),
    "a sampler of torch's in the drop-in that seeds it": lambda: of_drop_in(
        distributed(WeightedRandomSampler([1.0] * 1000, 1000), 4, 1)
    ),
    "files in the drop-in for PartiallyShuffle": files_drop_in,
    "shards in the drop-in for webdataset": lambda: DataLoader(shards_drop_in(), 4, num_workers=2),
    "1e8 samples in MindSpore's order without a shuffle": lambda: ours(
        mindspore.DistributedSampler(shuffle=False, seed=7), range(10**8)
    ),
    "1e8 samples in a Loader": lambda: ours(sk.RandomSampler(), range(10**8)),
    "1e8 samples in a ledger": lambda: ours(sk.Ledger(sk.RandomSampler()), range(10**8)),
    "1e8 samples in folds, windows and repeats": lambda: ours(
        under(sk.RepeatSampler(2), under(sk.FoldSampler(5, 0), sk.WindowSampler(4, 4))), range(10**8)
    ),
    "GLOBAL over remote files that the cache holds": lambda: ours(sk.RandomSampler(), Shards(fetch=None)),
    "blocks of a few remote shards": lambda: ours(
        sk.RandomSampler(shuffle="partial", partial_size=400), Shards(fetch="auto")
    ),
    "GLOBAL over eight files that are all kept": lambda: ours(sk.RandomSampler(), of_eight(8)),
    "one file after another, one of them kept": lambda: ours(sk.RandomSampler(shuffle="files"), of_eight(1)),
    "a stream that is split": lambda: DataLoader(SplitStream(), num_workers=2),
    "an epoch in shared memory": lambda: DataLoader(
        Epochs(multiprocessing.Value("q")), sampler=of_torch(), num_workers=2, persistent_workers=True
    ),
    "a Loader with persistent workers and an epoch": lambda: ours(
        sk.RandomSampler(), Epochs(0), num_workers=2, persistent_workers=True
    ),
    "a wrapper whose shuffle has a seed": lambda: DataLoader(range(100), sampler=Dealt(FromNumpy(7), 4, 1)),
    "batches on a device": lambda: sk.DeviceLoader(ours(sk.RandomSampler()), "cpu"),
    "two ranks that share a model of two": lambda: DataLoader(ROWS, sampler=of_torch(ranks=2, rank=0)),
}
"""On four ranks."""

HEALTHY_ALONE = {
    "a tree in persistent workers of a plain loader": lambda: DataLoader(
        sk.TreeDataset({"web": ROWS, "code": range(9)}), 10, num_workers=1, persistent_workers=True
    ),
    "one process that shuffles": lambda: DataLoader(ROWS, 8, shuffle=True, num_workers=2),
    "a Subset of a mapping": lambda: DataLoader(Subset({"a": 1, "b": 2}, ["a", "b"])),
    "one process that evaluates": lambda: DataLoader(range(1001), 8),
    "PK below a shuffle": lambda: by_class(under(sk.RandomSampler(seed=1), sk.PKSampler(50, labels=CLASSES))),
    "a few samples of each class in a batch": lambda: by_class(sk.PKSampler(4, shuffle=True, labels=CLASSES)),
    "PK over one class": lambda: by_class(sk.PKSampler(50, labels=[1] * 1000)),
    "PK in batches of one": lambda: by_class(sk.PKSampler(50, labels=CLASSES), batch_size=1),
    "a Subset of every fourth sample, for one process": lambda: DataLoader(
        Subset(ROWS, range(0, 1000, 4)), 8
    ),
    "blocks of three files and room for them": lambda: ours(
        sk.RandomSampler(shuffle="partial", partial_size=300), of_eight(5), sk.World(1, 0)
    ),
    "a sampler that advances by itself": lambda: DataLoader(range(100), sampler=Advancing(7)),
    "a sampler without a length": lambda: DataLoader(range(100), 8, sampler=Endless()),
    "a sampler whose length is not implemented": lambda: DataLoader(range(100), 8, sampler=Unsized()),
    "no batches": lambda: DataLoader(range(100), batch_size=None, shuffle=True),
}
"""In one process."""
