"""The state of a device loader, over every kind of loader, counts what the loop received, and no more."""

import copy
import itertools
import pickle
import time

import pytest

import samplerkit as sk
from samplerkit.loading.device.loader import DeviceLoader
from tests.loading.device.kinds import BATCH, BATCHES, KINDS, SHUFFLING, SIZE, epoch_order, plain, read, wrap

pytestmark = pytest.mark.usefixtures("no_thread_remains")

# After the last batch the states of these are at the end of the epoch, and all others at the beginning of
# the next one: where a length says that it was the last batch, and where samplerkit's sampler does.
AT_THE_END = {
    "a plain loader over a stream",
    "torchdata's loader",
    "torchdata's loader with workers",
    "torchdata's loader over a stateful stream",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("run_ahead", "cut"), [(True, 0), (True, 7), (False, 8)])
def test_a_state_counts_only_what_the_loop_received(kind, run_ahead, cut):
    """However much was loaded ahead, what comes after a restore is the rest: nothing twice, nothing lost."""
    with wrap(kind, run_ahead=run_ahead, depth=3) as loader:
        expected = read(wrap(kind))
        first = []
        batches = iter(loader)
        for batch in itertools.islice(batches, cut):
            first += batch.tolist()
        time.sleep(0.005)
        state = copy.deepcopy(loader.state_dict())
        batches.close()
    with wrap(kind) as resumed:
        resumed.load_state_dict(pickle.loads(pickle.dumps(state)))  # noqa: S301  # ours
        second = read(resumed)
    if cut < BATCHES:
        assert first + second == expected
    else:
        following = list(sk.RandomSampler(seed=5).order(SIZE, 1)) if kind in SHUFFLING else expected
        assert (first, second) == (expected, [] if kind in AT_THE_END else following)


def test_a_restored_state_is_that_state_and_outlasts_set_epoch():
    loader = DeviceLoader(plain(), "cpu")
    loader.load_state_dict({"schema": 1, "epoch": 2, "step": 5, "ended": None})
    assert loader.state_dict() == {"schema": 1, "epoch": 2, "step": 5, "ended": None}
    loader.set_epoch(2)
    assert read(loader) == epoch_order(2)[5 * BATCH :]
    assert loader.state_dict() == {"schema": 1, "epoch": 3, "step": 0, "ended": 2}
    loader.load_state_dict({"schema": 1, "epoch": 2, "step": 5, "ended": None})
    loader.set_epoch(6)
    assert read(loader) == epoch_order(6)


BAD_STATES = {
    "no mapping": ([], "state"),
    "nothing in it": ({}, "state"),
    "a newer schema": ({"schema": 2, "epoch": 0, "step": 0, "ended": None}, "schema"),
    "no step": ({"schema": 1, "epoch": 0, "ended": None}, "state"),
    "a negative step": ({"schema": 1, "epoch": 0, "step": -1, "ended": None}, "step"),
    "a step that is a bool": ({"schema": 1, "epoch": 0, "step": True, "ended": None}, "step"),
    "an epoch that is a text": ({"schema": 1, "epoch": "0", "step": 0, "ended": None}, "epoch"),
}


@pytest.mark.parametrize(("state", "field"), BAD_STATES.values(), ids=BAD_STATES.keys())
def test_a_bad_state_is_refused_by_name(state, field):
    with pytest.raises(sk.StateError) as caught:
        DeviceLoader(plain(), "cpu").load_state_dict(state)
    assert caught.value.field == field


@pytest.mark.parametrize("kind", ["samplerkit's loader", "a plain loader", "torchdata's loader"])
def test_a_state_is_not_loaded_in_the_middle_of_an_iteration(kind):
    with wrap(kind) as loader:
        state = loader.state_dict()
        batches = iter(loader)
        next(batches)
        with pytest.raises(sk.StateError, match="under way"):
            loader.load_state_dict(state)
        batches.close()
        loader.load_state_dict(state)


def test_loaders_with_a_state_keep_their_own_state():
    for kind in ("samplerkit's loader", "torchdata's loader"):
        alone = KINDS[kind]()
        batches = iter(alone)
        with wrap(kind) as loader:
            for _ in itertools.islice(loader, 3):
                next(batches)
                assert loader.state_dict() == alone.state_dict()
