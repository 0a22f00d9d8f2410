"""`samplerkit index` and `samplerkit pack`, as a user runs them."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

import samplerkit as sk
from samplerkit.cli.main import main
from samplerkit.storage.tar.dataset import TarDataset
from tests.cli.processes import run
from tests.own_seconds import OwnSeconds


@pytest.fixture(autouse=True)
def cache_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache-home"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The source files of Python's own email package, in folders."""
    copied = tmp_path_factory.mktemp("sources") / "email"
    ignored = shutil.ignore_patterns("__pycache__", "*.rst")
    return shutil.copytree(Path(json.__file__).parents[1] / "email", copied, ignore=ignored)


def command(monkeypatch, *arguments):
    """Runs the command in this process; gives its exit code."""
    monkeypatch.setattr(sys, "argv", ["samplerkit", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def sources(folder):
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.py")}


def test_a_folder_is_packed_and_every_file_comes_back(monkeypatch, capsys, tmp_path, folder):
    shards = tmp_path / "shards" / "out-%03d.tar"
    assert command(monkeypatch, "pack", folder, "--shards", shards, "--samples-per-shard", 7) == 0
    files = sources(folder)
    out = capsys.readouterr().out
    assert out == f"{len(files)} samples of {len(files)} files in {-(-len(files) // 7)} shards\n"
    paths = sorted(shards.parent.glob("*.tar"))
    dataset = TarDataset(paths)
    assert Counter(dataset.layout.sizes.tolist()).most_common(1)[0][0] == 7
    assert {f"{sample['__key__']}.py": sample["py"] for sample in dataset} == {
        name: path.read_bytes() for name, path in files.items()
    }
    assert sorted(shards.parent.glob("*.skidx")) == [Path(f"{path}.skidx") for path in paths]


def test_a_number_of_shards_is_filled_evenly_and_the_answer_is_json_on_request(
    monkeypatch, capsys, tmp_path, folder
):
    pattern = f"{tmp_path}/out-{{00..03}}.tar"
    assert command(monkeypatch, "pack", folder, "--shards", pattern, "--json", "--checksums") == 0
    answer = json.loads(capsys.readouterr().out)
    sizes = TarDataset(pattern, checksums=True).layout.sizes.tolist()
    assert answer["shards"] == [f"{tmp_path}/out-{number:02}.tar" for number in range(4)]
    assert sum(sizes) == answer["samples"] == answer["files"] == len(sources(folder))
    assert max(sizes) - min(sizes) <= 1


def test_packing_twice_gives_the_same_bytes_and_needs_a_word(monkeypatch, capsys, tmp_path, folder):
    arguments = ("pack", folder, "--shards", f"{tmp_path}/out-%d.tar")
    assert command(monkeypatch, *arguments) == 0
    first = (tmp_path / "out-0.tar").read_bytes()
    assert command(monkeypatch, *arguments) == 2
    line = f"samplerkit: shards: is there already, got '{tmp_path}/out-0.tar'; "
    line += "give another path, or replace it by overwrite=True\n"
    assert capsys.readouterr().err == line
    assert command(monkeypatch, *arguments, "--overwrite") == 0
    assert (tmp_path / "out-0.tar").read_bytes() == first


def test_files_that_are_left_out_are_named(monkeypatch, capsys, tmp_path):
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.txt", "a.cls", "sub/b.txt", "README", ".hidden.txt"):
        (folder / name).write_text(name)
    assert command(monkeypatch, "pack", folder, "--shards", f"{tmp_path}/out-%d.tar") == 0
    captured = capsys.readouterr()
    assert captured.out == "2 samples of 3 files in 1 shard\n"
    assert captured.err == "left out, for they are hidden or have no extension: .hidden.txt, README\n"
    assert TarDataset(f"{tmp_path}/out-0.tar").keys() == ["a", "sub/b"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("nowhere", "--shards", "out-%d.tar"), "source: is no folder, got 'nowhere'"),
        ((".", "--shards", "out%.tar"), "shards: must have one place for a number, got 'out%.tar'; as in"),
        (
            (".", "--shards", "out.tar", "--bytes-per-shard", "9"),
            "shards: is one tar, and no limit goes with",
        ),
        ((".", "--shards", "out-%d.tar.gz"), "shards: must end in .tar, got 'out-%d.tar.gz'; random access"),
        ((".", "--shards", "out-{0..9}.tar"), "shards: are more than the 1 samples, got 10"),
        ((".", "--shards", "o-{0..1}.tar", "--samples-per-shard", "3"), "shards: says how many there are"),
        (("empty", "--shards", "out-%d.tar"), "source: has no file with an extension, got 'empty'"),
    ],
)
def test_a_mistake_in_packing_is_one_line(monkeypatch, capsys, tmp_path, arguments, line):
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.txt").write_text("a")
    monkeypatch.chdir(tmp_path)
    assert command(monkeypatch, "pack", *arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"samplerkit: {line}")
    assert error.count("\n") == 1
    assert not list(tmp_path.glob("out*"))


def test_indexes_are_written_beside_the_shards_and_used(monkeypatch, capsys, tmp_path, folder):
    pattern = f"{tmp_path}/out-{{0..2}}.tar"
    assert command(monkeypatch, "pack", folder, "--shards", pattern) == 0
    for path in tmp_path.glob("*.skidx"):
        path.unlink()
    capsys.readouterr()
    assert command(monkeypatch, "index", pattern, "--json", "--checksums") == 0
    answer = json.loads(capsys.readouterr().out)
    count = len(sources(folder))
    made = {"shards": 3, "samples": count, "files": count, "flaw_count": 0, "flaws": []}
    assert answer == {**made, "made": 3, "lengths": f"{tmp_path}/lengths.json"}
    assert len(list(tmp_path.glob("*.skidx"))) == 3
    dataset = TarDataset(pattern, checksums=True)
    assert TarDataset(pattern, lengths=tmp_path / "lengths.json").layout == dataset.layout
    # The shards' own indexes serve: the cache gets the joint one only.
    kept = (tmp_path / "cache-home" / "samplerkit" / "tar").iterdir()
    assert [path.suffix for path in kept] == [".catalogue"]


def test_an_index_of_a_damaged_shard_names_the_damage(monkeypatch, capsys, tmp_path, folder):
    assert command(monkeypatch, "pack", folder, "--shards", f"{tmp_path}/out-%d.tar") == 0
    path = tmp_path / "out-0.tar"
    path.write_bytes(path.read_bytes()[:70_000])
    capsys.readouterr()
    assert command(monkeypatch, "index", path) == 1
    assert f"{path}: truncated at byte " in capsys.readouterr().err
    assert command(monkeypatch, "index", tmp_path / "nothing-*.tar") == 2
    assert capsys.readouterr().err.startswith("samplerkit: urls: no file matches")


def test_the_commands_run_in_a_process_of_their_own(tmp_path, folder):
    base = (sys.executable, "-m", "samplerkit.cli.main")
    with OwnSeconds() as own:
        packed = run((*base, "pack", str(folder), "--shards", f"{tmp_path}/out-%d.tar"), tmp_path)
        assert packed.returncode == 0, packed.stderr
        indexed = run((*base, "index", f"{tmp_path}/out-0.tar"), tmp_path)
    assert (indexed.returncode, indexed.stderr) == (0, "")
    assert indexed.stdout == packed.stdout
    assert own.seconds < 80
    assert isinstance(sk.RandomSampler().order(TarDataset(f"{tmp_path}/out-0.tar")), sk.Order)


RECORDS = Path(__file__).parents[1] / "data" / "formats" / "tfrecord"


def test_tfrecords_are_indexed_beside_them_or_into_a_folder(monkeypatch, capsys, tmp_path):
    """As a dataset finds them: the index beside a file serves it, and again the same bytes are written."""
    for name in ("plain.tfrecord", "packed.tfrecord.gz"):
        shutil.copy(RECORDS / name, tmp_path)
    pattern = str(tmp_path / "*.tfrecord*")
    assert command(monkeypatch, "index", "--tfrecord", pattern) == 0
    assert capsys.readouterr().out == "80 records in 2 files\n"
    beside = {path.name: path.read_bytes() for path in tmp_path.glob("*.skidx")}
    assert beside.keys() == {"plain.tfrecord.skidx", "packed.tfrecord.gz.skidx"}
    (tmp_path / "out").mkdir()
    files = [str(tmp_path / name.removesuffix(".skidx")) for name in beside]
    assert command(monkeypatch, "index", "--tfrecord", *files, "--out", tmp_path / "out", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"files": 2, "samples": 80}
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == beside


def test_json_lines_are_indexed_beside_them(monkeypatch, capsys, tmp_path):
    (tmp_path / "a.jsonl").write_text("[1]\n\n[2]\n")
    assert command(monkeypatch, "index", "--jsonl", tmp_path / "a.jsonl") == 0
    assert capsys.readouterr().out == "2 samples in 1 file\n"
    assert (tmp_path / "a.jsonl.skidx").exists()
    assert command(monkeypatch, "index", "--jsonl", tmp_path / "a.jsonl", "--upload") != 0
    assert "is of tar shards, and not of JSON lines" in capsys.readouterr().err


def test_what_is_of_tar_shards_is_refused_for_tfrecords(monkeypatch, capsys, tmp_path):
    path = shutil.copy(RECORDS / "plain.tfrecord", tmp_path)
    assert command(monkeypatch, "index", "--tfrecord", path, "--checksums") != 0
    assert "is of tar shards, and not of TFRecords" in capsys.readouterr().err
