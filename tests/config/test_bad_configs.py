"""Wrong configs: each is one clear error that says where, what was there, and what to do; long texts too."""

from __future__ import annotations

import datetime as dt
import math

import numpy as np
import pytest
import yaml

import samplerkit as sk
from samplerkit.config import text as reading
from tests.config.answers import refused

LONG = "9" * 30
LAUGHS = "sampler:\n  kind: pk\n  num_val: 1\n  labels:\n  - &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"  - &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefghi", "bcdefghij", strict=True)
)

TEXTS = [
    # the document
    ("", "config", "is empty", None),
    ("null", "config", "is empty", None),
    ("random", "config", "must be a mapping", "random"),
    ("sampler: {kind: random}\n3: 4", "config", "a key that is no string", 3),
    ("sampler: {kind: random}\nloaders: {}", "loaders", "did you mean loader?", {}),
    ("sampler: {kind: random}\nmodel: 3", "model", "known: dataset, sampler, loader", 3),
    ("sampler: {kind: random}\ntwo words: 3", "['two words']", "is no key of a config", 3),
    ("loader: {}", "sampler", "is missing", None),
    ("sampler:", "sampler", "is missing", None),
    # YAML
    ("sampler: {kind: random", "config, line 1, column 23", "expected ',' or '}'", None),
    ("sampler:\n  kind: random\n bad: 3", "config, line 3, column 2", "expected <block end>", None),
    ("sampler:\n\t kind: random", "config, line 2, column 1", "cannot start any token", None),
    ("sampler: {kind: random}\n---\nsampler: 3", "config, line 2, column 1", "another document", None),
    ("a: 1\nb: \x07", "config, line 2, column 4", "special characters", None),
    ("sampler: *nowhere", "config, line 1, column 10", "undefined alias", None),
    ("sampler: {kind: random, [3]: 4}", "config, line 1, column 25", "unhashable key", None),
    ("sampler:\n  kind: random\n  seed: 1\n  seed: 1", "config, line 4, column 3", "in line 3", "seed"),
    ("sampler: {kind: random}\nsampler: {kind: pk}", "config, line 2, column 1", "comes twice", "sampler"),
    ("sampler: {kind: random, <<: {seed: 3}}", "config, line 1, column 25", "merge keys", None),
    ("sampler: &a {kind: random, child: *a}", "config, line 1, column 35", "inside of what it names", None),
    ("sampler: &a\n- *a", "config, line 2, column 3", "the alias *a", None),
    (LAUGHS, "sampler.labels[7][0]", "repeats more than 10000000 values", None),
    ("[" * 5000, "config, line 1, column 258", "nested more than 256 levels", None),
    ("sampler: !!python/name:os.system {}", "config, line 1, column 10", "constructor for the tag", None),
    ("sampler: !!python/object/apply:os.system [ls]", "config, line 1, column 10", "python/object", None),
    ("sampler: !mine {}", "config, line 1, column 10", "constructor for the tag '!mine'", None),
    ("sampler: {seed: 2020-13-45}", "config, line 1, column 17", "as timestamp", "2020-13-45"),
    ("sampler: {seed: !!bool maybe}", "config, line 1, column 17", "as bool", "maybe"),
    ("sampler: {seed: !!int x}", "config, line 1, column 17", "cannot be read as int", "x"),
    (f"sampler: {{seed: {'1' * 8000}}}", "config, line 1, column 17", "cannot be read as int", "1" * 8000),
    # the sampler: which one
    ("sampler: random", "sampler", "must be a mapping", "random"),
    ("sampler: {seed: 3}", "sampler.kind", "write for instance {kind: random", None),
    ("sampler: {kind: randon}", "sampler.kind", "did you mean random?", "randon"),
    ("sampler: {kind: shuffled}", "sampler.kind", "known: sequential, random", "shuffled"),
    ("sampler: {kind: [random]}", "sampler.kind", "is no kind of sampler", ["random"]),
    # the sampler: keys
    ("sampler: {kind: random, num_sample: 3}", "sampler.num_sample", "did you mean num_samples?", 3),
    ("sampler: {kind: random, start_index: 3}", "sampler.start_index", "is no key of random", 3),
    ("sampler: {kind: random, chid: {}}", "sampler.chid", "did you mean child?", {}),
    ("sampler: {kind: random, argument_seed: 3}", "sampler.argument_seed", "is no key", 3),
    ("sampler: {kind: subset}", "sampler.indices", "is missing, and subset needs it", None),
    # the sampler: types
    ("sampler: {kind: random, num_samples: 1e6}", "sampler.num_samples", "write 1000000", "1e6"),
    ("sampler: {kind: random, num_samples: '3'}", "sampler.num_samples", "write 3 without quotes", "3"),
    ("sampler: {kind: random, num_samples: 3.0}", "sampler.num_samples", "write 3", 3.0),
    ("sampler: {kind: random, num_samples: 3.5}", "sampler.num_samples", "must be a valid integer", 3.5),
    ("sampler: {kind: random, num_samples: .inf}", "sampler.num_samples", "a valid integer", math.inf),
    ("sampler: {kind: random, seed: null}", "sampler.seed", "must be a valid integer", None),
    ("sampler: {kind: random, seed: 2020-01-01}", "sampler.seed", "integer", dt.date(2020, 1, 1)),
    ("sampler: {kind: random, seed: !!binary aGk=}", "sampler.seed", "must be a valid integer", b"hi"),
    ("sampler: {kind: random, replacement: 1}", "sampler.replacement", "write true", 1),
    ("sampler: {kind: random, shuffle: globl}", "sampler.shuffle", "did you mean global?", "globl"),
    ("sampler: {kind: random, shuffle: 1}", "sampler.shuffle", "must be a bool or one of", 1),
    ("sampler: {kind: subset, indices: 3}", "sampler.indices", "must be a valid list", 3),
    ("sampler: {kind: subset, indices: {file: a}}", "sampler.indices", "the path of a .npy", ...),
    ("sampler: {kind: subset, indices: [1, a]}", "sampler.indices[1]", "must be a valid integer", "a"),
    ("sampler: {kind: subset, indices: keep.npz}", "sampler.indices", "path of a .npy file", "keep.npz"),
    ("sampler: {kind: subset, indices: no.npy}", "sampler.indices", "there is no such file", "no.npy"),
    ("sampler: {kind: weighted_random, weights: [1e-3]}", "sampler.weights[0]", "write 0.001", "1e-3"),
    ("sampler: {kind: weighted_random, weights: [1e-9]}", "sampler.weights[0]", "write 1.0e-09", "1e-9"),
    ("sampler: {kind: pk, num_val: 2, labels: [[1], [2, 3]]}", "sampler.labels", "flat", [[1], [2, 3]]),
    ("sampler: {kind: distributed, num_shards: all}", "sampler.num_shards", "integer or auto", "all"),
    ("sampler: {kind: distributed, offset: auto}", "sampler.offset", "must be a valid integer", "auto"),
    # the sampler: values, as the constructors judge
    ("sampler: {kind: random, num_samples: -1}", "sampler.num_samples", "None or 0 means all", -1),
    ("sampler: {kind: random, seed: -1}", "sampler.seed", "must be in [0, 2^64)", -1),
    ("sampler: {kind: random, shuffle: false}", "sampler.shuffle", "use SequentialSampler", "false"),
    (f"sampler: {{kind: subset_random, indices: [{LONG}]}}", "sampler.indices", "2^63", int(LONG)),
    ("sampler: {kind: weighted_random, weights: [1, -1]}", "sampler.weights[1]", "negative", -1.0),
    ("sampler: {kind: distributed, num_shards: 2, shard_id: 2}", "sampler.shard_id", "[0, 2)", 2),
    (f"sampler: {{kind: random, seed: 0x{'f' * 8000}}}", "sampler.seed", "got <int>", int("f" * 8000, 16)),
    # nesting
    ("sampler: {kind: random, child: random}", "sampler.child", "must be a mapping", "random"),
    ("sampler: {kind: random, child: {}}", "sampler.child.kind", "is missing", None),
    ("sampler: {kind: random, child: {kind: rand}}", "sampler.child.kind", "did you mean random?", "rand"),
    (
        "sampler: {kind: random, child: {kind: sequential, child: {kind: subset, indices: [0, x]}}}",
        "sampler.child.child.indices[1]",
        "must be a valid integer",
        "x",
    ),
    (
        "sampler: {kind: distributed, child: {kind: random, num_samples: -3}}",
        "sampler.child.num_samples",
        "must be between 0 and",
        -3,
    ),
    (
        "sampler: {kind: random, child: {kind: random, shuffle: partial}}",
        "sampler.child.shuffle",
        "must not be PARTIAL",
        "partial",
    ),
    (
        "sampler: {kind: distributed, shuffle: files, child: {kind: sequential}}",
        "sampler.shuffle",
        "give the mode to the innermost sampler",
        "files",
    ),
    ("sampler: " + "{kind: random, child: " * 300, "config, line 1, column 5621", "256 levels", None),
    # Hydra's and LightningCLI's spellings
    ("sampler: {_target_: os.system, command: ls}", "sampler._target_", "register_sampler", "os.system"),
    ("sampler: {_target_: samplerkit.Distributed}", "sampler._target_", "did you", "samplerkit.Distributed"),
    ("sampler: {_target_: samplerkit.Layout}", "sampler._target_", "names no class", "samplerkit.Layout"),
    ("sampler: {_target_: samplerkit.RandomSampler, sed: 1}", "sampler.sed", "did you mean seed?", 1),
    ("sampler: {_target_: samplerkit.RandomSampler, _partial_: true}", "sampler._partial_", "no key", True),
    ("sampler: {kind: random, _target_: samplerkit.PKSampler}", "sampler._target_", "beside kind", ...),
    ("sampler: {class_path: os.system}", "sampler.class_path", "names no class", "os.system"),
    ("sampler: {class_path: samplerkit.RandomSampler, seed: 1}", "sampler.seed", "known: init_args", 1),
    ("sampler: {class_path: samplerkit.RandomSampler, init_args: 1}", "sampler.init_args", "mapping", 1),
    (
        "sampler: {class_path: samplerkit.RandomSampler, init_args: {seed: a}}",
        "sampler.init_args.seed",
        "must be a valid integer",
        "a",
    ),
    (
        "sampler: {class_path: samplerkit.RandomSampler, init_args: {child: {kind: rnd, seed: a}}}",
        "sampler.init_args.child.kind",
        "is no kind of sampler",
        "rnd",
    ),
    # the dataset
    ("sampler: {kind: random}\ndataset: 5", "dataset", "must be a mapping", 5),
    ("sampler: {kind: random}\ndataset: {size: 5}", "dataset.kind", "is missing", None),
    ("sampler: {kind: random}\ndataset: {kind: csv}", "dataset.kind", "known: size, layout", "csv"),
    ("sampler: {kind: random}\ndataset: {kind: size, size: -5}", "dataset.size", "negative", -5),
    (f"sampler: {{kind: random}}\ndataset: {{kind: size, size: {LONG}}}", "dataset.size", "2^62", int(LONG)),
    ("sampler: {kind: random}\ndataset: {kind: layout, size: 5}", "dataset.size", "did you mean sizes?", 5),
    ("sampler: {kind: random}\ndataset: {kind: layout, sizes: [5, 1.5]}", "dataset.sizes[1]", "integer", 1.5),
    ("sampler: {kind: random}\ndataset: {kind: layout, sizes: [5], names: [a, b]}", "dataset.names", "1", 2),
    # the loader
    ("sampler: {kind: random}\nloader: 32", "loader", "must be a mapping", 32),
    ("sampler: {kind: random}\nloader: {batchsize: 32}", "loader.batchsize", "mean batch_size?", 32),
    ("sampler: {kind: random}\nloader: {shuffle: true}", "loader.shuffle", "is no key of loader", True),
    ("sampler: {kind: random}\nloader: {batch_size: 0}", "loader.batch_size", "must be positive", 0),
    ("sampler: {kind: random}\nloader: {prefetch_factor: 2}", "loader.prefetch_factor", "needs workers", 2),
]


@pytest.mark.parametrize(
    ("text", "place", "fragment", "value"),
    TEXTS,
    ids=[f"{number}-{case[1]}" for number, case in enumerate(TEXTS)],
)
def test_a_wrong_config_is_one_line_that_names_the_place_the_value_and_the_hint(
    text, place, fragment, value, monkeypatch
):
    error = refused(sk.Config.from_yaml, text)
    assert error.place == place
    assert fragment in str(error)
    assert value is ... or (type(error.value), error.value) == (type(value), value)
    monkeypatch.setattr(reading, "LONG", 0)  # a long text is read by libyaml, and refused too
    refused(sk.Config.from_yaml, text)


@pytest.mark.parametrize(
    ("source", "place", "fragment"),
    [
        (3, "config", "must be a path or a mapping"),
        (b"config.yaml", "config", "must be a path or a mapping"),
        (None, "config", "must be a path or a mapping"),
        ([("sampler", {})], "config", "must be a path or a mapping"),
        ("sampler:\n  kind: random", "config", "text goes to Config.from_yaml"),
        ("no\0file", "config", "'no\\x00file'"),
        ("x" * 5000, "config", "cannot be read"),
        ({}, "sampler", "is missing"),
        ({1: 2}, "config", "a key that is no string, got 1"),
        ({"sampler": {("a", "b"): 2}}, "sampler", "a key that is no string, got ('a', 'b')"),
        ({"sampler": sk.RandomSampler()}, "sampler", "must be a mapping"),
        ({"sampler": {"kind": "random", "child": sk.RandomSampler()}}, "sampler.child", "must be a mapping"),
        ({"sampler": {"kind": "subset", "indices": {1, 2}}}, "sampler.indices", "must be a valid list"),
        ({"sampler": {"kind": "subset", "indices": np.ones((2, 2), int)}}, "sampler.indices", "(2, 2)"),
        ({"sampler": {"kind": "subset", "indices": np.array([0.5])}}, "sampler.indices", "holds float64"),
        ({"sampler": {"kind": "subset", "indices": object()}}, "sampler.indices", "must be a valid list"),
    ],
)
def test_what_is_no_config_at_all_is_refused(source, place, fragment):
    error = refused(sk.load_config, source)
    assert error.place == place
    assert fragment in str(error)


def test_a_file_that_is_not_there_a_folder_and_a_binary_file_are_refused_by_name(tmp_path):
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, fragment in [
        (tmp_path / "no.yaml", "there is no such file"),
        (tmp_path, "is a folder"),
        (binary, "is no UTF-8 text"),
    ]:
        error = refused(sk.load_config, path)
        assert fragment in str(error)
        assert error.value == str(path)


def test_an_error_in_a_file_names_the_file(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("sampler: {kind: random, seed: -1}")
    error = refused(sk.load_config, path)
    assert error.place == "sampler.seed"
    assert error.__notes__ == [f"in the config file {path}"]
    path.write_text("sampler: {kind: random")
    assert refused(sk.load_config, path).place == "run.yaml, line 1, column 23"


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (b"", "cannot be read as a .npy file"),
        (b"\x80\x04N.", "cannot be read as a .npy file"),
        (b"\x93NUMPY\x01\x00v\x00{'descr': '<i8', 'fortran_order': False, 'shape': (9,)}", "cannot be read"),
        (np.array([{}], dtype=object), "Object arrays cannot be loaded"),
        (np.array([0.5]), "must hold integers, and holds float64"),
        (np.array(["a"]), "must hold integers, and holds <U1"),
        (np.zeros((2, 3), int), "must be a flat array, and has the shape (2, 3)"),
        (np.array(3), "must be a flat array, and has the shape ()"),
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


def test_a_mapping_that_contains_itself_is_refused():
    section = {"kind": "random"}
    section["child"] = section
    error = refused(sk.load_config, {"sampler": section})
    assert (error.place, error.problem) == ("sampler.child", "contains itself")


def test_a_mapping_that_is_nested_too_deeply_is_refused_without_a_recursion_error():
    section = None
    for _ in range(5000):
        section = {"kind": "random", "child": section}
    with pytest.raises(sk.ConfigError, match="nested more than 256 levels deep"):
        sk.load_config({"sampler": section})


def test_nothing_is_ever_imported_by_name(tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    for spelling in ("_target_", "class_path", "kind"):
        error = refused(sk.load_config, {"sampler": {spelling: "evil.Sampler"}})
        assert error.place == f"sampler.{spelling}"


def test_yaml_objects_are_not_made_even_where_python_tags_are_spelled_out():
    text = yaml.dump({"sampler": Exception("x")})
    assert "constructor for the tag" in refused(sk.Config.from_yaml, text).problem


WITHOUT_LIBYAML = not yaml.__with_libyaml__
MANY = 3000


def listed(numbers):
    return f"sampler: {{kind: subset, indices: [{', '.join(map(str, numbers))}]}}\n"


@pytest.mark.skipif(WITHOUT_LIBYAML, reason="this PyYAML was built without libyaml")
def test_a_long_list_is_read_by_libyaml_and_means_the_same(monkeypatch):
    ids = np.random.default_rng(7).integers(2**40, size=MANY).tolist()
    text = listed(ids)
    monkeypatch.setattr(reading, "LONG", len(text))
    with monkeypatch.context() as patch:
        patch.setattr(yaml.scanner.Scanner, "fetch_more_tokens", None)  # PyYAML's own parser is not there
        assert sk.Config.from_yaml(text).sampler.indices.tolist() == ids
        with pytest.raises(TypeError):
            sk.Config.from_yaml(listed(ids[:3]))
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    assert reading.parse(text)["sampler"]["indices"] == ids


@pytest.mark.parametrize(
    "text", ["{a: 0, b: 007, c: 0x1f, d: 1_000, e: '5', f: 1:30, g: -3, h: +4, i: 08}", "[1, ~]"]
)
@pytest.mark.parametrize("long", [0, 1000])
def test_numbers_mean_what_they_mean_in_yaml(text, long, monkeypatch):
    monkeypatch.setattr(reading, "LONG", long)
    assert reading.parse(text) == yaml.safe_load(text)


def test_a_text_that_would_take_minutes_is_refused_and_the_mend_names_npy(monkeypatch):
    assert reading.MOST_CHARACTERS >= 1 << 20
    monkeypatch.setattr(reading, "MOST_CHARACTERS", 100)
    error = refused(sk.Config.from_yaml, listed(range(100)))
    assert "characters, and at most 100 are read; keep long lists in .npy files" in str(error)
