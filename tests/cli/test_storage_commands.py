"""The commands `pack`, `index` and `lengths`, as a user runs them."""

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.tar.dataset import TarDataset
from tests.cli.configs import in_json


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The source files of Python's own email package, in folders."""
    copied = tmp_path_factory.mktemp("sources") / "email"
    ignored = shutil.ignore_patterns("__pycache__", "*.rst")
    return shutil.copytree(Path(json.__file__).parents[1] / "email", copied, ignore=ignored)


def sources(folder):
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.py")}


def test_a_folder_is_packed_with_every_file_and_replaced_only_with_overwrite(command, tmp_path, folder):
    shards = tmp_path / "shards" / "out-%03d.tar"
    pack = ("pack", folder, "--shards", shards, "--samples-per-shard", 7)
    code, out, _ = command(*pack)
    files = sources(folder)
    assert (code, out) == (0, f"{len(files)} samples of {len(files)} files in {-(-len(files) // 7)} shards\n")
    paths = sorted(shards.parent.glob("*.tar"))
    dataset = TarDataset(paths)
    assert Counter(dataset.layout.sizes.tolist()).most_common(1)[0][0] == 7
    assert {f"{sample['__key__']}.py": sample["py"] for sample in dataset} == {
        name: path.read_bytes() for name, path in files.items()
    }
    assert sorted(shards.parent.glob("*.skidx")) == [Path(f"{path}.skidx") for path in paths]
    first = paths[0].read_bytes()
    line = f"samplerkit: shards: exists already, got '{paths[0]}'; "
    line += "give another path, or replace it: overwrite=True, or --overwrite\n"
    assert command(*pack) == (2, "", line)
    assert command(*pack, "--overwrite")[0] == 0
    assert paths[0].read_bytes() == first


def test_files_that_are_left_out_are_named(command, tmp_path):
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.txt", "a.cls", "sub/b.txt", "README", ".hidden.txt"):
        (folder / name).write_text(name)
    left_out = "left out, since they are hidden or have no extension: .hidden.txt, README\n"
    result = command("pack", folder, "--shards", f"{tmp_path}/out-%d.tar")
    assert result == (0, "2 samples of 3 files in 1 shard\n", left_out)
    assert TarDataset(f"{tmp_path}/out-0.tar").keys() == ["a", "sub/b"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("nowhere", "--shards", "out-%d.tar"), "source: is not a folder, got 'nowhere'"),
        ((".", "--shards", "out%.tar"), "shards: must have one place for a number, got 'out%.tar'; as in"),
        ((".", "--shards", "o-{0..1}.tar", "--samples-per-shard", "3"), "shards: fixes the number of shards"),
        (("empty", "--shards", "out-%d.tar"), "source: has no file with an extension, got 'empty'"),
    ],
)
def test_a_mistake_in_packing_is_one_line(refused, monkeypatch, tmp_path, arguments, line):
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.txt").write_text("a")
    monkeypatch.chdir(tmp_path)
    assert refused("pack", *arguments).startswith(f"samplerkit: {line}")
    assert not list(tmp_path.glob("out*"))


def test_an_index_of_a_damaged_shard_names_the_damage(command, tmp_path, folder):
    assert command("pack", folder, "--shards", f"{tmp_path}/out-%d.tar")[0] == 0
    path = tmp_path / "out-0.tar"
    path.write_bytes(path.read_bytes()[:70_000])
    code, _, error = command("index", path)
    assert (code, f"{path}: truncated at byte " in error) == (1, True)
    code, _, error = command("index", tmp_path / "nothing-*.tar")
    assert (code, error.startswith("samplerkit: urls: no file matches")) == (2, True)


RECORDS = Path(__file__).parents[1] / "data" / "formats" / "tfrecord"


@pytest.mark.parametrize(
    ("option", "names", "output"),
    [
        ("--tfrecord", ["plain.tfrecord", "packed.tfrecord.gz"], "80 records in 2 files\n"),
        ("--jsonl", ["a.jsonl"], "2 samples in 1 file\n"),
    ],
)
def test_records_are_indexed_next_to_their_files_or_in_a_folder(command, tmp_path, option, names, output):
    (tmp_path / "a.jsonl").write_text("[1]\n\n[2]\n")
    for name in ("plain.tfrecord", "packed.tfrecord.gz"):
        shutil.copy(RECORDS / name, tmp_path)
    paths = [tmp_path / name for name in names]
    code, _, error = command("index", *paths)
    assert (code, error.endswith(f"; use {option}\n"), [*tmp_path.glob("*.skidx")]) == (2, True, [])
    assert command("index", option, *paths) == (0, output, "")
    indexes = {path.name: path.read_bytes() for path in tmp_path.glob("*.skidx")}
    assert indexes.keys() == {f"{name}.skidx" for name in names}
    assert command("index", option, *paths, "--out", tmp_path / "out") == (0, output, "")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == indexes
    code, _, error = command("index", option, *paths, "--checksums")
    assert (code, "--checksums: is for tar shards only" in error) == (2, True)
    code, _, error = command("index", "--jsonl", "--tfrecord", *paths)
    assert (code, "give one of the two" in error) == (2, True)


@pytest.fixture
def config(tmp_path):
    with sk.TarWriter(f"{tmp_path}/train-%03d.tar", samples_per_shard=4) as writer:
        for number in range(10):
            writer.write({"__key__": f"{number}", "txt": "ä" * number, "cls": number % 2})
    path = tmp_path / "train.yaml"
    path.write_text("dataset: {kind: tar, urls: 'train-*.tar'}\nsampler: {kind: random}\n")
    return path


def test_the_bytes_of_a_field_of_tar_samples_are_their_lengths(command, tmp_path, config):
    out = tmp_path / "lengths.npy"
    result = command("lengths", config, "--out", out, "--field", "txt")
    assert result == (0, f"{out}: 10 samples, 0 to 18 long, 9.0 on average\n", "")
    assert np.load(out).tolist() == [2 * number for number in range(10)]
    other = tmp_path / "other.npy"
    options = ("--out", other, "--field", "txt", "--workers", 1)
    assert in_json(command, "lengths", config, *options)[1]["longest"] == 18
    assert other.read_bytes() == out.read_bytes()


def test_a_function_of_the_user_measures_samples(command, monkeypatch, tmp_path, config):
    (tmp_path / "user_measures.py").write_text(
        "def letters(sample):\n    return len(sample['txt'].decode())\n"
    )
    monkeypatch.chdir(tmp_path)
    function = ("--function", "user_measures:letters")
    assert command("lengths", config, "--out", "l.npy", *function)[0] == 0
    assert np.load("l.npy").tolist() == list(range(10))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--field", "jpg"], "got 'jpg'; name a field: __key__, __url__,"),
        (["--field", "txt", "--function", "a:b"], "conflicts with --field"),
        (["--function", "json:nothing"], "cannot be imported"),
        (["--function", "failing_measures:any"], "(NameError: name 'ä' is not defined; failing_measures.py"),
    ],
)
def test_what_cannot_be_measured_is_one_line(refused, monkeypatch, tmp_path, config, options, problem):
    (tmp_path / "failing_measures.py").write_text("ä")
    monkeypatch.syspath_prepend(tmp_path)
    errors = refused("lengths", config, "--out", tmp_path / "l.npy", *options)
    assert problem in errors
    assert errors.count("samplerkit: ") == 1


def test_a_layout_has_no_samples_to_measure(refused, tmp_path):
    path = tmp_path / "layout.yaml"
    path.write_text("dataset: {kind: size, size: 10}\nsampler: {kind: random}\n")
    assert "dataset: is only a layout" in refused("lengths", path, "--out", tmp_path / "l.npy")
