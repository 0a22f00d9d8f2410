"""What the doctor says: findings, each with its mend, and the codes that there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

Severity = Literal["error", "warning"]
"""An error trains on wrong data, hangs or fails; a warning costs quality, time or memory."""

CODES: dict[str, str] = {
    "double-sharding": "the samples are dealt to the ranks twice, so that most are never read",
    "not-sharded": "every rank reads all samples, each in a random order of its own",
    "reads-everything": "a Loader was told to read all samples on every rank of a job of several",
    "other-world": "samples are dealt to another rank, or to another number of ranks, than the job has",
    "epoch-frozen": "`set_epoch` was not called, so that each epoch has the order of the first one",
    "epoch-in-workers": "persistent workers keep their copy of the dataset, and never see its `set_epoch`",
    "padded-evaluation": "an evaluation reads some samples twice, and counts them twice",
    "concat-padded": "a ConcatDataset is dealt with repeats, where MindSpore reads each sample once",
    "one-class-batches": "batches hold samples of one class, since `PKSampler` draws class after class",
    "repeats-break-lanes": "copies are dealt above an order that keeps files together: ranks share these",
    "copies-together": "`RepeatFactorSampler` yields copies next to one another, and nothing shuffles them",
    "held-out-shuffled": "the held-out part of a `FoldSampler` is shuffled, as one does for training",
    "folds-overlap": "windows that share samples are parted one by one, so that folds meet",
    "seq-len-fixed": "`block_len` lets `seq_len` change, and the order is one of windows, not of blocks",
    "pools-missed": "no step ends with a pool of a `BlockSampler`, where alone `seq_len` may change",
    "uneven-steps": "ranks have different numbers of steps, so that a collective of the last step hangs",
    "seed-from-clock": "the seed looks like the time of day, so that it differs from rank to rank",
    "random-from-process": "the order comes from the process-wide random state, which differs between ranks",
    "ranks-disagree": "the same function makes another order in another process",
    "partial-size-in-file": "each block of PARTIAL lies inside one file, so that no files are mixed",
    "few-files": "there are fewer files than ranks x workers, so that several open the same one",
    "files-read-again": "`max_files`, `max_chunks` or `max_shards` is too few for how the order goes",
    "empty-part": "a part of a tree holds no sample",
    "same-part": "parts of a tree are one dataset, whose samples come more often than is meant",
    "parts-not-told": "a ConcatDataset reads its parts one by one, and tells them nothing",
    "evaluation-with-phase": "windows of tokens are read in order, and begin elsewhere in each epoch",
    "vocabulary-beyond-dtype": "`vocab_size` of the tokenizer is more than the type of the files can hold",
    "short-files": "more than one token in a hundred lies in files shorter than a block",
    "not-thread-safe": "threads share what serves one of them at a time, such as an open file",
    "generator-shared": "threads draw from one generator, so that nothing that is drawn repeats",
    "lanes-do-not-divide": "neither lanes nor ranks divide the other, so that a rank reads more files",
    "materialises": "the sampler builds a list of all samples in the memory of every rank",
    "too-many-weights": "torch refuses to draw from more than 2^24 weights",
    "python-lists": "each worker comes to own a copy of the dataset's long Python lists",
    "drops-everything": "the last, incomplete batch is dropped, and it is the only one",
    "batch-larger-than-shard": "a batch is larger than all that a rank reads in an epoch",
    "workers-repeat": "each worker reads the whole stream, so that samples come once a worker",
    "ranks-repeat": "each rank reads the whole stream",
    "idle-workers": "the stream has fewer shards than ranks x workers, so that some read nothing",
    "costly-remote": "the order asks remote storage for far more than fetching each file once would",
    "lengths-not-told": "remote files have to be fetched to count their samples, before the first batch",
    "lengths-do-not-fit": "lengths, keys or labels are not one for each sample, or are none",
    "sample-above-budget": "a sample alone is above `max_tokens`, `seq_len`, or the last boundary",
    "boundaries-unreached": "between two boundaries no sample lies",
    "padding-wasted": "more than 30 % of the padded tokens are padding",
    "abreast-does-not-fit": "the ranks do not divide `abreast`, so that batches of a step cost unlike",
    "samples-left-out": "`long` and `short` leave out more than one sample in a hundred",
    "fewer-batches-than-ranks": "an epoch has not a batch for each rank",
    "loss-ignores-tokens": "a loop trains on unlike batches, and never asks `loader.tokens`",
    "tokens-cut-off": "packs keep the beginning of long documents, and lose more than one token in a hundred",
    "documents-read-again": "whole documents are read for each of their parts, more than twice the tokens",
    "resume-inexact": "the saved state is ahead of what the loop received, so that a resume skips samples",
    "skipped-twice": "a trainer skips, when it resumes, what the state of the loader has behind it",
    "batches-counted": "a trainer counts the batches of the first epoch, and other epochs have more or fewer",
    "refused": "the sampler does not go with the dataset",
}
"""What there is to find, and what it means."""


@final
@dataclass(frozen=True)
class Finding:
    """A mistake in how a loader is set up.

    Args:
        code: which one, a key of `CODES`.
        severity: `error` or `warning`.
        what: what is wrong here, with its numbers.
        mend: what to do about it.

    Example:
        >>> print(Finding("few-files", "warning", "2 files for 8 ranks", "write more files"))
        few-files: 2 files for 8 ranks; write more files
    """

    code: str
    severity: Severity
    what: str
    mend: str

    def __str__(self) -> str:
        return f"{self.code}: {self.what}; {self.mend}"
