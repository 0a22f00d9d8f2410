"""A state of another dataset or of another order is refused, with what would be skipped or repeated."""

import logging
import re
from copy import deepcopy
from itertools import islice

import numpy as np
import pytest
from torch.utils.data import ConcatDataset

import samplerkit as sk
from tests.chains import under
from tests.numbers import Numbers


class Data(Numbers):
    """Twelve samples in files, perhaps with a fingerprint."""

    def __init__(self, sizes=(3, 4, 5), names=("a", "b", "c"), **fingerprint):
        super().__init__(sk.Layout(list(sizes), list(names)))
        vars(self).update(fingerprint)


def loader(dataset):
    return sk.Loader(dataset, sk.RandomSampler(seed=3), batch_size=2, world=sk.World(1, 0))


CHANGES = {
    "a sample went to another file": (Data(), Data((4, 3, 5))),
    "two files changed places": (Data(), Data((3, 5, 4), ("a", "c", "b"))),
    "a file was renamed": (Data(), Data(names=("a", "b", "d"))),
    "two files became one": (Data(), Data((3, 9), ("a", "b"))),
    "the fingerprint changed": (Data(fingerprint="1"), Data(fingerprint="2")),
    "a fingerprint came": (Data(), Data(fingerprint="1")),
    "a Hugging Face fingerprint changed": (Data(_fingerprint="1"), Data(_fingerprint="2")),
    "files became plain samples": (Data(), range(12)),
    "the parts have other sizes": (ConcatDataset([range(5), range(7)]), ConcatDataset([range(7), range(5)])),
}


CLASSES = [0, 1] * 6
SWAPPED = [1, 0] * 6


def labelled(labels, sampler, **attributes):
    return sk.Loader(Data(**attributes, label=labels), sampler, batch_size=2, world=sk.World(1, 0))


LABELS = {
    "labels of the dataset": ("dataset", lambda labels: labelled(labels, sk.PKSampler(3))),
    "labels below another sampler": (
        "dataset",
        lambda labels: labelled(labels, under(sk.RandomSampler(seed=1), sk.PKSampler(3))),
    ),
    "labels of another column": (
        "dataset",
        lambda labels: labelled(
            CLASSES, under(sk.PKSampler(3), sk.PKSampler(6, class_column="kind")), kind=np.array(labels)
        ),
    ),
    "labels of the sampler": (
        "sampler",
        lambda labels: labelled(CLASSES, sk.PKSampler(3, labels=labels)),
    ),
    "weights": (
        "sampler",
        lambda labels: labelled(CLASSES, sk.WeightedRandomSampler([1.0 + label for label in labels])),
    ),
}
"""By what is changed: the field of the error, and a loader with these labels."""


CASES = {name: ("dataset", loader, *datasets) for name, datasets in CHANGES.items()}
CASES |= {name: (field, make, CLASSES, SWAPPED) for name, (field, make) in LABELS.items()}


@pytest.mark.parametrize("change", CASES)
def test_a_dataset_of_the_same_length_that_changed_is_refused_with_the_difference(change):
    """Its files, its fingerprint, its labels, or the weights and labels of its sampler."""
    field, make, before, after = CASES[change]
    assert len(before) == len(after) == 12
    state = make(before).state_dict(step=2)
    with pytest.raises(sk.StateError) as caught:
        make(after).load_state_dict(state)
    assert caught.value.field == field
    assert caught.value.saved == state[field]
    assert caught.value.current == make(after).state_dict()[field] != state[field]
    assert state[field][:50] in str(caught.value)  # long ones are cut
    assert make(after).fingerprint != make(before).fingerprint
    same = make(deepcopy(before))
    same.load_state_dict(state)
    assert same.state_dict() == state
    make(after).load_state_dict(state, allow={field})


WHOLE = sk.World(1, 0)


def loader_of(size, sampler, **options):
    return sk.Loader(
        range(size), sampler, batch_size=5, collate_fn=list, world=WHOLE, **{"tail": "ragged", **options}
    )


@pytest.mark.parametrize("step", [1, 3, 5, 7])
def test_the_error_and_the_log_bound_what_an_epoch_skips_and_repeats(step, caplog):
    first, rest = loader_of(40, sk.RandomSampler(seed=3)), loader_of(57, sk.RandomSampler(seed=3))
    read = [id for batch in islice(first, step) for id in batch]
    with pytest.raises(sk.StateError, match="state: dataset: ") as caught:
        rest.load_state_dict(first.state_dict(step=step))
    with caplog.at_level(logging.WARNING, "samplerkit"):
        rest.load_state_dict(first.state_dict(step=step), allow={"dataset"})
    again = [id for batch in rest for id in batch]
    message = f"which may skip and repeat up to {step * 5} samples"
    assert message in str(caught.value)
    assert message in caplog.messages[-1]
    assert len({*range(57)} - {*read, *again}) <= step * 5
    assert len({*read} & {*again}) <= step * 5


def error_of(first, rest, field="dataset", **options):
    with pytest.raises(sk.StateError, match=f"state: {field}: ") as caught:
        rest.load_state_dict(first.state_dict(step=2), **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("field", "sampler"),
    [("seed", sk.RandomSampler(seed=2)), ("sampler", sk.RandomSampler(shuffle="partial"))],
)
def test_another_order_of_the_same_samples_has_a_bound(field, sampler):
    message = error_of(loader_of(40, sk.RandomSampler()), loader_of(40, sampler), field)
    assert "which may skip and repeat up to 10 samples" in message


def test_at_the_beginning_of_an_epoch_nothing_is_skipped_or_repeated():
    with pytest.raises(sk.StateError, match="may skip and repeat up to 0 samples"):
        loader_of(41, sk.RandomSampler()).load_state_dict(loader_of(40, sk.RandomSampler()).state_dict())


def test_another_tail_changes_no_order():
    message = error_of(
        loader_of(40, sk.RandomSampler()), loader_of(40, sk.RandomSampler(), tail="drop"), "tail"
    )
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


def test_a_state_of_a_mixture_is_refused_over_a_dataset_without_its_parts():
    def mixed(dataset):
        sampler = sk.MixtureSampler({"a": sk.RandomSampler(seed=1)})
        return sk.Loader(dataset, sampler, batch_size=2, world=sk.World(1, 0))

    state = mixed(sk.TreeDataset({"a": range(12)})).state_dict(step=1)
    with pytest.raises(sk.StateError, match="dataset: differs from the saved state"):
        mixed(range(12)).load_state_dict(state)
