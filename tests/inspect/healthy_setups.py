"""Setups without a mistake, and the world in which they are checked."""

from __future__ import annotations

import multiprocessing

from torch.utils.data import ConcatDataset, DataLoader, RandomSampler, Subset, WeightedRandomSampler
from torchdata.stateful_dataloader import StatefulDataLoader

import samplerkit as sk
from samplerkit.compat import mindspore
from samplerkit.compat.torch import DistributedSampler as Torchs
from samplerkit.compat.torch import distributed
from tests.chains import under
from tests.inspect import weighted_loss
from tests.inspect.setups import (
    CLASSES,
    ROWS,
    TOKENS,
    Advancing,
    Dealt,
    Endless,
    Epochs,
    FromNumpy,
    Shards,
    SplitStream,
    Unsized,
    bridged,
    by_class,
    files_drop_in,
    in_batches,
    of_drop_in,
    of_eight,
    of_files,
    of_torch,
    ours,
    shards_drop_in,
    tokens,
)
from tests.inspect.threaded_setups import HEALTHY_IN_THREADS
from tests.inspect.trainer_setups import HEALTHY_IN_TRAINERS
from tests.loading.rings import Rings

HEALTHY = {
    **HEALTHY_IN_THREADS,
    **HEALTHY_IN_TRAINERS,
    "blocks of tokens whose pools are whole steps": lambda: ours(sk.BlockSampler(8), Rings([4096], 4, 16)),
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
