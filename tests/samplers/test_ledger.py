"""The ledger: edits as values, and refusals; `test_removed_ids.py` counts what edited runs read."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.samplers.mixing.edit import chained

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
        ({"source": "x", "weights": {"web": 1, "x": 1}}, sk.ArgumentValueError, "no part of the dataset"),
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
    assert ledger.order(9) == ledger.order(9) != ledger.order(9, epoch=1)


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
