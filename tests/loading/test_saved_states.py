"""States that were saved once load for ever, and continue with the ids that followed then."""

import json
from functools import partial

import pytest

from tests.loading.saved_states import FILE, KINDS, continue_from

CASES = json.loads(FILE.read_text())


def test_there_are_states_of_each_kind_and_with_each_section():
    assert {case["kind"] for case in CASES} == {*KINDS}
    assert {name for case in CASES for name in case["state"].get("sections", {})} == {
        "batches",
        "ids",
        "ledger",
        "tokens",
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:.*set_epoch")
def test_a_state_that_was_saved_once_continues_with_the_same_ids(kind, tmp_path):
    cases = [case for case in CASES if case["kind"] == kind]
    assert [case["when"] for case in cases] == [
        "at the beginning",
        "in the middle",
        "at the last step",
        "after the end",
    ]
    for case in cases:
        ids = continue_from(partial(KINDS[kind], tmp_path), case["state"])
        assert ids == case["goes on with"], case["when"]
