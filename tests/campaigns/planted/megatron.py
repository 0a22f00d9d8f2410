"""Bugs in the replay of Megatron."""

from __future__ import annotations

from tests.campaigns.planting import Bug

GOLDEN = "tests/compat/test_megatron_golden.py"
READING = "tests/compat/test_megatron_dataset.py"

BUGS = [
    Bug(
        "the last epoch is never shuffled apart",
        "ShuffledCorpus.__init__",
        "num_samples - before < int(0.8 * ((tokens - extra) // size))",
        "False",
        GOLDEN,
    ),
    Bug(
        "samples are shuffled before documents",
        "ShuffledCorpus.__init__",
        "(epochs - 1, 1) if is_apart else (epochs,)",
        "(epochs,)",
        GOLDEN,
    ),
    Bug(
        "of equal lags the last source is read",
        "_one_by_one",
        "lags.index(max(lags))",
        "len(lags) - 1 - lags[::-1].index(max(lags))",
        GOLDEN,
    ),
    Bug(
        "a stretch counts whatever it began with",
        "blended",
        "(firsts[:, number] != left).any()",
        "False",
        GOLDEN,
    ),
    Bug(
        "a blend has as many positions as were asked for",
        "BlendedSamples.__init__",
        "sum(wanted)",
        "num_samples",
        GOLDEN,
    ),
    Bug(
        "a rank reads every so many samples, and no micro-batch",
        "MicroBatches.ids_at",
        "self._swapped(positions, self._ranks, self._micro)",
        "positions",
        GOLDEN,
    ),
    Bug(
        "steps are counted from the first sample",
        "MegatronPretrainingSampler.__init__",
        "self._consumed % (self.micro_batch_size * self.data_parallel_size)",
        "0",
        GOLDEN,
    ),
    Bug(
        "the halves of a row change places",
        "MegatronDataset._parts",
        "flat[stop - count : stop]",
        "flat[rows.nbytes - stop : rows.nbytes - stop + count]",
        READING,
    ),
    Bug(
        "what is not filled up is handed out",
        "MegatronDataset._read",
        "(filled < width).any()",
        "False",
        READING,
    ),
    Bug(
        "an index of another split is compared",
        "_is_cut",
        '_share(told["split"], dataset) == _share(dataset.split, dataset)',
        "True",
        READING,
    ),
]
