"""States that older versions saved go on with the very ids that followed then."""

from __future__ import annotations

import json
from functools import partial

import pytest

import samplerkit as sk
from tests.loading.saved_states import FILE, KINDS, goes_on_with
from tests.loading.write_saved_states import main

CASES = json.loads(FILE.read_text())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:.*set_epoch")
def test_a_state_of_schema_1_goes_on_with_the_same_ids(kind, tmp_path):
    cases = [case for case in CASES if case["kind"] == kind]
    assert [case["when"] for case in cases] == [
        "at the beginning",
        "in the middle",
        "at the last step",
        "after the end",
    ]
    for case in cases:
        assert case["state"].get("schema") == 1
        assert goes_on_with(partial(KINDS[kind], tmp_path), case["state"]) == case["goes on with"], case[
            "when"
        ]


def test_a_state_of_schema_1_with_another_position_is_damaged(tmp_path):
    (case, *_) = (case for case in CASES if case["when"] == "in the middle")
    with pytest.raises(sk.StateError, match="checksum"):
        goes_on_with(partial(KINDS[case["kind"]], tmp_path), {**case["state"], "position": 0})


def test_the_saved_states_are_never_written_over(capsys):
    before = FILE.read_bytes()
    assert main() == 1
    assert "frozen" in capsys.readouterr().err
    assert FILE.read_bytes() == before
