"""What `long` and `short` say holds over a whole set and over windows, through a loader and both collates."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch

import samplerkit as sk

LENGTHS = [9, 3, 5, 0, 4, 25, 1, 4]
PLANS = {
    "a whole set": (sk.RandomSampler(seed=7), None),
    "windows of a set": (sk.RandomSampler(seed=7), 3),
    "a window of an order": (sk.SequentialSampler(), None),
    "windows of an order": (sk.SequentialSampler(), 3),
    "windows of files": (sk.DistributedSampler(shuffle="files", seed=7), 3),
}


class Documents:
    """Document i holds 100 i, 100 i + 1, and so on."""

    layout = sk.Layout([3, 5])

    def __len__(self):
        return len(LENGTHS)

    def __getitem__(self, id):
        return torch.arange(100 * id, 100 * id + LENGTHS[id])


class Parts(Documents):
    """Documents of which parts can be asked for."""

    def __getsegments__(self, segments):
        return [self[id][start : start + length] for id, start, length in segments.tolist()]


def read(recipe, name, dataset, collate, tail="split", ranks=3):
    """All tokens that the ranks read, sorted."""
    options = {} if collate is None else {"collate_fn": collate}
    tokens = []
    for rank in range(ranks):
        world = sk.World(ranks, rank)
        loader = sk.Loader(dataset, PLANS[name][0], batches=recipe, tail=tail, world=world, **options)
        for batch in loader:
            there = batch["segment_ids"] > 0 if isinstance(batch, dict) else batch.mask
            values = batch["input_ids"] if isinstance(batch, dict) else batch.values
            tokens += [] if loader.pads(loader.step - 1).any() else values[there].tolist()
    return sorted(tokens)


def first_tokens(most):
    """So many of the first tokens of each document, as they are sorted."""
    return [token for id in range(len(LENGTHS)) for token in Documents()[id][: most[id]].tolist()]


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("long", ["split", "drop", "truncate"])
@pytest.mark.parametrize(("packs", "multiple"), [(1, 1), (2, 2)])
def test_packs_hold_what_long_says_whatever_plan_they_are_of(name, long, packs, multiple):
    recipe = sk.PackBatches(
        4, lengths=LENGTHS, long=long, packs=packs, length_multiple=multiple, window=PLANS[name][1]
    )
    kept = {
        "split": LENGTHS,
        "drop": [0 if length > 4 else length for length in LENGTHS],
        "truncate": [min(length, 4) for length in LENGTHS],
    }
    for dataset, collate, tail in itertools.product(
        (Documents(), Parts()), (None, sk.PadCollate()), ("pad", "ragged", "split")
    ):
        assert read(recipe, name, dataset, collate, tail) == first_tokens(kept[long]), (dataset, tail)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("long", ["drop", "truncate", "alone"])
def test_batches_of_tokens_hold_what_long_says_whatever_plan_they_are_of(name, long):
    recipe = sk.TokenBatches(8, lengths=LENGTHS, long=long, window=PLANS[name][1])
    kept = {
        "drop": [0 if length > 8 else length for length in LENGTHS],
        "truncate": [min(length, 8) for length in LENGTHS],
        "alone": LENGTHS,
    }
    for tail in ("pad", "ragged", "split"):
        assert read(recipe, name, Documents(), sk.PadCollate(), tail) == first_tokens(kept[long])


WITHOUT_A_BATCH = {
    "packs of no tokens": lambda window: sk.PackBatches(4, lengths=[0] * 8, window=window),
    "packs without long ones": lambda window: sk.PackBatches(
        4, lengths=[9] * 8, long="drop", packs=2, window=window
    ),
    "tokens without long ones": lambda window: sk.TokenBatches(
        4, lengths=[9] * 8, long="drop", window=window
    ),
    "tokens without short ones": lambda window: sk.TokenBatches(
        99, lengths=[9] * 8, short="drop", window=window
    ),
    "pairs without long ones": lambda window: sk.TokenBatches(
        4, lengths=[[9, 9]] * 8, long="drop", window=window
    ),
    "buckets without short ones": lambda window: sk.BucketBatches(
        [9], 9, lengths=[9] * 8, short="drop", window=window
    ),
    "keys without short ones": lambda window: sk.BucketBatches(
        None, 9, keys=[1] * 8, short="drop", window=window
    ),
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("recipe", WITHOUT_A_BATCH)
def test_an_epoch_without_a_batch_is_saved_and_loaded_and_the_next_one_comes(recipe, name):
    for ranks, tail in itertools.product((1, 3), ("pad", "drop", "ragged", "split")):
        world = sk.World(ranks, 0)

        def loader(world=world, tail=tail):
            batches = WITHOUT_A_BATCH[recipe](PLANS[name][1])
            return sk.Loader(Documents(), PLANS[name][0], batches=batches, tail=tail, world=world)

        first, second, third = loader(), loader(), loader()
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert (second.epoch, len(second), list(second), second.epoch) == (0, 0, [], 1)
        third.load_state_dict(json.loads(json.dumps(second.state_dict())))
        assert list(third) == []
        assert third.epoch == 2


def test_a_first_window_without_a_batch_is_saved_and_loaded():
    def loader():
        recipe = sk.PackBatches(4, lengths=[0, 0, 0, 0, 4, 0, 0, 4], window=2)
        return sk.Loader(Documents(), sk.SequentialSampler(), batches=recipe, collate_fn=list)

    whole, states = loader(), []
    states.append(whole.state_dict())
    batches = []
    for batch in whole:
        batches.append([tokens.tolist() for tokens in batch])
        states.append(whole.state_dict())
    assert [state["sections"]["batches"]["window"] for state in states[:2]] == [[0, 0], [3, 1]]
    for done, state in enumerate(states[:2]):
        resumed = loader()
        resumed.load_state_dict(state)
        assert [[tokens.tolist() for tokens in batch] for batch in resumed] == batches[done:]


PAIRS = [[9, 9], [1, 1], [2, 1], [2, 2], [1, 2], [1, 1]]


@pytest.mark.parametrize("lengths", [PAIRS, [3, 3, 2, 2, 2, 9]], ids=["pairs", "lengths"])
@pytest.mark.parametrize("abreast", [1, 2])
def test_a_last_batch_of_a_window_that_is_not_full_is_left_out_where_the_recipe_says_so(lengths, abreast):
    def batches(short):
        recipe = sk.TokenBatches(8, lengths=lengths, short=short, long="drop", window=6, abreast=abreast)
        plan = recipe.plan(sk.SequentialSampler(), 6)
        return [batch.tolist() for batch in plan], plan.dropped, recipe.budget

    (whole, dropped, budget), (full, more, _) = batches("keep"), batches("drop")
    longest = np.array(lengths)[whole[-1]].max(axis=0, keepdims=True)
    assert budget.sizes(longest)[0] > len(whole[-1])
    assert full == whole[:-1]
    assert more == dropped + len(whole[-1])


@pytest.mark.parametrize("lengths", [PAIRS, [9, 1, 2, 2, 1, 1]], ids=["pairs", "lengths"])
def test_a_long_sample_that_a_fixed_set_leaves_out_is_no_error(lengths):
    recipe = sk.TokenBatches(8, lengths=lengths)
    plan = recipe.plan(sk.SubsetRandomSampler([5, 3, 1], seed=1), 6)
    assert sorted(id for batch in plan for id in batch.tolist()) == [1, 3, 5]
    with pytest.raises(sk.ArgumentRangeError, match="9"):
        recipe.plan(sk.SubsetRandomSampler([0, 3, 1], seed=1), 6)


@pytest.mark.parametrize("name", ["a whole set", "a window of an order"])
def test_a_part_of_a_batch_that_shorter_samples_complete_is_within_the_limit(name):
    recipe = sk.BucketBatches([8, 25], [1, 4], lengths=LENGTHS, window=PLANS[name][1])
    assert sorted(map(len, recipe.plan(PLANS[name][0], Documents()))) == [1, 1, 1, 1, 4]
    for ranks in (1, 3, 6, 8):
        assert read(recipe, name, Documents(), sk.PadCollate(), ranks=ranks) == first_tokens(LENGTHS)
    lying = sk.BucketBatches([8, 25], [4, 1], lengths=[4] * 8, window=PLANS[name][1])
    with pytest.raises(sk.DatasetError, match="longer than their given lengths"):
        read(lying, name, Documents(), sk.PadCollate(), ranks=1)
