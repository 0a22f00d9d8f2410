"""Loaders of batches of samples that are their number and a number from their draw."""

import json

import numpy as np

import samplerkit as sk
from tests.numbers import Made

SIZE = 300
LENGTHS = np.clip(np.random.default_rng(0).lognormal(3, 1, SIZE), 2, 120).astype(np.int64)
RECIPE = sk.TokenBatches(240, lengths=LENGTHS)
SMALL_WINDOWS = sk.TokenBatches(240, lengths=LENGTHS, window=64)

SAMPLERS = {
    "global": (lambda: sk.RandomSampler(seed=7), RECIPE),
    "windows": (lambda: sk.RandomSampler(seed=7), SMALL_WINDOWS),
    "partial": (lambda: sk.RandomSampler(seed=7, shuffle="partial", partial_size=50), SMALL_WINDOWS),
    "in order": (sk.SequentialSampler, SMALL_WINDOWS),
}


NOISY = Made(sk.Layout([60] * 5), lambda index: (index, float(sk.draw_rng().random())))


def loader(kind="global", ranks=1, rank=0, dataset=None, resumed=None, **options):
    make, recipe = SAMPLERS[kind]
    dataset = NOISY if dataset is None else dataset
    defaults = {"batches": recipe, "collate_fn": list, "world": sk.World(ranks, rank), **options}
    run = sk.Loader(dataset, make(), **defaults)
    if resumed is not None:
        run.load_state_dict(json.loads(resumed))
    return run


def read(run):
    """The samples of all steps, each with whether it is a pad."""
    steps = []
    for batch in run:
        pads = run.pads(run.step - 1)
        assert [index for index, _ in batch] == run.ids(run.step - 1).tolist()
        assert pads.all() or not pads.any()
        steps.append([(index, noise, bool(pad)) for (index, noise), pad in zip(batch, pads, strict=True)])
    return steps
