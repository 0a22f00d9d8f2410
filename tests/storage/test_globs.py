"""What a glob pattern means: what Python's glob says, but each file once, whatever links lead to it."""

from __future__ import annotations

import glob
import os
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.globs import matching_files
from tests.storage.crowd import all_done
from tests.storage.files.folders import write_npz

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
    (tmp_path / "broken.npy").symlink_to("nowhere")
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


def test_hard_links_are_files_of_their_own(tmp_path):
    tree(tmp_path)
    os.link(tmp_path / "a.npy", tmp_path / "z.npy")
    assert matching_files(f"{tmp_path}/*.npy") == [f"{tmp_path}/a.npy", f"{tmp_path}/z.npy"]


def test_shards_under_links_are_read_once(tmp_path):
    with sk.TarWriter(f"{tmp_path}/data/%d.tar", samples_per_shard=2) as writer:
        for number in range(6):
            writer.write({"__key__": str(number), "cls": number})
    (tmp_path / "data" / "up").symlink_to(tmp_path)
    (tmp_path / "data" / "twin.tar").symlink_to("0.tar")
    for pattern in (f"{tmp_path}/**/*.tar", f"{tmp_path}/{{data,data/up/data}}/**/*.tar"):
        dataset = sk.TarDataset(pattern, cache=tmp_path / "cache")
        assert dataset.keys()[:6] == list("012345")
        assert len(dataset) == 6 * (1 + ("{" in pattern))  # what braces name is named on purpose


def test_a_config_reads_files_under_links_once(tmp_path):
    write_npz(tmp_path / "data", [2, 3])
    (tmp_path / "data" / "up").symlink_to(tmp_path)
    config = sk.load_config(
        {
            "dataset": {"kind": "files", "files": f"{tmp_path}/**/*.npz", "reader": "npz"},
            "sampler": {"kind": "random"},
        }
    )
    assert len(config.dataset) == 5
