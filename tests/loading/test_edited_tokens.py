"""Edits of a mixture of blocks: they hold between pools, whatever the length of windows is."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import samplerkit as sk
from tests.loading.rings import Rings
from tests.loading.token_loaders import BLOCK, TREE, blocks, loader, mixture, tokens_of


def edited(*edits):
    return blocks(2, sk.Ledger(mixture(num_samples=22), [sk.Edit(**edit) for edit in edits]))


WEIGHTS = {"at": 8, "weights": {"web": 0.1, "code": 0.9}}


def test_weights_change_between_pools_and_the_length_where_it_may():
    """The blocks that are read are those that the ledger alone gives, whatever they are cut into."""
    layout = Rings(TREE, 12, BLOCK).block_layout
    ledger = edited(WEIGHTS).get_child()
    expected = [ledger.order(layout, epoch)[:].tolist() for epoch in range(2)]
    state, read_blocks = None, []
    for seq_len, ranks, steps in [(2, 2, 12), (4, 3, None), (12, 1, 10), (3, 4, None)]:
        runs = [
            loader(seq_len, ranks, rank, files=TREE, sampler=edited(WEIGHTS), batch_size=1)
            for rank in range(ranks)
        ]
        pieces = BLOCK // seq_len
        for run in runs:
            if state is not None:
                run.load_state_dict(state)
            count = run.steps_left if steps is None else steps
            read_blocks += [id // pieces for step in range(count) for id in run.ids(step).tolist()] * seq_len
        state = runs[0].state_dict(step=max(run.steps_left for run in runs) if steps is None else steps)
    assert (state["epoch"], state["position"]) == (2, 0)
    whole = Counter({block: count * BLOCK for block, count in Counter(sum(expected, [])).items()})
    assert Counter(read_blocks) == whole
    plain = mixture(num_samples=22).order(layout, 0)[:].tolist()
    assert expected[0][:8] == plain[:8]
    assert expected[0] != plain


def test_a_state_behind_other_edits_of_blocks_is_refused():
    state = loader(2, files=TREE, sampler=edited(WEIGHTS)).state_dict(step=8 * 6)
    behind = loader(2, files=TREE, sampler=edited(WEIGHTS)).state_dict(step=8 * 6 + 1)
    free = loader(4, files=TREE, sampler=edited())
    free.load_state_dict(state)
    assert free.fingerprint != loader(4, files=TREE, sampler=edited(WEIGHTS)).fingerprint
    with pytest.raises(sk.StateError, match="ledger: edit 1 of the saved run is missing"):
        loader(2, files=TREE, sampler=edited()).load_state_dict(behind)
    late = loader(2, files=TREE, sampler=edited()).state_dict(step=8 * 6 + 1)
    with pytest.raises(sk.StateError, match="ledger: was saved at position 10, before which this run"):
        loader(2, files=TREE, sampler=edited(WEIGHTS)).load_state_dict(late)


def test_edits_that_do_not_go_with_blocks_are_refused():
    with pytest.raises(sk.ArgumentValueError, match=r"edit at 7: lies within a pool of 2 blocks.*say at=8"):
        loader(2, files=TREE, sampler=edited({"at": 7, "skip": 2})).state_dict()
    with pytest.raises(sk.ArgumentValueError, match="where it counts blocks"):
        loader(2, files=TREE, sampler=edited({"at": 8, "global_batch": 4})).state_dict()
    with pytest.raises(sk.CompositionError, match="start with a ledger below the BlockSampler"):
        loader(2, files=TREE, sampler=edited()).edit(skip=2)
    recipe = sk.TokenBatches(24, lengths=np.full(60, 2))
    with pytest.raises(sk.NotSupportedError, match="not counted in blocks"):
        sk.Loader(Rings(TREE, 2, BLOCK), edited(), batches=recipe)


@pytest.mark.parametrize("empty", [True, False])
def test_within_a_pool_a_ledger_is_neither_put_below_the_blocks_nor_taken_away(empty):
    """Above a ledger a pool is shuffled by another key: samples would be lost and read twice, silently."""
    edits = [] if empty else [sk.Edit(at=20, skip=1)]

    def of(ledger):
        child = mixture(num_samples=22)
        return blocks(2, sk.Ledger(child, edits) if ledger else child)

    def make(ledger):
        return loader(4, files=TREE, sampler=of(ledger))

    pool, cases = 2 * BLOCK // 4, 0
    whole = {ledger: tokens_of(make(ledger)) for ledger in (True, False)}
    for before, after in [(True, False), (False, True)]:
        for step in range(1, 3 * pool):
            state, other = make(before).state_dict(step=step), make(after)
            if step % pool:
                with pytest.raises(sk.StateError, match="ledger: was saved within a pool"):
                    other.load_state_dict(state)
                cases += 1
            else:
                other.load_state_dict(state)
                begun = tokens_of(make(before), step)
                assert Counter(begun + tokens_of(other)) == Counter(whole[after])
            same = make(before)
            same.load_state_dict(state)
            assert tokens_of(same) == whole[before][step * 4 :]
    assert cases == 2 * 3 * (pool - 1)
