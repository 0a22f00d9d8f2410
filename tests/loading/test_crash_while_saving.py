"""A crash while a checkpoint is saved leaves the old one or the new one; a part is never taken for whole."""

from __future__ import annotations

import json
from collections import Counter

import pytest

import samplerkit as sk
from tests.programs import run


def loader():
    return sk.Loader(range(100), sk.RandomSampler(seed=3), batch_size=4)


STATE = loader().state_dict(step=3)
TEXT = json.dumps(STATE)


@pytest.fixture(scope="module", params=["replace", "in_place"])
def saving(request, tmp_path_factory):
    """How checkpoints were saved, and what was found after the kills."""
    folder = str(tmp_path_factory.mktemp(request.param))
    done = run(["-m", "tests.loading.killed_saving", folder, request.param])
    assert done.returncode == 0, done.stderr
    print(f"killed while saving, {request.param}: {done.stdout.strip()}")
    return request.param, json.loads(done.stdout)


def test_a_kill_at_any_byte_leaves_the_old_or_the_new_checkpoint(saving):
    how, found = saving
    assert found["new"] == 1
    assert set(found) == {"new", "old" if how == "replace" else "broken"}
    assert sum(found.values()) > (100 if how == "replace" else 15)


@pytest.mark.parametrize("byte", ["", "0", "}", "-"], ids=lambda byte: byte or "removed")
def test_a_text_with_another_byte_anywhere_is_refused_or_says_the_same(byte):
    refusals = Counter()
    for place in range(len(TEXT)):
        damaged = TEXT[:place] + byte + TEXT[place + 1 :]
        resumed = loader()
        try:
            resumed.load_state_dict(json.loads(damaged))
        except (json.JSONDecodeError, sk.StateError) as error:
            refusals[type(error)] += 1
        else:
            assert (
                resumed.state_dict() == STATE
            )  # a blank between two fields is gone, or the byte was this one
    assert refusals[sk.StateError] > 100
    assert refusals.total() > 0.9 * len(TEXT)
