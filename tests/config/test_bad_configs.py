"""Wrong configs: each is one clear error with a place, the value and a hint; long texts too."""

from __future__ import annotations

import json

import numpy as np
import pytest
import yaml

import samplerkit as sk
from samplerkit.config import reading
from tests.config.answers import refused
from tests.values_in_messages import WRONG, evaluated

CALLS = json.loads(WRONG.read_text(encoding="utf-8"))
TEXTS = [call for call in CALLS if "from_yaml(" in call and "loader(" not in call]
"""Wrong configs, each with its one error."""


def test_a_wrong_config_is_one_line_whichever_parser_reads_it(monkeypatch):
    assert len(TEXTS) > 60
    for text in TEXTS:
        refused(evaluated, text)
    monkeypatch.setattr(reading, "LONG", 0)  # a long text is read by libyaml, and refused too
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


WITHOUT_LIBYAML = not yaml.__with_libyaml__
MANY = 3000


def listed(numbers):
    return f"sampler: {{kind: subset, indices: [{', '.join(map(str, numbers))}]}}\n"


@pytest.mark.skipif(WITHOUT_LIBYAML, reason="this PyYAML was built without libyaml")
def test_a_long_list_is_read_by_libyaml_with_the_same_result(monkeypatch):
    ids = np.random.default_rng(7).integers(2**40, size=MANY).tolist()
    text = listed(ids)
    monkeypatch.setattr(reading, "LONG", len(text))
    with monkeypatch.context() as patch:
        patch.setattr(yaml.scanner.Scanner, "fetch_more_tokens", None)  # without PyYAML's own parser
        assert sk.Config.from_yaml(text).sampler.indices.tolist() == ids
        with pytest.raises(TypeError):
            sk.Config.from_yaml(listed(ids[:3]))
    monkeypatch.setattr(reading, "LONG", len(text) + 1)
    assert reading.parse(text)["sampler"]["indices"] == ids


@pytest.mark.parametrize(
    "text", ["{a: 0, b: 007, c: 0x1f, d: 1_000, e: '5', f: 1:30, g: -3, h: +4, i: 08}", "[1, ~]"]
)
@pytest.mark.parametrize("long", [0, 1000])
def test_numbers_mean_what_they_mean_in_yaml(text, long, monkeypatch):
    monkeypatch.setattr(reading, "LONG", long)
    assert reading.parse(text) == yaml.safe_load(text)


def test_a_text_that_is_too_long_is_refused_and_the_hint_suggests_npy_files(monkeypatch):
    assert reading.MAX_CHARACTERS >= 1 << 20
    monkeypatch.setattr(reading, "MAX_CHARACTERS", 100)
    error = refused(sk.Config.from_yaml, listed(range(100)))
    assert "characters, and at most 100 are read; keep long lists in .npy files" in str(error)
