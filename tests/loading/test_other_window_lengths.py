"""Where windows may get another length: at a pool of the same run, edited or not, and nowhere else."""

import json
from collections import Counter

import numpy as np
import pytest

import samplerkit as sk
from tests.chains import under
from tests.loading.rings import Rings
from tests.loading.token_loaders import BLOCK, FILES, TREE, blocks, loader, mixture, tokens_of


def test_another_length_within_a_pool_is_refused_and_the_suggested_step_is_accepted():
    run = loader(2, 2, batch_size=2)
    pool, total, cases = 2 * BLOCK, 336, 0
    for step in range(1, 336 // 8 + 1):
        state, tokens = run.state_dict(step=step), 8 * step
        other = loader(4, 1, batch_size=2)
        if tokens % pool == 0 or tokens == total:
            other.load_state_dict(state)
            continue
        with pytest.raises(sk.StateError, match=r"seq_len: .* is within a pool of 12 windows") as caught:
            other.load_state_dict(state)
        missing = int(str(caught.value).split("seq_len=2 for ")[1].split(" more steps")[0])
        assert 0 < missing <= 2
        other.load_state_dict(run.state_dict(step=step + missing))
        assert f"to position {tokens // 2 + 4 * missing} or the end" in str(caught.value)
        cases += 1
    assert cases == 28
    # Steps that never meet the beginning of a pool: the place is named, and taken by other steps.
    with pytest.raises(sk.StateError, match="seq_len=2 to position 12 or the end"):
        loader(4, 5, batch_size=1).load_state_dict(loader(2, 5).state_dict(step=1))


def test_the_next_place_is_found_at_once_in_a_pool_of_any_size():
    size, blocks_in_a_pool = 1 << 40, (1 << 30) - 1
    runs = [loader(seq_len, files=[size], sampler=blocks(blocks_in_a_pool)) for seq_len in (2, 4)]
    with pytest.raises(sk.StateError, match=f"for {blocks_in_a_pool * 3 - 1} more steps of as many tokens"):
        runs[1].load_state_dict(runs[0].state_dict(step=2))


def test_the_identity_of_a_run_does_not_change_with_the_length():
    assert {loader(seq_len).fingerprint for seq_len in (1, 2, 6, 12)} == {loader(4).fingerprint}
    again = loader(1)
    again.load_state_dict(loader(1).state_dict(step=24))
    assert len(tokens_of(again)) == 336 - 24
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
    state_of_windows = loader(2, sampler=sk.RandomSampler(seed=3)).state_dict(step=24)
    for allow in ((), {"dataset", "sampler", "seed"}):
        with pytest.raises(sk.StateError, match=r"seq_len: .*allow= does not cover this") as caught:
            loader(4, sampler=sk.RandomSampler(seed=3)).load_state_dict(state_of_windows, allow=allow)
        assert (caught.value.saved, caught.value.current) == (2, 4)
        assert "finish the epoch with seq_len=2" in str(caught.value)
    same = loader(2, sampler=first)
    same.load_state_dict(state)
    assert len(tokens_of(same)) == 336 - 48


def test_another_block_is_another_dataset():
    for seq_len in (2, 4):
        data = Rings(FILES, seq_len, 2 * BLOCK)
        other = sk.Loader(data, blocks(), batch_size=1, world=sk.World(1, 0))
        with pytest.raises(sk.StateError, match=r"block_len: .*seq_len alone may change"):
            other.load_state_dict(loader(2).state_dict(step=24))


def test_a_limit_of_whole_pools_is_a_limit_of_as_many_tokens():
    def dealt(samples):
        return under(sk.DistributedSampler(shuffle=False, num_samples=samples), blocks())

    first = loader(2, 2, 0, sampler=dealt(36))
    state = first.state_dict(step=6)
    assert (state["limit"], state["position"]) == (72, 12)
    rest = loader(4, 1, 0, sampler=dealt(36))
    rest.load_state_dict(state)
    assert len(tokens_of(rest)) == 144 - 24
    with pytest.raises(sk.StateError, match="limit: is not a whole number of pools"):
        loader(4, 1, 0, sampler=dealt(35)).load_state_dict(
            loader(2, 2, 0, sampler=dealt(35)).state_dict(step=6)
        )


def test_batches_of_windows_are_refused_with_another_length():
    recipe = sk.TokenBatches(24, lengths=np.full(168, 2))
    saved = sk.Loader(Rings(FILES, 2, BLOCK), blocks(), batches=recipe, world=sk.World(1, 0)).state_dict()
    other = sk.TokenBatches(24, lengths=np.full(84, 4))
    with pytest.raises(sk.StateError, match="in a run of samples, not batches"):
        sk.Loader(Rings(FILES, 4, BLOCK), blocks(), batches=other, world=sk.World(1, 0)).load_state_dict(
            saved
        )


def edited(*edits):
    return blocks(2, sk.Ledger(mixture(num_samples=22), [sk.Edit(**edit) for edit in edits]))


WEIGHTS = {"at": 8, "weights": {"web": 0.1, "code": 0.9}}


def test_a_state_after_other_edits_of_blocks_is_refused():
    state = loader(2, files=TREE, sampler=edited(WEIGHTS)).state_dict(step=8 * 6)
    after = loader(2, files=TREE, sampler=edited(WEIGHTS)).state_dict(step=8 * 6 + 1)
    free = loader(4, files=TREE, sampler=edited())
    free.load_state_dict(state)
    assert free.fingerprint != loader(4, files=TREE, sampler=edited(WEIGHTS)).fingerprint
    with pytest.raises(sk.StateError, match="ledger: edit 1, before position 10, is not"):
        loader(2, files=TREE, sampler=edited()).load_state_dict(after)
    late = loader(2, files=TREE, sampler=edited()).state_dict(step=8 * 6 + 1)
    with pytest.raises(sk.StateError, match="ledger: edit 1, before position 10, is not"):
        loader(2, files=TREE, sampler=edited(WEIGHTS)).load_state_dict(late)


def test_edits_that_do_not_go_with_blocks_are_refused():
    with pytest.raises(sk.ArgumentValueError, match=r"edit at 7: is within a pool of 2 blocks.*use at=8"):
        loader(2, files=TREE, sampler=edited({"at": 7, "skip": 2})).state_dict()
    with pytest.raises(sk.ArgumentValueError, match="below a BlockSampler edits count blocks"):
        loader(2, files=TREE, sampler=edited({"at": 8, "global_batch": 4})).state_dict()
    for sampler in (edited(), sk.BlockSampler(2)):
        with pytest.raises(sk.CompositionError, match="or one below the BlockSampler"):
            loader(2, files=TREE, sampler=sampler).edit(skip=2)
    recipe = sk.TokenBatches(24, lengths=np.full(60, 2))
    with pytest.raises(sk.NotSupportedError, match="whose edits count blocks"):
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
    all_tokens = {ledger: tokens_of(make(ledger)) for ledger in (True, False)}
    for before, after in [(True, False), (False, True)]:
        for step in range(1, 3 * pool):
            state, other = make(before).state_dict(step=step), make(after)
            if step % pool:
                with pytest.raises(sk.StateError, match="ledger: was saved within a pool"):
                    other.load_state_dict(state)
                cases += 1
            else:
                other.load_state_dict(state)
                first_tokens = tokens_of(make(before), step)
                assert Counter(first_tokens + tokens_of(other)) == Counter(all_tokens[after])
            same = make(before)
            same.load_state_dict(state)
            assert tokens_of(same) == all_tokens[before][step * 4 :]
    assert cases == 2 * 3 * (pool - 1)


@pytest.mark.parametrize("runs", [4, pytest.param(40, marks=pytest.mark.campaign)])
def test_random_runs_lose_and_repeat_no_token(runs):
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

        def make_loader(seq_len, ranks, rank, files=files, block=block, pool=pool, seed=seed, child=child):
            data, world = Rings(files, seq_len, block, seed), sk.World(ranks, rank)
            size = max(1, block // seq_len // 2)
            return sk.Loader(
                data, blocks(pool, child, seed), batch_size=size, world=world, tail="ragged", collate_fn=list
            )

        state, counts = None, Counter()
        seq_len = 0
        while state is None or state["epoch"] < 6:
            before, seq_len = seq_len, int(random.choice(lengths))
            ranks = int(random.integers(1, 9))
            runs_of_ranks = [make_loader(seq_len, ranks, rank) for rank in range(ranks)]
            for run in runs_of_ranks:
                if state is not None:
                    run.load_state_dict(state)
            changes += before not in (0, seq_len) and state["position"] > 0
            # Up to a step that ends with a pool; the whole epoch where there is none.
            per_step, first = runs_of_ranks[0].batch_size * ranks, runs_of_ranks[0].state_dict()["position"]
            of_pool = pool * block // seq_len
            missing = next((n for n in range(1, of_pool + 1) if (first + n * per_step) % of_pool == 0), None)
            steps = missing if random.random() < 0.8 else None
            for run in runs_of_ranks:
                seen = tokens_of(run, steps)
                windows += len(seen) // seq_len
                counts.update(seen)
            state = json.loads(json.dumps(runs_of_ranks[0].state_dict()))
        epochs += state["epoch"]
        assert {*counts.values()} == {1}
        epoch_tokens = sum(count // block * block for count in files)
        assert len(counts) == state["epoch"] * epoch_tokens + state["position"] * seq_len
    print(
        f"{epochs} epochs, {windows} windows, {changes} changes of length within an epoch: lost 0, repeated 0"
    )
    assert changes > runs // 2
