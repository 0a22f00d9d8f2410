"""Ledgers: edits that are legal, and sources that join a mixture while it is read."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.samplers.mixing.edit import chained
from tests.chains import under
from tests.testing.links import EvenOdd

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "golden_edits.json").read_text())
"""What edited runs read, and the digests of their edits, as they were when the algorithm was released."""


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_vectors_pin_what_edited_runs_read_and_the_digests_of_edits(name):
    layout = sk.Layout.tree({"web": sk.Layout([40, 60]), "code": 50, "new": 30})
    web = sk.RandomSampler(shuffle="partial", partial_size=4, seed=2)
    sources, weights = {"web": web, "code": None}, {"web": 3, "code": 1}
    edits = [
        sk.Edit(at=10, skip=9),
        sk.Edit(at=20, weights={"web": 1, "code": 2.5}),
        sk.Edit(at=52, source="new", weights={"web": 1, "code": 1, "new": 1}, skip=3),
    ]
    if name.startswith("a mixture that ids leave"):
        edits = [
            sk.Edit(at=10, skip=9, without=range(3, 90, 4)),
            sk.Edit(at=20, weights={"web": 1, "code": 2.5}, without=range(100, 130)),
        ]
    ledger = sk.Ledger(sk.MixtureSampler(sources, 48, weights=weights, lanes=4, seed=11), edits)
    if name == "a chain with a skip":
        layout, ledger = 12, sk.Ledger(sk.RandomSampler(seed=4), [sk.Edit(at=5, skip=3)])
    read = [ledger.order(layout, epoch)[:].tolist() for epoch in range(2)]
    assert {"ids": read, "digests": ledger.digests} == GOLDEN[name]


CORPUS = sk.Layout.tree({"web": 100, "code": 50, "new": 30})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"weights": {"web": 1, "kode": 1}}, sk.ArgumentValueError, "name no source of the mixture.*kode"),
        ({"weights": {"web": 1}}, sk.ArgumentValueError, "lack a source.*code"),
        ({"weights": {"web": 1, "code": 1, "new": 1}}, sk.ArgumentValueError, "name no source.*new"),
        ({"source": "web", "weights": {"web": 1, "code": 1}}, sk.ArgumentValueError, "that exists"),
        ({"source": "x", "weights": {"web": 1, "x": 1}}, sk.ArgumentValueError, "not a part of the dataset"),
        ({"without": [180]}, sk.ArgumentValueError, "not in a dataset of 180"),
    ],
)
def test_an_edit_that_does_not_fit_the_mixture_is_refused_with_its_position(arguments, error, message):
    mix = sk.MixtureSampler({"web": None, "code": None}, 200, weights={"web": 3, "code": 1})
    with pytest.raises(error, match=f"edit at 10: .*{message}"):
        sk.Ledger(mix, [sk.Edit(at=10, **arguments)]).order(CORPUS)


def test_weights_need_a_mixture_whose_passes_run_on():
    for more in ({"passes": "restart"}, {"stop": "once"}):
        given = {} if "stop" in more else {"weights": {"web": 3, "code": 1}}
        mix = sk.MixtureSampler({"web": None, "code": None}, **given, **more)
        edits = [sk.Edit(at=10, weights={"web": 1, "code": 1})]
        with pytest.raises(sk.NotSupportedError, match="edit at 10"):
            sk.Ledger(mix, edits).order(CORPUS)
        assert sk.Ledger(mix, [sk.Edit(at=10, skip=5)]).order(CORPUS)[10] == mix.order(CORPUS)[15]


def test_a_ledger_without_edits_reads_what_its_sampler_reads():
    chain, layout = sk.RandomSampler(seed=3), sk.Layout([5, 7])
    for epoch in range(3):
        assert sk.Ledger(chain).order(layout, epoch)[:].tolist() == chain.order(layout, epoch)[:].tolist()


def test_skips_at_far_positions_cost_nothing():
    ledger = sk.Ledger(sk.RandomSampler(seed=1), [sk.Edit(at=10**15, skip=10**14)])
    assert ledger.order(10**9, epoch=10**6)[5] == sk.RandomSampler(seed=1).order(10**9, epoch=1_100_000)[5]


def test_edits_are_values_that_can_be_pickled_and_digests_identify_them():
    edits = [
        sk.Edit(at=1, skip=4),
        sk.Edit(at=2, weights={"web": 1, "code": 3}, without=[5, 3, 3]),
        sk.Edit(at=2**62, global_batch=64),  # the last position
    ]
    assert pickle.loads(pickle.dumps(edits)) == edits  # noqa: S301  # our own bytes
    assert edits[1] == sk.Edit(at=2, weights={"code": 3.0, "web": 1.0}, without=np.array([3, 5]))
    assert len({edit.digest for edit in edits}) == 3
    assert len({*chained(edits), *chained(edits[::-1])}) == 7
    ledger = sk.Ledger(sk.SequentialSampler(), edits[:1])
    again = pickle.loads(pickle.dumps(ledger))  # noqa: S301  # our own bytes
    assert again.order(9)[:].tolist() == ledger.order(9)[:].tolist()


@pytest.mark.parametrize("line", ['{"at": 3, ', "[]", '{"at": -1, "skip": 2}', '{"until": 5}'])
def test_a_broken_line_of_a_file_of_edits_has_its_number_and_a_hint(tmp_path, line):
    path = tmp_path / "edits.jsonl"
    path.write_text(f'{{"at": 3, "skip": 2}}\n{line}\n', encoding="utf-8")
    with pytest.raises(sk.ArgumentValueError, match="holds no edit in line 2") as caught:
        sk.Ledger(sk.SequentialSampler(), edits_file=path)
    assert "take the line out" in caught.value.hint


def test_orders_of_ledgers_with_different_edits_are_not_equal():
    skip, without = sk.Edit(at=3, skip=2), sk.Edit(at=3, without=[1, 2])
    weights = sk.Edit(at=6, weights={"web": 1, "code": 3})
    orders = [
        sk.Ledger(sk.MixtureSampler({"web": None, "code": None}), edits).order(CORPUS)
        for edits in ([], [skip], [weights], [skip, weights], [without], [without, weights])
    ]
    assert all(order != other for n, order in enumerate(orders) for other in orders[:n])


@pytest.mark.parametrize("at", [254, 255, 256, 257])
def test_at_the_border_of_a_block_of_draws_an_edit_is_the_same_for_one_row_as_for_all(at):
    weights = {"a": 1.0, "b": 2.0, "c": 1.0}
    mixture = sk.MixtureSampler(dict.fromkeys(weights), weights=weights, num_samples=1024, seed=3)
    edit = sk.Edit(at=at, weights={"a": 5.0, "b": 1.0, "c": 1.0})
    order = sk.Ledger(mixture, edits=[edit]).order(sk.Layout.tree({"a": 300, "b": 200, "c": 100}))
    assert [int(order[row]) for row in range(240, 520)] == order[:][240:520].tolist()


@pytest.mark.parametrize("shuffle", ["global", "partial", "files", "infile"])
def test_a_run_by_a_distributed_sampler_is_edited_by_a_random_one_in_its_place(shuffle):
    layout, arguments = sk.Layout([40, 30, 50]), {"shuffle": shuffle, "partial_size": 60, "seed": 7}
    dealt = sk.DistributedSampler(**arguments)
    with pytest.raises(
        sk.CompositionError, match="use RandomSampler with the same arguments, which reads the same"
    ):
        sk.Ledger(dealt)
    world = sk.World(2, 0)
    before = sk.Loader(layout, dealt, batch_size=5, world=world)
    ledger = sk.Ledger(sk.RandomSampler(**arguments), [sk.Edit(at=60, skip=20)])
    after = sk.Loader(layout, ledger, batch_size=5, world=world)
    after.load_state_dict(before.state_dict(step=4), allow={"sampler"})
    assert after.order[:60].tolist() == before.order[:60].tolist()


GROWN = sk.Layout.tree(
    {"web": sk.Layout([60, 40]), "code": 50, "new": sk.Layout.tree({"a": sk.Layout([9, 8, 7]), "b": 6})}
)
START, AT = 150, 200


SAMPLERS = {
    "all of it": lambda: None,
    "files": lambda: sk.RandomSampler(shuffle="files", seed=3),
    "a subset": lambda: sk.SubsetSampler([5, 3, 9, 3]),
    "a chain": lambda: under(sk.RepeatSampler(2), sk.RandomSampler(seed=4)),
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
    orders = [ledger.order(GROWN, epoch) for epoch in range(2)]
    for epoch, order in enumerate(orders):
        assert order[:].tolist() == always.order(GROWN, epoch)[:].tolist()
    assert orders[0][:AT].tolist() == mixture(lanes).order(GROWN)[:AT].tolist()
    read = np.concatenate([order[:] for order in orders])
    new = read[read >= START] - START
    assert new.size == pytest.approx(400, abs=12 * lanes)
    if lanes == 1 and name not in ("all of it", "a mixture"):
        passes = [make().order(GROWN.parts["new"], number)[:] for number in range(new.size)]
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
    assert loaded.order(GROWN)[:].tolist() == sk.Ledger(mixture(1), [first]).order(GROWN)[:].tolist()


def test_ids_are_removed_from_an_added_source_that_reads_a_fixed_set():
    removal = [sk.Edit(at=AT + 20, without=range(START, START + 15))]
    ids = sk.Ledger(mixture(1), [edit(SAMPLERS["files"]()), *removal]).order(GROWN)
    assert set(ids[AT:].tolist()) >= set(range(START + 15, START + 30))
    assert not set(ids[AT + 20 :].tolist()) & set(range(START, START + 15))
    with pytest.raises(sk.NotSupportedError, match="new: removes ids, but this source reads other"):
        sk.Ledger(mixture(1), [edit(SAMPLERS["by weights"]()), *removal]).order(GROWN)


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
    with pytest.raises(sk.errors.StateError, match=r"edit 1, before position 210, is not the same"):
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
