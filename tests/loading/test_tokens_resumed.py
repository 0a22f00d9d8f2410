"""Every token is an input exactly once, on any ranks, also where windows get another length in mid-run."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.loading.run.window_unit import steps_to_a_multiple
from samplerkit.loading.state.state import State
from tests.loading.rings import Rings
from tests.loading.token_loaders import blocks, tokens_of


@pytest.mark.parametrize("runs", [4, pytest.param(220, marks=pytest.mark.campaign)])
def test_random_runs_lose_and_repeat_no_token(runs, record_property):
    """Random files, blocks, pools, orders, ranks and batches; the length changes where steps meet a pool."""
    random = np.random.default_rng(runs)
    epochs = windows = changes = 0
    for _ in range(runs):
        block = int(random.choice([6, 8, 12]))
        lengths = [number for number in range(1, block + 1) if block % number == 0]
        files = random.integers(1, 9 * block, random.integers(1, 5)).tolist()
        if max(files) < block:
            continue
        pool, seed = int(random.integers(1, 4)), int(random.integers(9))
        child = [None, sk.SequentialSampler(), sk.RandomSampler(shuffle="partial", partial_size=2)][seed % 3]

        def made(seq_len, ranks, rank, files=files, block=block, pool=pool, seed=seed, child=child):
            data, world = Rings(files, seq_len, block, seed), sk.World(ranks, rank)
            size = max(1, block // seq_len // 2)
            return sk.Loader(
                data, blocks(pool, child, seed), batch_size=size, world=world, tail="ragged", collate_fn=list
            )

        state, told = None, Counter()
        seq_len = 0
        while state is None or state["epoch"] < 6:
            before, seq_len = seq_len, int(random.choice(lengths))
            ranks = int(random.integers(1, 9))
            epoch = 0 if state is None else state["epoch"]
            runs_of_ranks = [made(seq_len, ranks, rank) for rank in range(ranks)]
            for run in runs_of_ranks:
                if state is not None:
                    run.load_state_dict(state)
            changes += before not in (0, seq_len) and state["position"] > 0
            # Up to a step that ends with a pool; the whole epoch where there is none.
            per_step, first = runs_of_ranks[0].batch_size * ranks, runs_of_ranks[0].state_dict()["position"]
            of_pool = pool * block // seq_len
            missing = steps_to_a_multiple(first, of_pool, per_step) or of_pool // np.gcd(of_pool, per_step)
            meets = (first + missing * per_step) % of_pool == 0
            steps = int(missing) if meets and random.random() < 0.8 else None
            for run in runs_of_ranks:
                seen = tokens_of(run, steps)
                windows += len(seen) // seq_len
                told.update(seen)
            state = json.loads(json.dumps(runs_of_ranks[0].state_dict()))
            if steps is None:
                state = made(seq_len, 1, 0).state_dict()
                state = State.from_dict(state)
                state = replace(state, epoch=epoch + 1, position=0).to_dict()
            epochs += state["epoch"] - epoch
        assert {*told.values()} == {1}
        an_epoch = sum(count // block * block for count in files)
        assert len(told) == state["epoch"] * an_epoch + state["position"] * seq_len
    print(
        f"{epochs} epochs, {windows} windows, {changes} changes of length within an epoch: lost 0, repeated 0"
    )
    record_property("changes", changes)
    assert changes > runs // 2
