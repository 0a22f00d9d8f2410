"""Wrong configs: each is one clear error with the whole path of its key, the value and a hint."""

import json

import jsonschema
import numpy as np
import pytest
import yaml

import samplerkit as sk
from samplerkit.config import reading
from samplerkit.config.registry import SAMPLERS
from tests.config.answers import refused
from tests.values_in_messages import WRONG, evaluated

CALLS = json.loads(WRONG.read_text(encoding="utf-8"))
TEXTS = [call for call in CALLS if "from_yaml(" in call and "loader(" not in call]
"""Wrong configs, each with its one error."""


def test_a_wrong_config_is_one_line():
    assert len(TEXTS) > 60
    for text in TEXTS:
        refused(evaluated, text)


def test_a_missing_file_a_folder_and_a_binary_file_are_refused_by_name(tmp_path):
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, fragment in [
        (tmp_path / "no.yaml", "there is no such file"),
        (tmp_path, "is a folder"),
        (binary, "is not UTF-8 text"),
    ]:
        error = refused(sk.load_config, path)
        assert fragment in str(error)
        assert error.value == str(path)


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (b"", "cannot be read as a .npy file"),
        (b"\x93NUMPY\x01\x00v\x00{'descr': '<i8', 'fortran_order': False, 'shape': (9,)}", "cannot be read"),
        (np.array([{}], dtype=object), "Object arrays cannot be loaded"),
        (np.array([0.5]), "must hold integers, and holds float64"),
        (np.zeros((2, 3), int), "must be a flat array, and has the shape (2, 3)"),
    ],
)
def test_a_damaged_pickled_or_unfit_npy_file_is_refused_by_its_path(tmp_path, content, fragment):
    path = tmp_path / "keep.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, content, allow_pickle=True)
    error = refused(sk.load_config, {"sampler": {"kind": "subset", "indices": str(path)}})
    assert (error.place, error.value) == ("sampler.indices", str(path))
    assert fragment in str(error)


def test_an_archive_of_arrays_and_a_folder_are_no_npy_file(tmp_path):
    with (tmp_path / "many.npy").open("wb") as file:
        np.savez(file, a=np.arange(3))
    (tmp_path / "folder.npy").mkdir()
    for name, fragment in [("many.npy", "is an archive"), ("folder.npy", "there is no such file")]:
        section = {"kind": "subset", "indices": str(tmp_path / name)}
        assert fragment in refused(sk.load_config, {"sampler": section}).problem


def test_nothing_is_ever_imported_by_name(tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    for spelling in ("_target_", "class_path", "kind"):
        error = refused(sk.load_config, {"sampler": {spelling: "evil.Sampler"}})
        assert error.place == f"sampler.{spelling}"


def listed(numbers):
    return f"sampler: {{kind: subset, indices: [{', '.join(map(str, numbers))}]}}\n"


@pytest.mark.parametrize(
    "text", ["{a: 0, b: 007, c: 0x1f, d: 1_000, e: '5', f: 1:30, g: -3, h: +4, i: 08}", "[1, ~]"]
)
def test_numbers_mean_what_they_mean_in_yaml(text):
    assert reading.parse(text) == yaml.safe_load(text)


def test_a_text_that_is_too_long_is_refused_and_the_hint_suggests_npy_files(monkeypatch):
    monkeypatch.setattr(reading, "MAX_CHARACTERS", 100)
    error = refused(sk.Config.from_yaml, listed(range(100)))
    assert "characters, and at most 100 are read; keep long lists in .npy files" in str(error)


RANDOM = {"kind": "random"}
FILES = {"kind": "files", "files": ["a.npz", "b.npz"], "reader": "npz"}
TEN = {"kind": "size", "size": 10}


class Nested(sk.Sampler):
    """A user's sampler whose argument is a mapping of mappings of lists."""

    def __init__(self, shares: dict[str, dict[str, list[int]]], pairs: list[tuple[int, str]] = ()) -> None:  # type: ignore[assignment]
        super().__init__(None)
        self.shares, self.pairs = shares, pairs


if "nested" not in SAMPLERS:
    sk.register_sampler("nested", Nested)


def nested(shares, **more):
    return {"sampler": {"kind": "sequential", "child": {"kind": "nested", "shares": shares, **more}}}


@pytest.mark.parametrize(
    ("config", "place"),
    [
        (nested({"a": {"b": [1, "x"]}}), "sampler.child.shares.a.b[1]"),
        (nested({"a": {"b": [1], "c": [2, 3, None]}}), "sampler.child.shares.a.c[2]"),
        (nested({"a": {"b": 1}}), "sampler.child.shares.a.b"),
        (nested({"a": [1]}), "sampler.child.shares.a"),
        (nested([1]), "sampler.child.shares"),
        (nested({"two words": {"b": ["x"]}}), "sampler.child.shares['two words'].b[0]"),
        (nested({"list": {"int": ["x"]}}), "sampler.child.shares.list.int[0]"),
        (nested({}, pairs=[[1, "a"], [2, 3]]), "sampler.child.pairs[1][1]"),
        (nested({}, pairs=[[1, "a"], [2]]), "sampler.child.pairs[1][1]"),
    ],
)
def test_a_mistake_inside_of_nested_mappings_and_lists_has_its_place(config, place):
    assert refused(sk.load_config, config).place == place


CHAINS = {
    "alone": (lambda link: link, "sampler.indices"),
    "below two": (lambda link: chained(chained(link)), "sampler.child.child.indices"),
    "in LightningCLI's spelling": (
        lambda link: {"class_path": "samplerkit.DistributedSampler", "init_args": {"child": link}},
        "sampler.init_args.child.indices",
    ),
    "above another one": (lambda link: {**link, "child": {"kind": "sequential"}}, "sampler.indices"),
    "a shard that the job has not": (lambda _: {"kind": "distributed", "shard_id": 1}, "sampler.shard_id"),
}


def chained(child):
    return {"kind": "distributed", "shuffle": False, "child": child}


@pytest.mark.parametrize(("wrap", "place"), CHAINS.values(), ids=CHAINS.keys())
def test_an_error_when_the_order_is_built_has_the_whole_path(wrap, place):
    config = {"dataset": TEN, "sampler": wrap({"kind": "subset", "indices": [3, 10]})}
    caught = refused(sk.load_config(config).check_order)
    assert caught.place == place
    assert "of 10 samples, got 10" in str(caught) or place == "sampler.shard_id"
    at_load = refused(sk.load_config, {**config, "min_quality": 0.1})
    assert str(at_load) == f"min_quality: cannot be computed ({caught})"


def test_an_error_in_a_source_of_a_mixture_has_the_path_of_the_source():
    web = {"kind": "random", "child": {"kind": "subset", "indices": [3, 10]}}
    mixture = {"kind": "mixture", "sources": {"web": web, "code": None}, "weights": {"web": 1, "code": 1}}
    config = {"dataset": {"kind": "tree", "parts": {"web": TEN, "code": TEN}}, "sampler": mixture}
    assert refused(sk.load_config(config).check_order).place == "sampler.sources.web.child.indices"


def test_an_invalid_chain_names_the_kind_or_the_mode_of_the_link():
    for outer, inner, place, value in (
        ({"kind": "ledger"}, {"kind": "ledger", "child": RANDOM}, "sampler.child", "ledger"),
        (RANDOM, {**RANDOM, "shuffle": "partial"}, "sampler.child.shuffle", "partial"),
        ({**RANDOM, "shuffle": "files"}, RANDOM, "sampler.shuffle", "files"),
    ):
        caught = refused(sk.load_config, {"sampler": {**outer, "child": inner}})
        assert (caught.place, caught.value) == (place, value)


CHILD = {"kind": "random", "seed": 3}


def of(edits, **more):
    return sk.load_config({"sampler": {"kind": "ledger", "edits": edits, "child": CHILD, **more}})


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


def test_a_tilde_is_the_home_folder_and_no_folder_of_this_name(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    np.save(tmp_path / "home" / "lengths.npy", np.arange(1, 11))
    (tmp_path / "run.yaml").write_text(
        "dataset: {kind: size, size: 10}\nsampler: {kind: random}\n"
        "batches: {kind: tokens, max_tokens: 20, lengths: ~/lengths.npy}"
    )
    loader = sk.load_config(tmp_path / "run.yaml").make_loader(range(10), world=sk.World(1, 0))
    assert sum(len(batch) for batch in loader) == 10
