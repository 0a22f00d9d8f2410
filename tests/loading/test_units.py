"""A kind of unit of one's own is one class, and one line where the unit of a run is chosen."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.errors import StateError
from samplerkit.loading.run import run
from samplerkit.loading.run.units import EpochUnits, StepSamples, Unit
from samplerkit.order.typing import as_array

SIZE = 22


@dataclass(frozen=True, eq=False)
class EpochPairs(EpochUnits):
    """Two samples that follow one another in the order, one unit."""

    expected_size = 2

    @property
    def total(self):
        return len(self.order) // 2

    def draws(self, units):
        first = 2 * as_array(units)
        return np.stack([first, first + 1], axis=1).ravel()

    def samples(self, dealt):
        draws = [self.draws(units) for units in dealt]
        return [StepSamples(self.order.ids_at(self._repeated(each)), each) for each in draws]

    def saved(self, position):
        return {"pairs": {"samples": 2}}

    def samples_before(self, position):
        return 2 * position


class Pairs(Unit):
    """Counts pairs."""

    name = "pairs"

    def of_epoch(self, run, epoch):
        return EpochPairs(epoch, run.order_maker(epoch))

    def restored(self, run, state):
        if state.sections["pairs"] != {"samples": 2}:
            raise StateError("pairs", "are other ones", state.sections["pairs"])
        return self


@pytest.fixture(autouse=True)
def _chosen(monkeypatch):
    monkeypatch.setattr(run, "unit_of", lambda recipe, dataset, batches: Pairs())


def loader(ranks=1, rank=0, **options):
    sampler = sk.RandomSampler(seed=5)
    return sk.Loader(range(SIZE), sampler, batch_size=2, world=sk.World(ranks, rank), **options)


def test_pairs_are_dealt_to_ranks_saved_and_resumed_by_other_ranks_and_workers():
    order = sk.RandomSampler(seed=5).order(SIZE)[:].tolist()
    first = [loader(2, rank) for rank in range(2)]
    together = [next(iter(each)).tolist() for each in first]
    assert sorted(sum(together, [])) == sorted(order[:8])
    assert sorted(map(sorted, (pair for each in together for pair in (each[:2], each[2:])))) == sorted(
        sorted(order[at : at + 2]) for at in range(0, 8, 2)
    )
    state = json.loads(json.dumps(first[0].state_dict()))
    assert state == first[1].state_dict()
    assert (state["unit"], state["position"], state["sections"]["pairs"]) == ("pairs", 4, {"samples": 2})
    resumed = [loader(3, rank, num_workers=1) for rank in range(3)]
    rest = []
    for each in resumed:
        each.load_state_dict(state)
        for step, batch in enumerate(each):
            rest += batch[~each.pads(step)].tolist()
        each.close()
    assert sorted(rest) == sorted(order[8:])


def test_a_state_of_other_units_is_refused_by_name(monkeypatch):
    state = loader().state_dict(step=1)
    monkeypatch.undo()
    with pytest.raises(StateError) as caught:
        loader().load_state_dict(state)
    assert caught.value.field == "unit"
