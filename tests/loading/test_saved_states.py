"""States that older versions saved go on with the very ids that followed then."""

from __future__ import annotations

import json
from functools import partial

import pytest

import samplerkit as sk
from samplerkit.loading.sections import KNOWN
from samplerkit.loading.state import SCHEMA
from tests.loading.saved_states import DATA, KINDS, goes_on_with
from tests.loading.saved_states_2 import KINDS_2
from tests.loading.write_saved_states import FILE, main

KINDS_OF = {1: KINDS, 2: {**KINDS, **KINDS_2}}
CASES_OF = {schema: json.loads((DATA / f"states_{schema}.json").read_text()) for schema in KINDS_OF}


def test_there_are_states_of_each_schema_that_was_ever_saved():
    assert {*KINDS_OF} == {*range(1, SCHEMA + 1)}
    for schema, kinds in KINDS_OF.items():
        assert {case["kind"] for case in CASES_OF[schema]} == {*kinds}
    sections = {name for case in CASES_OF[2] for name in case["state"].get("sections", {})}
    assert sections == {*KNOWN}


@pytest.mark.parametrize(
    ("schema", "kind"), [(schema, kind) for schema, kinds in KINDS_OF.items() for kind in kinds]
)
@pytest.mark.filterwarnings("ignore:.*set_epoch")
def test_a_state_that_was_saved_once_goes_on_with_the_same_ids(schema, kind, tmp_path):
    kinds, cases = KINDS_OF[schema], [case for case in CASES_OF[schema] if case["kind"] == kind]
    assert [case["when"] for case in cases] == [
        "at the beginning",
        "in the middle",
        "at the last step",
        "after the end",
    ]
    for case in cases:
        # What counts steps or rows beside the loader's state has a schema of its own.
        assert case["state"]["schema"] in {1, schema}
        ids = goes_on_with(partial(kinds[kind], tmp_path), case["state"])
        assert ids == case["goes on with"], case["when"]


@pytest.mark.parametrize("schema", KINDS_OF)
def test_a_saved_state_with_another_position_is_damaged(schema, tmp_path):
    (case, *_) = (case for case in CASES_OF[schema] if case["when"] == "in the middle")
    with pytest.raises(sk.StateError, match="checksum"):
        goes_on_with(partial(KINDS[case["kind"]], tmp_path), {**case["state"], "position": 0})


def test_the_saved_states_are_never_written_over(capsys):
    before = FILE.read_bytes()
    assert main() == 1
    assert "frozen" in capsys.readouterr().err
    assert FILE.read_bytes() == before
