"""A dataset that changed is refused, even if it has as many samples as before."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from torch.utils.data import ConcatDataset

import samplerkit as sk
from tests.chains import under


class Data:
    """Twelve samples in files, perhaps with a fingerprint."""

    def __init__(self, sizes=(3, 4, 5), names=("a", "b", "c"), **fingerprint):
        self.layout = sk.Layout(list(sizes), list(names))
        vars(self).update(fingerprint)

    def __len__(self):
        return len(self.layout)

    def __getitem__(self, index):
        return index


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


def test_a_state_of_a_mixture_is_refused_over_a_dataset_without_its_parts():
    def mixed(dataset):
        sampler = sk.MixtureSampler({"a": sk.RandomSampler(seed=1)})
        return sk.Loader(dataset, sampler, batch_size=2, world=sk.World(1, 0))

    state = mixed(sk.TreeDataset({"a": range(12)})).state_dict(step=1)
    with pytest.raises(sk.StateError, match="dataset: differs from the saved state"):
        mixed(range(12)).load_state_dict(state)
