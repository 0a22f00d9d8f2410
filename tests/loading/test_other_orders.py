"""A state that is allowed to be of another order: the error and the log say what that skips and repeats."""

from __future__ import annotations

import logging
import re
from itertools import islice

import numpy as np
import pytest

import samplerkit as sk

WHOLE = sk.World(1, 0)


def loader(size, sampler, **options):
    return sk.Loader(
        range(size), sampler, batch_size=5, collate_fn=list, world=WHOLE, **{"tail": "ragged", **options}
    )


@pytest.mark.parametrize("step", [1, 3, 5, 7])
def test_the_error_and_the_log_bound_what_an_epoch_skips_and_repeats(step, caplog):
    first, rest = loader(40, sk.RandomSampler(seed=3)), loader(57, sk.RandomSampler(seed=3))
    read = [id for batch in islice(first, step) for id in batch]
    with pytest.raises(sk.StateError, match="state: dataset: ") as caught:
        rest.load_state_dict(first.state_dict(step=step))
    with caplog.at_level(logging.WARNING, "samplerkit"):
        rest.load_state_dict(first.state_dict(step=step), allow={"dataset"})
    again = [id for batch in rest for id in batch]
    most = min(len(read), 57 - len(read))
    message = f"which may skip up to {step * 5} of its 57 samples and repeat up to {most}"
    assert message in str(caught.value)
    assert message in caplog.messages[-1]
    assert len({*range(57)} - {*read, *again}) <= step * 5
    assert len({*read} & {*again}) <= most


def error_of(first, rest, field="dataset", **options):
    with pytest.raises(sk.StateError, match=f"state: {field}: ") as caught:
        rest.load_state_dict(first.state_dict(step=2), **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("field", "sampler"),
    [("seed", sk.RandomSampler(seed=2)), ("sampler", sk.RandomSampler(shuffle="partial"))],
)
def test_another_order_of_the_same_samples_has_a_bound(field, sampler):
    message = error_of(loader(40, sk.RandomSampler()), loader(40, sampler), field)
    assert "which may skip up to 10 of its 40 samples and repeat up to 10" in message


def test_a_sampler_that_reads_no_other_dataset_leaves_the_error_as_it_is():
    def weighted(size):
        return loader(size, sk.WeightedRandomSampler(np.ones(size)))

    message = error_of(weighted(40), weighted(50))
    assert "which may skip up to 10 of its 50 samples and repeat up to 10" in message
    weights = sk.WeightedRandomSampler(np.ones(40))
    assert "which may skip and repeat up to 10 samples" in error_of(weighted(40), loader(30, weights))


def test_at_the_beginning_of_an_epoch_nothing_is_skipped_or_repeated():
    with pytest.raises(sk.StateError, match="so no sample is skipped or repeated"):
        loader(41, sk.RandomSampler()).load_state_dict(loader(40, sk.RandomSampler()).state_dict())


def test_a_position_past_the_end_is_not_advised_to_be_allowed():
    message = error_of(loader(40, sk.RandomSampler()), loader(8, sk.RandomSampler()))
    assert "which has only 8 samples: it cannot be loaded" in message
    message = error_of(loader(40, sk.RandomSampler()), loader(10, sk.RandomSampler()))
    assert "of its 10 samples and repeat up to 0" in message


def test_another_tail_changes_no_order():
    message = error_of(loader(40, sk.RandomSampler()), loader(40, sk.RandomSampler(), tail="drop"), "tail")
    assert 'allow={"tail"}: the order is the same' in message


def test_batches_have_a_bound_in_batches():
    def of_batches(**options):
        data, recipe = type("Data", (list,), options)(range(40)), sk.TokenBatches(8, lengths=np.full(40, 2))
        return sk.Loader(data, sk.RandomSampler(), batches=recipe, collate_fn=list, world=WHOLE)

    message = error_of(of_batches(fingerprint="1"), of_batches(fingerprint="2"))
    assert "which may skip and repeat up to 2 batches" in message


def test_a_sampler_whose_states_have_no_allow_does_not_advise_it():
    state = sk.TorchSampler(sk.RandomSampler(), range(40), world=WHOLE).state_dict()
    with pytest.raises(sk.StateError, match="make it as it was when the state was saved") as caught:
        sk.TorchSampler(sk.RandomSampler(), range(41), world=WHOLE).load_state_dict(state)
    assert not re.search("allow", str(caught.value))
