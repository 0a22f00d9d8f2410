"""What a glob pattern means: what Python's glob says, but each file once, whatever links lead to it."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.names import matching_files
from tests.storage.crowd import all_done
from tests.storage.files.folders import write_npz
from tests.storage.remote.children import Child
from tests.storage.tar.shards import packed

PATTERNS = (
    "**/*.npy",
    "**",
    "**/",
    "a/**",
    "a/**/*.npy",
    "*/**/b/*.npy",
    "**/a/**/*.npy",
    "**/**/c.npy",
    "**/a/c.npy",
    "*/*",
    "[ab]/*.np?",
    "**/[ac].npy",
    "**/.*",
    "./**/*.npy",
    "a//**/*.npy",
    "**.npy",
    "**/none",
    "*.npy",
)


@pytest.mark.parametrize("seed", range(3))
def test_without_links_the_names_and_their_order_are_those_of_pythons_glob(tmp_path, monkeypatch, seed):
    rng = np.random.default_rng(seed)
    folders = ["a", "b", ".hidden", "x[1]", "ä"]
    for _ in range(120):
        path = tmp_path.joinpath(*rng.choice(folders, int(rng.integers(0, 4))))
        path.mkdir(parents=True, exist_ok=True)
        (path / rng.choice(["a.npy", "b.npy", "c.npy", ".h.npy", "note"])).touch()
    monkeypatch.chdir(tmp_path)
    compared = 0
    for pattern in (*PATTERNS, *(f"{glob.escape(str(tmp_path))}/{pattern}" for pattern in PATTERNS)):
        found = {path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)}  # noqa: PTH113, PTH207
        assert matching_files(pattern) == sorted(found, key=os.fsencode), pattern
        compared += len(found)
    assert compared > 300


def tree(folder: Path) -> list[str]:
    """Three files in two folders."""
    for name in ("a.npy", "sub/b.npy", "sub/c.npy"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(folder / name, np.arange(1))
    return [str(folder / name) for name in ("a.npy", "sub/b.npy", "sub/c.npy")]


@pytest.mark.parametrize("pattern", ["**/*.npy", "**/**/*.npy", "*/../**/*.npy"])
def test_links_to_parents_add_nothing(tmp_path, pattern):
    files = tree(tmp_path / "data")
    for name in ("data/up", "data/sub/up", "data/sub/top", "data/sub/again"):
        (tmp_path / name).symlink_to(tmp_path / "data" / ("sub" if name == "data/sub/top" else ""))
    found: list[str] = []
    # Two such links in one folder have more paths than anybody can list.
    all_done(lambda: found.extend(matching_files(f"{tmp_path}/data/{pattern}")))
    if ".." not in pattern:
        assert found == files
    assert len({os.path.realpath(path) for path in found}) == len(found) == 3
    assert len(sk.FileDataset(f"{tmp_path}/data/{pattern}", "npy")) == 3


def test_of_a_linked_twin_the_real_one_is_read(tmp_path):
    files = tree(tmp_path / "data")
    (tmp_path / "alias").symlink_to("data")
    (tmp_path / "data" / "0.npy").symlink_to("sub/b.npy")
    (tmp_path / "data" / "sub" / "0.npy").symlink_to("b.npy")
    assert matching_files(f"{tmp_path}/**/*.npy") == files
    assert matching_files(f"{tmp_path}/*/*.npy") == [f"{tmp_path}/data/0.npy", files[0]]
    assert matching_files(f"{tmp_path}/data/sub/*.npy") == files[1:]


def test_links_that_lead_elsewhere_are_followed_and_the_first_one_counts(tmp_path):
    files = tree(tmp_path / "elsewhere")
    data = tmp_path / "data"
    data.mkdir()
    for name in ("two", "one"):
        (data / name).symlink_to(tmp_path / "elsewhere")
    (data / "z").symlink_to(tmp_path / "elsewhere" / "sub")
    expected = [str(data / "one" / Path(file).relative_to(tmp_path / "elsewhere")) for file in files]
    assert matching_files(f"{data}/**/*.npy") == expected
    assert matching_files(f"{data}/z/*.npy") == [f"{data}/z/b.npy", f"{data}/z/c.npy"]
    assert matching_files(f"{data}/one/**/*.npy") == expected


def tar_files(folder):
    samples = ({"__key__": str(number), "cls": number} for number in range(6))
    packed(f"{folder}/%d.tar", samples, samples_per_shard=2, index=False)
    return lambda names: sk.TarDataset(names, cache=folder / "cache")


def token_files(folder):
    for number in range(3):
        np.save(folder / f"{number}.npy", np.arange(8, dtype=np.uint16))
    return lambda names: sk.TokenDataset(names, 4)


def npz_files(folder):
    write_npz(folder, [2] * 3, "{}.npz")
    return lambda names: sk.FileDataset(names, "npz", progress=False)


@pytest.mark.parametrize(("kind", "write"), [("npz", npz_files), ("npy", token_files), ("tar", tar_files)])
@pytest.mark.parametrize("what", ["dangling link", "link to itself", "pipe"])
def test_a_match_that_cannot_be_read_is_the_error_that_its_name_is(tmp_path, kind, write, what):
    """A dataset of the other two files would be a shorter epoch that nobody notices."""
    opened = write(tmp_path)
    assert len(opened(f"{tmp_path}/?.{kind}")) > 2
    path = tmp_path / f"1.{kind}"
    path.unlink()
    if what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("nowhere" if what == "dangling link" else path.name)
    messages = []
    for names in (f"{tmp_path}/?.{kind}", [f"{tmp_path}/0.{kind}", str(path)]):
        with pytest.raises(sk.DatasetError, match=re.escape(str(path))) as caught:
            len(opened(names))
        messages.append(str(caught.value))
        if what == "pipe":
            assert "no plain file" in messages[-1]
    assert messages[0] == messages[1]


@pytest.mark.parametrize("pattern", ["*/*.npy", "**/*.npy", "*/sub/b.npy", "*/link/*.npy", "link*/**/b.npy"])
def test_a_link_to_a_folder_that_is_missing_is_an_error(tmp_path, pattern):
    """What is not mounted on this machine was a part of the dataset on the other ones."""
    tree(tmp_path / "data")
    folder = tmp_path / "data" if "/link" in pattern else tmp_path
    link = folder / "link"
    link.symlink_to("/nowhere/at/all")
    with pytest.raises(sk.DatasetError, match=rf"^{link}: is a link whose target is missing.*; restore"):
        matching_files(f"{tmp_path}/{pattern}")
    link.unlink()
    link.symlink_to(tmp_path / "data")
    assert matching_files(f"{tmp_path}/{pattern}")


def told_to_nobody(pattern):
    """The error of a pattern in a process that is root no more, whom no rights stop."""
    if os.geteuid() == 0:
        os.seteuid(65534)
    with pytest.raises(sk.DatasetError) as caught:
        matching_files(pattern)
    return str(caught.value)


@pytest.mark.parametrize("pattern", ["{}/*.npy", "{}/**/*.npy", "{}/*/x.npy"])
def test_a_folder_that_nobody_may_list_is_an_error(pattern):
    with TemporaryDirectory() as name:  # every run of pytest that begins closes the folder of all runs
        folder = Path(name)
        tree(folder)
        for parent in folder.parents if os.geteuid() == 0 else ():
            parent.chmod(parent.stat().st_mode | 0o555)
        closed = folder / "sub" if "**" in pattern else folder
        folder.chmod(0o755)
        closed.chmod(0o311)
        told = Child(told_to_nobody, pattern.format(folder)).result()
        closed.chmod(0o700)
    assert told.startswith(f"{closed}: cannot be listed (Permission denied)")


def test_a_folder_that_is_called_like_a_file_is_an_error_and_others_are_passed_over(tmp_path):
    """Spark writes a folder `0.parquet` with the parts in it."""
    tree(tmp_path)
    (tmp_path / "d.npy").mkdir()
    for pattern in ("*.npy", "**/*.npy", "[ad].npy", "d*"):
        with pytest.raises(sk.DatasetError, match=r"d\.npy: is a folder, and matches a pattern for files"):
            matching_files(f"{tmp_path}/{pattern}")
    assert matching_files(f"{tmp_path}/*") == [f"{tmp_path}/a.npy"]
    assert len(matching_files(f"{tmp_path}/**")) == 3


def test_a_file_whose_name_has_signs_of_a_pattern_is_not_another_one_when_it_is_missing(tmp_path):
    np.savez(tmp_path / "1.npz", id=np.arange(2))
    (tmp_path / "[1].npz").symlink_to("nowhere")
    with pytest.raises(sk.DatasetError, match=r"\[1\]\.npz: cannot be counted"):
        len(sk.FileDataset(str(tmp_path / "[1].npz"), "npz", progress=False))


def test_a_folder_given_for_files_is_an_error_with_a_pattern(tmp_path):
    with pytest.raises(sk.ArgumentValueError, match=rf"give its files, as in '{tmp_path}/\*'"):
        sk.ParquetDataset(f"{tmp_path}/")
