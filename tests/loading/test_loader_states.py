"""The state of a loader: what it says, where it is accepted, and where it is refused."""

import json
from collections import Counter
from functools import partial
from itertools import product

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.loading.state.state import State
from tests.chains import under
from tests.loading import batch_loaders, token_loaders
from tests.loading.forged_states import MISSING, forged, forged_section
from tests.loading.numbers import Numbers, numbers_loader
from tests.loading.saved_states import KINDS
from tests.loading.worker_kinds import with_threads_too


def test_a_loader_that_could_not_start_can_still_load_a_state():
    loader = sk.Loader(
        Numbers(6),
        sk.SequentialSampler(),
        batch_size=2,
        num_workers=1,
        multiprocessing_context="spawn",
        collate_fn=lambda batch: batch,  # cannot be sent to a process
    )
    with pytest.raises(Exception, match=r"pickle|local object"):
        next(iter(loader))
    loader.load_state_dict(loader.state_dict(step=1))
    assert loader.ids(0).tolist() == [2, 3]


def test_a_chain_described_in_more_than_1200_characters_is_cut_and_has_a_digest():
    def described(count):
        sampler = sk.PKSampler(1, class_column="x" * count, labels=[0, 1])
        return sk.Loader(Numbers(2), sampler, batch_size=2).state_dict()["sampler"]

    rest = len(described(1)) - 1
    longest = described(1200 - rest)
    assert len(longest) == 1200
    assert "x" * (1200 - rest) in longest
    assert len(described(1201 - rest)) < 1200
    cut, other = described(9000), described(9001)
    assert cut[:1160] == other[:1160]
    assert cut != other


OTHERS = {
    "dataset": lambda: numbers_loader(11),
    "seed": lambda: numbers_loader(sampler=sk.RandomSampler(seed=4)),
    "sampler": lambda: numbers_loader(sampler=sk.RandomSampler(seed=3, shuffle="partial")),
    "tail": lambda: numbers_loader(tail="ragged"),
}


@pytest.mark.parametrize("field", OTHERS)
def test_a_state_of_another_run_is_refused_by_field_and_can_be_allowed(field):
    state = numbers_loader().state_dict(step=1)
    with pytest.raises(sk.StateError, match=field) as caught:
        OTHERS[field]().load_state_dict(state)
    assert caught.value.field == field
    assert caught.value.saved != caught.value.current
    allowed = OTHERS[field]()
    allowed.load_state_dict(state, allow={field})
    assert allowed.state_dict()["position"] == 3


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda state: {}, "not the state"),
        (lambda state: None, "not the state"),
        (lambda state: forged(state, sections=["lengths"]), "sections: must be sections by name"),
        (lambda state: forged(state, sections={"lengths": [1]}), "sections: must be sections by name"),
        (lambda state: forged(state, sections={3: {"edits": []}}), "sections: must be sections by name"),
        (lambda state: {**state, "position": 4}, "checksum"),
        (lambda state: {**state, "checksum": None}, "checksum"),
        (lambda state: {k: v for k, v in state.items() if k != "lanes"}, "missing or unknown"),
        (lambda state: {**state, "more": 1}, "missing or unknown"),
        (lambda state: forged(state, schema=2), "not known"),
        (lambda state: forged(state, ended=0), "ended: must be None in mid-epoch"),
        (lambda state: forged(state, schema=0), "not known"),
        (lambda state: forged(state, position=11), "outside of an order of 10"),
        (lambda state: forged(state, position=-1), "outside of an order of 10"),
        (lambda state: forged(state, algorithm="samplerkit-0"), "algorithm"),
    ],
)
def test_a_damaged_or_newer_state_is_refused(damage, message):
    loader = numbers_loader()
    with pytest.raises(sk.StateError, match=message):
        loader.load_state_dict(damage(loader.state_dict(step=1)))
    assert loader.state_dict()["position"] == 0


WRONG = [None, True, "x", 1.5, [], ["a"], {"a": 3}, -(2**63), 2**64, 10**400, np.arange(3)]


def test_a_state_of_wrong_values_with_a_fitting_checksum_is_refused_by_field(tmp_path):
    fields = set()
    names = ("Loader, files, ragged", "TorchSampler", "torch's DistributedSampler", "PartiallyShuffle 1")
    for make in (numbers_loader, *(partial(KINDS[name], tmp_path) for name in names)):
        state = make().state_dict()
        for field, wrong in product(state, WRONG):
            if wrong is None and field in {"ended", "limit", "num_shards"}:
                continue
            if field in {"samplerkit", "checksum"}:
                damaged = {**state, field: wrong}
            else:
                damaged = forged(state, **{field: wrong})
            with pytest.raises(sk.StateError) as caught:
                make().load_state_dict(damaged)
            assert caught.value.field == ("state" if field == "samplerkit" else field)
            fields.add(field)
    assert fields == set(state)


SKIPS = [sk.Edit(at=at, skip=2) for at in (2, 4, 6)]
SECTIONS = {
    "batches": lambda: batch_loaders.loader("partial", 2, 1),
    "tokens": lambda: token_loaders.loader(2),
    "ledger": lambda: sk.Loader(range(30), sk.Ledger(sk.SequentialSampler(), SKIPS), batch_size=2),
    "ids": lambda: numbers_loader(sampler=sk.IterSampler(range(10)), batch_size=2),
    "read": lambda: sk.Loader(range(40), sk.RandomSampler(shuffle="partial"), batch_size=2),
}
BOUNDS = [("tokens", "windows_per_block", 0), ("tokens", "tokens", -1), ("ledger", "past", -1)]
BOUNDS += [("batches", "abreast", 0), ("batches", "abreast", 1 << 40), ("batches", "window", [-1, 0])]
# Another window, one after the position, and one past the end.
BOUNDS += [("batches", "window", wrong) for wrong in ([1, 3], [4, 4000], [99, 0])]
BOUNDS += [("read", "older", -1), ("ledger", "past", 1 << 32)]


@pytest.mark.parametrize("name", SECTIONS)
def test_wrong_values_in_a_section_are_refused_by_field_and_the_run_is_unchanged(name):
    run = SECTIONS[name]()
    # In other lanes: a run that has changed would show it.
    state, before = forged(run.state_dict(step=run.steps_left - 1), lanes=2), run.state_dict()
    any_field = [(field, {field, name}, wrong) for field, wrong in product(state["sections"][name], WRONG)]
    any_field += [("more", {name}, wrong) for wrong in WRONG]
    any_field += [(field, {name}, MISSING) for field in state["sections"][name]]
    out_of_bounds = [(field, {field}, wrong) for section, field, wrong in BOUNDS if section == name]
    for field, named, wrong in any_field + out_of_bounds:
        if wrong is None and field in {"pool", "seq_len", "block_len", "tokens"}:
            continue
        if type(wrong) is list and field in {"stretches", "before"} and not wrong:
            continue
        with pytest.raises(sk.StateError) as caught:
            run.load_state_dict(forged_section(state, name, **{field: wrong}))
        assert caught.value.field in named, (field, wrong)
        assert run.state_dict() == before
    run.load_state_dict(forged_section(state, name))
    assert run.state_dict() == state


def test_a_section_that_is_not_known_is_refused_by_name():
    state = forged(numbers_loader().state_dict(step=1), sections={"lengths": {"edits": [[3, "web", 0.5]]}})
    with pytest.raises(sk.StateError, match="update samplerkit") as caught:
        numbers_loader().load_state_dict(state)
    assert caught.value.field == "lengths"
    assert State.from_dict(state).to_dict() == state


def test_a_shard_that_is_dealt_below_the_root_is_not_in_the_state():
    def loader(rank):
        chain = under(sk.SequentialSampler(), sk.DistributedSampler(3, rank, seed=5))
        return sk.Loader(range(20), chain, batch_size=2, world=sk.World(3, rank))

    states = [loader(rank).state_dict(step=1) for rank in range(3)]
    assert states == [states[0]] * 3
    assert len({loader(rank).fingerprint for rank in range(3)}) == 1


@pytest.mark.parametrize("step", [-5, -1, 5, 10**6, 2**70])
def test_a_step_that_the_epoch_does_not_have_has_no_state(step):
    for loader in (numbers_loader(), numbers_loader(13)):
        if len(loader) == 5:
            loader.load_state_dict(loader.state_dict(step=1))
        last = loader.state_dict(step=4)
        assert (last["epoch"], last["position"]) == (1, 0)
        with pytest.raises(sk.OutOfDatasetError, match=r"must be in \[0, 4\]"):
            loader.state_dict(step=step)


@with_threads_too
def test_a_state_cannot_be_loaded_while_an_iteration_is_under_way():
    loader = numbers_loader()
    state = loader.state_dict()
    batches = iter(loader)
    next(batches)
    with pytest.raises(sk.StateError, match="under way"):
        loader.load_state_dict(state)


def test_loading_a_state_replaces_an_order_that_was_read_before():
    def files_loader(ranks):
        sampler = sk.DistributedSampler(shuffle="files", seed=5)
        return sk.Loader(sk.Layout([7, 5, 9]), sampler, batch_size=3, world=sk.World(ranks, 0))

    first, second = files_loader(1), files_loader(2)
    assert list(first.order) != list(second.order)  # one lane, two lanes
    second.load_state_dict(first.state_dict(step=2))
    assert list(second.order) == list(first.order)


@pytest.mark.parametrize("byte", ["", "0", "}", "-", "and no more"], ids=lambda byte: byte or "removed")
def test_a_state_text_that_is_cut_or_changed_anywhere_is_refused_or_means_the_same(byte):
    state, refusals = numbers_loader().state_dict(step=3), Counter()
    text = json.dumps(state)
    for place in range(len(text)):
        damaged = text[:place] + ("" if byte == "and no more" else byte + text[place + 1 :])
        resumed = numbers_loader()
        try:
            resumed.load_state_dict(json.loads(damaged))
        except (json.JSONDecodeError, sk.StateError) as error:
            refusals[type(error)] += 1
        else:  # a blank between two fields is missing, or the byte was the same
            assert resumed.state_dict() == state
    assert refusals[sk.StateError] > 100 or byte == "and no more"
    assert refusals.total() > 0.9 * len(text)
