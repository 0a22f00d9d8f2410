"""Files that are written completely or not at all; patterns that name files."""

import errno
import glob
import os
import re
import stat
import time
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.atomic import atomic, is_the_file, try_lock, unlock
from samplerkit.storage.lengths import save_lengths
from samplerkit.storage.names import matching_files
from tests.storage.crowd import Child, run_in_threads
from tests.storage.files.folders import write_npz
from tests.storage.tar.shards import write_tar
from tests.waiting import wait_until


def file_names(folder):
    return sorted(path.name for path in folder.iterdir())


def write_atomically(path, data):
    with atomic(path) as file:
        file.write(data)


def write_half_and_hang(path):
    with atomic(path) as file:
        file.write(b"half")
        file.flush()
        time.sleep(60)


def test_a_file_gets_its_name_once_it_is_complete(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with atomic(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    with pytest.raises(KeyError), atomic(path) as file:
        file.write(b"half")
        raise KeyError
    assert (path.read_bytes(), file_names(tmp_path)) == (b"new", ["a"])


def test_a_lock_is_released_though_a_process_that_was_forked_meanwhile_has_it_too(tmp_path):
    held = try_lock(tmp_path / "a", is_exclusive=True)
    child = Child(time.sleep, 60)
    assert try_lock(tmp_path / "a", is_exclusive=True) is None
    unlock(held)
    unlock(try_lock(tmp_path / "a", is_exclusive=True))
    child.kill()


def test_the_partial_file_of_a_killed_writer_is_reused_by_the_next_one(tmp_path):
    path = tmp_path / "a"
    for _ in range(3):
        child = Child(write_half_and_hang, path)
        wait_until(lambda: any(part.stat().st_size for part in tmp_path.glob(".a*")))
        child.kill()
        assert len(file_names(tmp_path)) == 1
    write_atomically(path, b"")
    assert (path.read_bytes(), file_names(tmp_path)) == (b"", ["a"])


def test_many_writers_of_one_file_leave_one_whole_file(tmp_path):
    path = tmp_path / "a"

    def write_ten_times(number):
        for _ in range(10):
            write_atomically(path, bytes([number]) * 100_000)

    for child in [Child(write_ten_times, number) for number in range(4)]:
        child.result()
    data = path.read_bytes()
    assert data == data[:1] * 100_000
    assert file_names(tmp_path) == ["a"]


@pytest.mark.parametrize("place", ["symlink_to", "hardlink_to", "mkdir", "fifo"])
def test_a_link_in_place_of_the_partial_file_is_not_followed(tmp_path, place):
    (tmp_path / "precious").write_bytes(b"precious")
    part = tmp_path / ".a.samplerkit-part"
    if place == "fifo":
        os.mkfifo(part)
    else:
        getattr(part, place)(*[tmp_path / "precious"] * place.endswith("_to"))
    write_atomically(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert not (tmp_path / "a").is_symlink()
    assert (tmp_path / "precious").read_bytes() == b"precious"


def write_archive(folder):
    return Path(*write_tar(folder / "a.tar", [{"__key__": "a", "txt": "text"}], index=False))


def write_lengths(folder):
    save_lengths(folder / "a.json", ["a"], np.array([1]))
    return folder / "a.json"


@pytest.mark.parametrize("write", [write_archive, write_lengths])
def test_data_is_synced_before_the_file_gets_its_name_and_the_folder_after(tmp_path, monkeypatch, write):
    synced, sync = [], os.fsync

    def record(descriptor):
        sync(descriptor)
        name = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((name, [path.name for path in tmp_path.glob("a*")]))

    monkeypatch.setattr(os, "fsync", record)
    path = write(tmp_path)
    (first, before), (second, after) = synced
    assert first.name.startswith(f".{path.name}")
    assert before == []
    assert (second, after) == (tmp_path, [path.name])


def test_a_replaced_or_removed_file_is_not_the_open_one(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"")
    with path.open("rb") as file:
        assert is_the_file(file.fileno(), path)
        (tmp_path / "b").write_bytes(b"")
        (tmp_path / "b").replace(path)
        assert not is_the_file(file.fileno(), path)
        path.unlink()
        assert not is_the_file(file.fileno(), path)


@pytest.mark.parametrize(("number", "is_error"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_folder_that_cannot_be_synced_is_an_error_unless_its_filesystem_does_not_support_it(
    tmp_path, monkeypatch, number, is_error
):
    fsync = os.fsync

    def refuses(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuses)
    with pytest.raises(OSError, match="Input") if is_error else nullcontext():
        write_atomically(tmp_path / "a", b"all")
    assert (tmp_path / "a").read_bytes() == b"all"


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
        expected = {path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)}  # noqa: PTH113, PTH207
        assert matching_files(pattern) == sorted(expected, key=os.fsencode), pattern
        compared += len(expected)
    assert compared > 300


def write_tree(folder: Path) -> list[str]:
    """Three files in two folders."""
    for name in ("a.npy", "sub/b.npy", "sub/c.npy"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(folder / name, np.arange(1))
    return [str(folder / name) for name in ("a.npy", "sub/b.npy", "sub/c.npy")]


@pytest.mark.parametrize("pattern", ["**/*.npy", "**/**/*.npy", "*/../**/*.npy"])
def test_links_to_parents_add_nothing(tmp_path, pattern):
    files = write_tree(tmp_path / "data")
    for name in ("data/up", "data/sub/up", "data/sub/top", "data/sub/again"):
        (tmp_path / name).symlink_to(tmp_path / "data" / ("sub" if name == "data/sub/top" else ""))
    matches: list[str] = []
    # Two such links in one folder make more paths than can be listed.
    run_in_threads(lambda: matches.extend(matching_files(f"{tmp_path}/data/{pattern}")))
    if ".." not in pattern:
        assert matches == files
    assert len({os.path.realpath(path) for path in matches}) == len(matches) == 3
    assert len(sk.FileDataset(f"{tmp_path}/data/{pattern}", "npy")) == 3


def test_matches_through_links_are_read_by_the_real_path(tmp_path):
    files = write_tree(tmp_path / "data")
    (tmp_path / "alias").symlink_to("data")
    (tmp_path / "data" / "0.npy").symlink_to("sub/b.npy")
    (tmp_path / "data" / "sub" / "0.npy").symlink_to("b.npy")
    assert matching_files(f"{tmp_path}/**/*.npy") == files
    assert matching_files(f"{tmp_path}/*/*.npy") == [f"{tmp_path}/data/0.npy", files[0]]
    assert matching_files(f"{tmp_path}/data/sub/*.npy") == files[1:]


def test_links_to_other_folders_are_followed_and_the_first_path_is_kept(tmp_path):
    files = write_tree(tmp_path / "elsewhere")
    data = tmp_path / "data"
    data.mkdir()
    for name in ("two", "one"):
        (data / name).symlink_to(tmp_path / "elsewhere")
    (data / "z").symlink_to(tmp_path / "elsewhere" / "sub")
    expected = [str(data / "one" / Path(file).relative_to(tmp_path / "elsewhere")) for file in files]
    assert matching_files(f"{data}/**/*.npy") == expected
    assert matching_files(f"{data}/z/*.npy") == [f"{data}/z/b.npy", f"{data}/z/c.npy"]
    assert matching_files(f"{data}/one/**/*.npy") == expected


def write_tars(folder):
    samples = ({"__key__": str(number), "cls": number} for number in range(6))
    write_tar(f"{folder}/%d.tar", samples, samples_per_shard=2, index=False)
    return lambda names: sk.TarDataset(names, cache=folder / "cache")


def write_tokens(folder):
    for number in range(3):
        np.save(folder / f"{number}.npy", np.arange(8, dtype=np.uint16))
    return lambda names: sk.TokenDataset(names, 4)


def write_npzs(folder):
    write_npz(folder, [2] * 3, "{}.npz")
    return lambda names: sk.FileDataset(names, "npz", progress=False)


@pytest.mark.parametrize(("kind", "write"), [("npz", write_npzs), ("npy", write_tokens), ("tar", write_tars)])
@pytest.mark.parametrize("fault", ["dangling link", "link to itself", "pipe"])
def test_an_unreadable_match_is_the_same_error_as_its_path_in_a_list(tmp_path, kind, write, fault):
    """A dataset of the other two files would silently be a shorter epoch."""
    open_dataset = write(tmp_path)
    assert len(open_dataset(f"{tmp_path}/?.{kind}")) > 2
    path = tmp_path / f"1.{kind}"
    path.unlink()
    if fault == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("nowhere" if fault == "dangling link" else path.name)
    messages = []
    for names in (f"{tmp_path}/?.{kind}", [f"{tmp_path}/0.{kind}", str(path)]):
        with pytest.raises(sk.DatasetError, match=re.escape(str(path))) as caught:
            len(open_dataset(names))
        messages.append(str(caught.value))
        if fault == "pipe":
            assert "not a regular file" in messages[-1]
    assert messages[0] == messages[1]


@pytest.mark.parametrize("pattern", ["*/*.npy", "**/*.npy", "*/sub/b.npy", "*/link/*.npy", "link*/**/b.npy"])
def test_a_link_to_a_folder_that_is_missing_is_an_error(tmp_path, pattern):
    """It may be a part of the dataset on other machines, and only not mounted on this one."""
    write_tree(tmp_path / "data")
    folder = tmp_path / "data" if "/link" in pattern else tmp_path
    link = folder / "link"
    link.symlink_to("/nowhere/at/all")
    with pytest.raises(sk.DatasetError, match=rf"^{link}: is a link whose target is missing.*; restore"):
        matching_files(f"{tmp_path}/{pattern}")
    link.unlink()
    link.symlink_to(tmp_path / "data")
    assert matching_files(f"{tmp_path}/{pattern}")


def error_without_permission(pattern):
    """Returns the error of a pattern in a process that is not root: root may list any folder."""
    if os.geteuid() == 0:
        os.seteuid(65534)
    with pytest.raises(sk.DatasetError) as caught:
        matching_files(pattern)
    return str(caught.value)


@pytest.mark.parametrize("pattern", ["{}/*.npy", "{}/**/*.npy", "{}/*/x.npy"])
def test_a_folder_without_permission_to_list_it_is_an_error(pattern):
    with TemporaryDirectory() as name:  # each start of pytest restricts the folder of all runs
        folder = Path(name)
        write_tree(folder)
        for parent in folder.parents if os.geteuid() == 0 else ():
            parent.chmod(parent.stat().st_mode | 0o555)
        closed = folder / "sub" if "**" in pattern else folder
        folder.chmod(0o755)
        closed.chmod(0o311)
        message = Child(error_without_permission, pattern.format(folder)).result()
        closed.chmod(0o700)
    assert message.startswith(f"{closed}: cannot be listed (Permission denied)")


def test_a_folder_named_like_a_file_is_an_error_and_other_folders_are_ignored(tmp_path):
    """Spark writes a folder `0.parquet` with the parts in it."""
    write_tree(tmp_path)
    (tmp_path / "d.npy").mkdir()
    for pattern in ("*.npy", "**/*.npy", "[ad].npy", "d*"):
        with pytest.raises(sk.DatasetError, match=r"d\.npy: is a folder, and matches a pattern for files"):
            matching_files(f"{tmp_path}/{pattern}")
    assert matching_files(f"{tmp_path}/*") == [f"{tmp_path}/a.npy"]
    assert len(matching_files(f"{tmp_path}/**")) == 3


def test_a_missing_file_whose_name_looks_like_a_pattern_matches_no_other_file(tmp_path):
    np.savez(tmp_path / "1.npz", id=np.arange(2))
    (tmp_path / "[1].npz").symlink_to("nowhere")
    with pytest.raises(sk.DatasetError, match=r"\[1\]\.npz: cannot be counted"):
        len(sk.FileDataset(str(tmp_path / "[1].npz"), "npz", progress=False))


def test_a_folder_given_for_files_is_an_error_with_a_pattern(tmp_path):
    with pytest.raises(sk.ArgumentValueError, match=rf"give its files, as in '{tmp_path}/\*'"):
        sk.ParquetDataset(f"{tmp_path}/")
