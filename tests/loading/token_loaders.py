"""Loaders of windows of tokens, each of which lists the tokens that are its inputs."""

import itertools
import json
from collections import Counter

import samplerkit as sk
from tests.chains import under
from tests.loading.rings import Rings

BLOCK = 12
FILES = [100, 57, 10, 200]
TREE = {"web": [61, 30], "code": [45]}


def blocks(pool=2, child=None, seed=3):
    return under(sk.BlockSampler(pool, seed=seed), child)


def mixture(**more):
    return sk.MixtureSampler(
        {"web": sk.RandomSampler(shuffle="files", seed=5), "code": None},
        weights={"web": 0.6, "code": 0.4},
        lanes=2,
        seed=5,
        **more,
    )


def loader(seq_len, ranks=1, rank=0, *, batch_size=1, files=FILES, sampler=None, **options):
    options = {"tail": "ragged", "collate_fn": list, **options}
    data = Rings(files, seq_len, BLOCK)
    sampler = blocks() if sampler is None else sampler
    return sk.Loader(data, sampler, batch_size=batch_size, world=sk.World(ranks, rank), **options)


def tokens_of(run, steps=None):
    """The tokens that are inputs of the batches of a loader, each with the epoch of its source."""
    tokens = []
    for batch in itertools.islice(run, steps):
        tokens += [(epoch, *token) for epoch, inputs in batch for token in inputs]
    return tokens


def read(seq_len, ranks, state=None, steps=None, **options):
    """What all ranks read, the next state, and whether it is the end of the epoch."""
    tokens, after = [], None
    for rank in range(ranks):
        with loader(seq_len, ranks, rank, **options) as run:
            if state is not None:
                run.load_state_dict(state)
            tokens += tokens_of(run, steps)
            after = run.state_dict() if steps is None or after is None else after
    return Counter(tokens), json.loads(json.dumps(after))
