"""Sources that an edit adds to a mixture, each with the sampler that reads it."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

import samplerkit as sk
from tests.testing.links import EvenOdd

CORPUS = sk.Layout.tree(
    {"web": sk.Layout([60, 40]), "code": 50, "new": sk.Layout.tree({"a": sk.Layout([9, 8, 7]), "b": 6})}
)
START, AT = 150, 200


def _over(sampler):
    sampler.add_child(sk.RandomSampler(seed=4))
    return sampler


SAMPLERS = {
    "all of it": lambda: None,
    "files": lambda: sk.RandomSampler(shuffle="files", seed=3),
    "a subset": lambda: sk.SubsetSampler([5, 3, 9, 3]),
    "a chain": lambda: _over(sk.RepeatSampler(2)),
    "by labels": lambda: sk.PKSampler(2, labels=np.arange(30) % 3),
    "by weights": lambda: sk.WeightedRandomSampler([1.5] * 30, seed=1),
    "a mixture": lambda: sk.MixtureSampler(
        {"a": sk.SequentialSampler(), "b": None}, weights={"a": 2, "b": 1}
    ),
    "a sampler of the user": EvenOdd,
}


def mixture(lanes, **more):
    weights = {"web": 3, "code": 1, **dict.fromkeys(more, 0)}
    return sk.MixtureSampler({"web": None, "code": None, **more}, 500, weights=weights, lanes=lanes, seed=8)


def edit(sampler, **more):
    return sk.Edit(at=AT, source={"new": sampler}, weights={"web": 1, "code": 1, "new": 2}, **more)


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_new_source_reads_as_one_that_had_weight_0_from_the_beginning(name, lanes):
    make = SAMPLERS[name]
    ledger = sk.Ledger(mixture(lanes), [edit(make())])
    weights = {"web": 1, "code": 1, "new": 2}
    always = sk.Ledger(mixture(lanes, new=make()), [sk.Edit(at=AT, weights=weights)])
    orders = [ledger.order(CORPUS, epoch) for epoch in range(2)]
    for epoch, order in enumerate(orders):
        assert order[:].tolist() == always.order(CORPUS, epoch)[:].tolist()
    assert orders[0][:AT].tolist() == mixture(lanes).order(CORPUS)[:AT].tolist()
    read = np.concatenate([order[:] for order in orders])
    new = read[read >= START] - START
    assert new.size == pytest.approx(400, abs=12 * lanes)
    if lanes == 1 and name not in ("all of it", "a mixture"):
        passes = [make().order(CORPUS.parts["new"], number)[:] for number in range(new.size)]
        assert new.tolist() == np.concatenate(passes)[: new.size].tolist()


@pytest.mark.parametrize("name", SAMPLERS)
def test_an_edit_with_a_sampler_is_a_value_and_a_line_of_json(name, tmp_path):
    first, other = edit(SAMPLERS[name]()), edit(sk.RandomSampler(seed=99))
    assert pickle.loads(pickle.dumps(first)) == first == edit(SAMPLERS[name]())  # noqa: S301  # our own bytes
    assert first.digest == edit(SAMPLERS[name]()).digest != other.digest
    path = tmp_path / "edits.jsonl"
    path.write_text(json.dumps(first.fields) + "\n")
    if name == "a sampler of the user":
        with pytest.raises(sk.ArgumentValueError, match="is not one of samplerkit's samplers"):
            sk.Ledger(mixture(1), edits_file=path)
        return
    loaded = sk.Ledger(mixture(1), edits_file=path)
    assert loaded.edits == (first,)
    assert loaded.order(CORPUS)[:].tolist() == sk.Ledger(mixture(1), [first]).order(CORPUS)[:].tolist()


def test_ids_are_removed_from_an_added_source_that_reads_a_fixed_set():
    removal = [sk.Edit(at=AT + 20, without=range(START, START + 15))]
    ids = sk.Ledger(mixture(1), [edit(SAMPLERS["files"]()), *removal]).order(CORPUS)
    assert set(ids[AT:].tolist()) >= set(range(START + 15, START + 30))
    assert not set(ids[AT + 20 :].tolist()) & set(range(START, START + 15))
    with pytest.raises(sk.NotSupportedError, match="new: removes ids, but this source reads other"):
        sk.Ledger(mixture(1), [edit(SAMPLERS["by weights"]()), *removal]).order(CORPUS)


class Labelled(list):
    """A part with labels."""

    label = property(list)


def test_labels_that_the_sampler_of_an_edit_reads_are_part_of_the_run():
    def loader(labels):
        tree = sk.TreeDataset({"web": range(100), "code": range(50), "new": Labelled(labels)})
        return sk.Loader(tree, sk.Ledger(mixture(1), [edit(sk.PKSampler(2))]), batch_size=10)

    saved, same, other = loader([0, 1] * 15), loader([0, 1] * 15), loader([1, 0] * 15)
    assert saved.fingerprint == same.fingerprint != other.fingerprint
    before, behind = (saved.state_dict(step=at // 10) for at in (AT, AT + 10))
    same.load_state_dict(behind)
    other.load_state_dict(before)
    with pytest.raises(sk.errors.StateError, match=r"edit 1 of the saved .* other values, such as labels"):
        other.load_state_dict(behind)


def test_a_weight_for_a_part_without_samples_is_refused_with_the_position_of_its_edit():
    layout = sk.Layout.tree({"web": 50, "none": 0})
    mixture = sk.MixtureSampler(dict.fromkeys(layout.parts), 40, weights={"web": 1, "none": 0})
    edits = [
        sk.Edit(at=5, skip=1),
        sk.Edit(at=9, weights={"web": 2, "none": 0}),
        sk.Edit(at=10, weights={"web": 1, "none": 1}),
    ]
    assert len(sk.Ledger(mixture, edits[:2]).order(layout)) == 40
    with pytest.raises(sk.DatasetError, match=r"edit at 10.*an empty source.*none"):
        sk.Ledger(mixture, edits).order(layout)
