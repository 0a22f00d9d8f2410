"""A crash while a checkpoint is saved leaves the old one or the new one; a part is never taken for a whole.

Ranks that load checkpoints of different steps all the same are told when they begin to iterate.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter

import pytest

import samplerkit as sk
from tests.jobs import reserved_port
from tests.loading.disagreeing_ranks import CASES, PATIENCE, RANKS, SAMPLES
from tests.programs import Program, run


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


@pytest.mark.parametrize("byte", ["", "0", "9", "a", "}", ",", "-"], ids=lambda byte: byte or "removed")
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


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What each of three ranks was told in each case."""
    folder = tmp_path_factory.mktemp("ranks")
    with reserved_port() as port:
        ranks = [
            Program(
                ["-m", "tests.loading.disagreeing_ranks", str(rank), str(folder), str(port)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for rank in range(RANKS)
        ]
        try:
            printed = [rank.communicate(timeout=240) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    assert [rank.returncode for rank in ranks] == [-9, 0, 0], printed
    return [json.loads(out) for out, _ in printed]


@pytest.mark.parametrize("field", [name for name in CASES if name != "same"])
def test_a_rank_that_loads_something_else_is_named_to_every_rank_when_iteration_begins(outcomes, field):
    last = RANKS - 1
    for rank, cases in enumerate(outcomes):
        assert cases[field].get("error") == "DisagreementError", cases[field]
        message = cases[field]["message"]
        assert f"rank {rank} reads by {{'{field}': " in message
        assert f"rank {last} by {{'{field}': " in message or rank == last
        assert cases[field]["seconds"] < PATIENCE / 10  # it did not wait for the time limit


def test_ranks_that_load_the_same_go_on_exactly_once(outcomes):
    received = Counter(sample for cases in outcomes for sample in cases["same"]["received"])
    order = sk.RandomSampler(seed=0).order(SAMPLES)
    assert received == Counter(order[6:].tolist())


def test_a_job_whose_first_rank_is_dead_is_an_error_and_no_hang(outcomes):
    for cases in outcomes[1:]:
        assert cases["killed"].get("error") == "DistNetworkError", cases["killed"]
        assert cases["killed"]["seconds"] < PATIENCE / 10
