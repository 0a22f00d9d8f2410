"""Ledgers in configs: edits are sections in a list, each with a path of its own."""

from __future__ import annotations

import jsonschema
import numpy as np
import pytest

import samplerkit as sk

CHILD = {"kind": "random", "seed": 3}


def of(edits, **more):
    return sk.load_config({"sampler": {"kind": "ledger", "edits": edits, "child": CHILD, **more}})


def test_a_config_says_edits_and_says_them_again():
    config = of([{"at": 10, "skip": 5}, {"at": 20, "weights": {"web": 1, "code": 0.5}, "without": [3, 1]}])
    assert config.sampler.edits == (
        sk.Edit(at=10, skip=5),
        sk.Edit(at=20, weights={"web": 1, "code": 0.5}, without=[1, 3]),
    )
    assert config.sampler.get_child().seed == 3
    assert sk.load_config(config.to_dict()) == config


MIXED = {"kind": "mixture", "sources": {"web": None}, "weights": {"web": 1}}


def test_a_new_source_of_an_edit_is_a_chain_of_its_own():
    new = {"kind": "subset", "indices": [2, 1], "child": {"kind": "random", "shuffle": "files", "seed": 3}}
    shares = {"web": 1, "new": 2, "more": 1}
    edits = [{"at": 5, "skip": 2}, {"at": 9, "weights": shares, "source": {"new": new, "more": None}}]
    config = of(edits, child=MIXED)
    added = config.sampler.edits[1].new_sources
    assert (repr(added["new"]).count("<-"), added["more"]) == (1, None)
    assert config.to_dict()["sampler"]["edits"] == edits
    assert sk.load_config(config.to_dict()).sampler.edits == config.sampler.edits
    jsonschema.validate(config.to_dict(), sk.Config.json_schema())


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ({"new": {"kind": "randm"}}, "source.new.kind"),
        ({"new": {"kind": "random", "child": {"kind": "random", "sed": 1}}}, "source.new.child.sed"),
        ({"new": 7}, "source.new"),
        (7, "source"),
        ({"new": {"kind": "distributed"}}, "source.new"),
    ],
)
def test_a_mistake_in_a_new_source_is_named_with_its_path(source, place):
    with pytest.raises(sk.ConfigError) as raised:
        of([{"at": 9, "weights": {"web": 1, "new": 2}, "source": source}], child=MIXED)
    assert raised.value.place == f"sampler.edits[0].{place}"


def test_paths_start_from_the_folder_of_the_config(tmp_path):
    np.save(tmp_path / "bad.npy", np.array([7, 4]))
    (tmp_path / "edits.jsonl").write_text('{"at": 1, "without": [4, 7]}\n{"at": 2, "skip": 3}\n')
    (tmp_path / "run.yaml").write_text(
        "sampler: {kind: ledger, edits: [{at: 1, without: bad.npy}], edits_file: edits.jsonl, "
        "child: {kind: random}}"
    )
    config = sk.load_config(tmp_path / "run.yaml")
    assert config.sampler.edits == (sk.Edit(at=1, without=[4, 7]), sk.Edit(at=2, skip=3))
    assert sk.load_config(config.to_dict()) == config


@pytest.mark.parametrize(
    ("edits", "place"),
    [
        (7, "sampler.edits"),
        ([7], "sampler.edits"),
        ([{"at": 1, "skip": 1}, {"at": 3, "skp": 1}], "sampler.edits[1].skp"),
        ([{"at": 1, "skip": 1}, {"skip": 1}], "sampler.edits[1].at"),
        ([{"at": 1, "skip": -1}], "sampler.edits[0].skip"),
        ([{"at": 1, "weights": {"web": -1}}], "sampler.edits[0].weights[0]"),
        ([{"at": 5, "skip": 1}, {"at": 3, "skip": 1}], "sampler.edits[1].at"),
        ([{"at": 1, "without": "none.npy"}], "sampler.edits[0].without"),
    ],
)
def test_a_mistake_in_an_edit_is_named_with_its_path(edits, place):
    with pytest.raises(sk.ConfigError) as raised:
        of(edits)
    assert raised.value.place == place


def test_an_edit_that_does_not_go_with_the_sampler_is_found_before_the_job():
    with pytest.raises(sk.ConfigError, match="edit at 4: says weights, and this mixes no sources with names"):
        of([{"at": 4, "weights": {"web": 1}}]).check_order(range(9))
