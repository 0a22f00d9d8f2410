"""Where windows may get another length: at a pool of the same run, and nowhere else."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.loading.run.window_unit import steps_to_a_multiple
from tests.loading.rings import Rings
from tests.loading.token_loaders import BLOCK, FILES, blocks, loader, read, tokens_of


def test_within_a_pool_it_is_refused_and_the_step_that_is_named_is_taken():
    run = loader(2, 2, batch_size=2)
    pool, total, cases = 2 * BLOCK, 336, 0
    for step in range(1, 336 // 8 + 1):
        state, tokens = run.state_dict(step=step), 8 * step
        other = loader(4, 1, batch_size=2)
        if tokens % pool == 0 or tokens == total:
            other.load_state_dict(state)
            continue
        with pytest.raises(sk.StateError, match=r"seq_len: .* is within a pool of 24 tokens") as caught:
            other.load_state_dict(state)
        missing = int(str(caught.value).split("seq_len=2 for ")[1].split(" more steps")[0])
        assert 0 < missing <= 2
        other.load_state_dict(run.state_dict(step=step + missing))
        assert f"{tokens + 8 * missing} tokens into the epoch" in str(caught.value)
        cases += 1
    assert cases == 28
    # Steps that never meet the beginning of a pool: the place is named, and taken by other steps.
    with pytest.raises(sk.StateError, match="seq_len=2 to position 12, 24 tokens"):
        loader(4, 5, batch_size=1).load_state_dict(loader(2, 5).state_dict(step=1))


def test_a_refused_state_leaves_the_run_as_it_was():
    run, other = loader(2), loader(4)
    with pytest.raises(sk.StateError):
        other.load_state_dict(run.state_dict(step=1))
    assert Counter(tokens_of(other)) == read(2, 1)[0]


def test_the_identity_of_a_run_does_not_change_with_the_length():
    assert {loader(seq_len).fingerprint for seq_len in (1, 2, 6, 12)} == {loader(4).fingerprint}
    others = {
        "another pool": loader(4, sampler=blocks(3)),
        "another seed": loader(4, sampler=blocks(seed=4)),
        "other files": loader(4, files=[100, 57, 12, 200]),
        "a global order": loader(4, sampler=sk.RandomSampler(seed=3)),
    }
    assert loader(4).fingerprint not in {run.fingerprint for run in others.values()}
    state = loader(2).state_dict(step=24)
    for run in [others["another pool"], others["another seed"], others["other files"]]:
        with pytest.raises(sk.StateError, match=r"sampler:|seed:|dataset:"):
            run.load_state_dict(state)


@pytest.mark.parametrize("saved_by", [True, False])
def test_another_order_is_refused_by_name_with_the_hint(saved_by):
    by = [sk.RandomSampler(seed=3), blocks()]
    first, second = by if saved_by else by[::-1]
    state = loader(2, sampler=first).state_dict(step=24)
    with pytest.raises(sk.StateError, match=r"seq_len: .*BlockSampler"):
        loader(4, sampler=second).load_state_dict(state)
    with pytest.raises(sk.StateError, match=r"seq_len: .*BlockSampler"):
        loader(4, sampler=sk.RandomSampler(seed=3)).load_state_dict(
            loader(2, sampler=sk.RandomSampler(seed=3)).state_dict(step=24)
        )
    same = loader(2, sampler=first)
    same.load_state_dict(state)
    assert len(tokens_of(same)) == 336 - 48


def test_another_block_is_another_dataset():
    other = sk.Loader(Rings(FILES, 2, 2 * BLOCK), blocks(), batch_size=1, world=sk.World(1, 0))
    with pytest.raises(sk.StateError, match=r"block_len: .*seq_len alone may change"):
        other.load_state_dict(loader(2).state_dict(step=24))


def test_a_limit_of_whole_pools_is_a_limit_of_as_many_tokens():
    def dealt(samples):
        root = sk.DistributedSampler(shuffle=False, num_samples=samples)
        root.add_child(blocks())
        return root

    first = loader(2, 2, 0, sampler=dealt(36))
    state = first.state_dict(step=6)
    assert (state["limit"], state["position"]) == (72, 12)
    rest = loader(4, 1, 0, sampler=dealt(36))
    rest.load_state_dict(state)
    assert len(tokens_of(rest)) == 144 - 24
    with pytest.raises(sk.StateError, match="limit: is no whole number of pools"):
        loader(4, 1, 0, sampler=dealt(35)).load_state_dict(
            loader(2, 2, 0, sampler=dealt(35)).state_dict(step=6)
        )


def test_batches_of_windows_are_refused_with_another_length():
    recipe = sk.TokenBatches(24, lengths=np.full(168, 2))
    saved = sk.Loader(Rings(FILES, 2, BLOCK), blocks(), batches=recipe, world=sk.World(1, 0)).state_dict()
    other = sk.TokenBatches(24, lengths=np.full(84, 4))
    with pytest.raises(sk.StateError, match="counts batches"):
        sk.Loader(Rings(FILES, 4, BLOCK), blocks(), batches=other, world=sk.World(1, 0)).load_state_dict(
            saved
        )


def test_samplers_for_torch_go_on_with_another_length_too():
    first = sk.TorchSampler(blocks(), Rings(FILES, 2, BLOCK), world=sk.World(1, 0))
    before = list(itertools.islice(first, 24))
    second = sk.TorchSampler(blocks(), Rings(FILES, 4, BLOCK), world=sk.World(1, 0))
    second.load_state_dict(first.state_dict())
    covered = [id * 2 + half for id in second for half in range(2)] + before
    assert sorted(covered) == list(range(168))
    torn = sk.TorchSampler(blocks(), Rings(FILES, 2, BLOCK), world=sk.World(1, 0))
    list(itertools.islice(torn, 5))
    with pytest.raises(sk.StateError, match="continue with seq_len=2 to position 12"):
        second.load_state_dict(torn.state_dict())


def test_windows_of_no_known_length_are_counted_in_blocks():
    def run(pieces):
        return sk.Loader(
            sk.Layout([4 * pieces, 2 * pieces]),
            sk.BlockSampler(2, windows_per_block=pieces),
            batch_size=2,
            world=sk.World(1, 0),
        )

    assert run(4).fingerprint == run(2).fingerprint
    other = run(2)
    other.load_state_dict(run(4).state_dict(step=4))
    assert other.state_dict()["position"] == 4
    assert other.state_dict()["sections"]["tokens"]["tokens"] is None
    with pytest.raises(sk.StateError, match=r"windows_per_block: .* within a pool of 8 windows"):
        other.load_state_dict(run(4).state_dict(step=1))


def test_the_steps_to_a_multiple_are_the_fewest():
    for position, of, step in itertools.product(range(30), range(1, 13), range(1, 9)):
        found = [n for n in range(of) if (position + n * step) % of == 0]
        assert steps_to_a_multiple(position, of, step) == (found[0] if found else None)
