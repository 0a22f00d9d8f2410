"""The index: how it is made, where it is kept, when it is used, and that an old one is never used."""

import gzip
import json
import os
import pickle
import threading
from contextlib import ExitStack
from pathlib import Path

import fsspec
import pytest

import samplerkit as sk
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.index import find_or_make as index_module
from samplerkit.storage.tar.index.find_or_make import Cache
from samplerkit.storage.tar.write_indexes import index_shards
from tests.cli.configs import in_json
from tests.storage.checks import assert_refused
from tests.storage.crowd import run_in_threads
from tests.storage.remote.server import served
from tests.storage.tar.remote_shards import EACH, NAMES, NUMBERS, PATTERN, SHARDS
from tests.storage.tar.shards import jpeg_tiles, python_sources, write, write_tar


@pytest.fixture
def scanned(monkeypatch):
    """The names of the archives that are scanned, in order."""
    names = []
    scan = index_module.scan

    def record(descriptor, archive, size):
        names.append(Path(archive).name)
        return scan(descriptor, archive, size)

    monkeypatch.setattr(index_module, "scan", record)
    return names


def write_two(tmp_path):
    paths = [tmp_path / "data" / name for name in ("one.tar", "two.tar")]
    paths[0].parent.mkdir(exist_ok=True)
    write(paths[0], jpeg_tiles())
    write(paths[1], python_sources())
    return paths


def file_names(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_an_index_is_made_once_and_never_among_the_data(tmp_path, cache_home, scanned, monkeypatch):
    paths = write_two(tmp_path)
    first = list(TarDataset(paths))
    assert sorted(scanned) == ["one.tar", "two.tar"]
    assert list(TarDataset(paths)) == first
    assert list(TarDataset(paths[::-1]).in_order([0])) == [first[60]]
    monkeypatch.chdir(tmp_path / "data")
    assert len(TarDataset("one.tar")) == 60  # the same archive by another name
    assert sorted(scanned) == ["one.tar", "two.tar"]
    assert file_names(tmp_path / "data") == ["one.tar", "two.tar"]
    assert len(file_names(cache_home)) > 2
    len(TarDataset(paths, cache=tmp_path / "own"))
    assert sorted(scanned) == sorted(["one.tar", "two.tar"] * 2)
    assert len(file_names(tmp_path / "own")) > 2


def test_an_archive_that_was_written_again_is_indexed_again(tmp_path, cache_home, scanned):
    paths = write_two(tmp_path)
    before = TarDataset(paths)
    fingerprint = before.fingerprint
    write(paths[1], python_sources()[:-2])
    after = TarDataset(paths)
    assert len(after) == len(before) - 1
    assert after.fingerprint != fingerprint
    assert sorted(scanned) == ["one.tar", "two.tar", "two.tar"]
    samples = list(after)
    assert len(list(cache_home.rglob("*.catalogue"))) == 1, "old ones pile up"
    os.utime(paths[0], ns=(0, 12345))
    assert list(TarDataset(paths)) == samples
    assert scanned[3:] == ["one.tar"]


def test_a_cache_that_cannot_be_written_to_leaves_the_index_in_memory(tmp_path, caplog):
    paths = write_two(tmp_path)
    samples = list(TarDataset(paths))
    (tmp_path / "file").write_text("no folder")
    dataset = TarDataset(paths, cache=tmp_path / "file")
    assert list(dataset) == samples
    assert caplog.messages == [f"the index stays in memory: {tmp_path}/file cannot be written to"]
    assert list(pickle.loads(pickle.dumps(dataset))) == samples  # noqa: S301  # our own


def test_each_index_has_a_lock_of_its_own_that_leaves_no_file(tmp_path):
    own = tmp_path / "my" / "own"
    cache = Cache.of(own)
    with ExitStack() as locks:
        for number in range(200):
            locks.enter_context(cache.lock(own / f"{number}.skidx"))
        assert len(file_names(own)) == 200  # though no folder was there before
    assert file_names(own) == []


def test_an_index_is_made_once_by_threads_that_need_it_together(tmp_path, scanned):
    path = write(tmp_path / "one.tar", jpeg_tiles())
    start = threading.Barrier(8)

    def use():
        start.wait(30)
        assert len(TarDataset(path, cache=tmp_path / "cache", progress=False)) == 60

    run_in_threads(*[use] * 8)
    assert scanned == ["one.tar"]
    assert not list(tmp_path.rglob("*.lock"))


def test_a_lock_that_may_not_be_deleted_stays(tmp_path, monkeypatch):
    def refuse(path, **_):
        raise PermissionError(1, "not permitted", path)

    monkeypatch.setattr(Path, "unlink", refuse)
    with Cache.of(tmp_path).lock(tmp_path / "a.skidx"):
        pass
    assert file_names(tmp_path) == ["a.lock"]


@pytest.mark.usefixtures("no_locks")
def test_indexes_are_made_on_a_filesystem_without_locks(tmp_path, cache_home):
    assert len(TarDataset(write_two(tmp_path))) > 60
    assert len(list(cache_home.rglob("*.skidx"))) == 2


def test_the_fingerprint_depends_on_the_samples_and_not_on_the_path(tmp_path):
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub" / "one.tar", jpeg_tiles(), "tarfile gnu")
    ours = TarDataset(write(tmp_path / "sub" / "two.tar", jpeg_tiles(), "tar pax")).fingerprint
    assert TarDataset(tmp_path / "sub" / "one.tar").fingerprint == ours
    assert TarDataset(write(tmp_path / "sub" / "two.tar.gz", jpeg_tiles())).fingerprint == ours
    changed = [*jpeg_tiles()]
    changed[1] = (changed[1][0], b"7")
    path = write(tmp_path / "sub" / "three.tar", changed)
    assert TarDataset(path).fingerprint == ours
    checked = [TarDataset(one, checksums=True).fingerprint for one in (path, tmp_path / "sub" / "one.tar")]
    assert len({ours, *checked}) == 3


def test_offsets_beyond_4_gib_are_right(tmp_path):
    path = tmp_path / "big.tar"
    one = write(
        tmp_path / "one.tar", [("a.bin", b"x" * 100), ("a.cls", b"1"), ("b.cls", b"2")], "tarfile gnu"
    )
    data = bytearray(one.read_bytes())
    hole = 5 << 30
    data[124:136] = b"%011o\0" % hole
    data[148:156] = b"%06o\0 " % (sum(data[:148]) + sum(data[156:512]) + 8 * 32)
    with path.open("wb") as file:
        file.write(data[:512])
        file.seek(512 + hole)  # a hole: the file system keeps no 5 GiB
        file.write(data[1024:])
    dataset = TarDataset(path)
    assert dataset.keys() == ["a", "b"]
    assert dataset[1]["cls"] == b"2"
    assert int(dataset._source.contents.arrays["size"][0]) == hole


CHANGED = "was changed while it was in use"
CHANGES = {
    "longer": (lambda size: size + 512, {}, CHANGED),
    "shorter": (lambda size: size - 512, {}, CHANGED),
    "written again": (lambda size: size, {}, CHANGED),
    "cut": (lambda size: size // 2, {"checksums": True}, r"became shorter than \d+ bytes while it was read"),
}


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
@pytest.mark.parametrize("change", CHANGES)
def test_an_archive_that_changes_while_its_index_is_made_is_an_error(tmp_path, monkeypatch, name, change):
    size_after, options, problem = CHANGES[change]
    path = write(tmp_path / "plain.tar", jpeg_tiles()).rename(tmp_path / name)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    scan = index_module.scan

    def scan_and_change(descriptor, archive, size):
        members = scan(descriptor, archive, size)
        with Path(f"/proc/self/fd/{descriptor}").resolve().open("r+b") as file:  # a gzip archive's copy
            file.truncate(size_after(size))
            os.utime(file.fileno(), ns=(1, 1))
        return members

    monkeypatch.setattr(index_module, "scan", scan_and_change)
    dataset = TarDataset(path, cache=tmp_path / "cache", **options)
    if name.endswith(".gz") and change == "written again":
        assert len(dataset) > 0  # of a copy, which belongs to its cache, only the size is compared
        return
    assert_refused(dataset, problem)


def index_files(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".tar"))


def index_names(names):
    return sorted([*(f"{name}.skidx" for name in names), "lengths.json"])


def test_indexes_and_lengths_are_those_of_the_dataset(folder, tmp_path):
    reports = []
    stats = index_shards(
        f"{folder}/{PATTERN}", threads=4, checksums=True, progress=lambda *args: reports.append(args)
    )
    assert (stats.num_shards, stats.num_samples, stats.num_files) == (SHARDS, len(NUMBERS), 2 * len(NUMBERS))
    assert (stats.num_made, stats.flaws) == (SHARDS, ())
    assert reports == [("indexing shard", done, SHARDS) for done in range(SHARDS + 1)]
    assert index_files(folder) == index_names(NAMES)
    assert stats.lengths == f"{folder}/lengths.json"
    dataset = sk.TarDataset(f"{folder}/{PATTERN}", cache=tmp_path / "cache", checksums=True)
    dataset.save_lengths(tmp_path / "saved.json")
    assert (tmp_path / "saved.json").read_bytes() == (folder / "lengths.json").read_bytes()
    assert not list((tmp_path / "cache").glob("*.skidx")), "the indexes next to the shards were enough"


def test_only_missing_and_wrong_indexes_are_made(folder):
    pattern = f"{folder}/{PATTERN}"
    index_shards(pattern)
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.skidx")}
    (folder / "train-01.tar.skidx").unlink()
    (folder / "train-02.tar.skidx").write_bytes(b"damaged")
    (folder / "train-03.tar.skidx").write_bytes((folder / "train-04.tar.skidx").read_bytes())
    with (folder / "train-05.tar").open("ab") as file:
        file.write(bytes(512))
    assert index_shards(pattern).num_made == 4
    after = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.skidx")}
    assert {name for name in after if after[name] != before[name]} == {
        f"train-0{number}.tar.skidx" for number in (1, 2, 3, 5)
    }
    assert index_shards(pattern).num_made == 0
    assert index_shards(pattern, checksums=True).num_made == SHARDS


def test_indexes_of_shards_with_one_name_are_refused_in_one_folder(folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    first = NAMES[0]
    (other / first).write_bytes((folder / first).read_bytes())
    with pytest.raises(sk.ArgumentValueError, match=rf"--out: would have indexes .*{first}\.skidx"):
        index_shards([f"{folder}/{first}", f"{other}/{first}"], out=tmp_path / "out")


def test_shards_are_fetched_at_the_same_time(folder, tmp_path):
    arrived = threading.Barrier(4, timeout=30)

    def wait(request):
        # No request is answered before four have arrived.
        if request.method == "GET" and request.part is None and request.name.endswith(".tar"):
            arrived.wait()

    with served(folder, on_request=wait) as server:
        stats = index_shards(f"{server.url}/{PATTERN}", out=tmp_path / "out", threads=4)
        assert stats.num_made == SHARDS
        assert server.downloads() == NAMES
        server.requests.clear()
        assert index_shards(f"{server.url}/{PATTERN}", out=tmp_path / "out").num_made == 0
        assert server.downloads() == []
        # Where only the folder is missing, the user's cache still has them.
        assert index_shards(f"{server.url}/{PATTERN}", out=tmp_path / "again").num_made == SHARDS
        assert server.downloads() == []
    assert index_files(tmp_path / "out") == index_files(tmp_path / "again") == index_names(NAMES)


def test_lengths_of_other_shards_are_not_overwritten(folder, tmp_path):
    index_shards(f"{folder}/train-{{00..03}}.tar")
    with pytest.raises(
        sk.ArgumentValueError, match=rf"--lengths: has other shards, got '{folder}/lengths.json'; use"
    ):
        index_shards(f"{folder}/train-{{03..05}}.tar")
    assert len(index_files(folder)) == 5, "the error comes before the work"
    other = tmp_path / "other.json"
    assert index_shards(f"{folder}/train-{{03..05}}.tar", lengths=str(other)).lengths == str(other)
    assert json.loads(other.read_text())["lengths"] == dict.fromkeys(NAMES[3:6], EACH)
    # More of the same shards are no other shards.
    write_tar(folder / "train-02.tar", [{"__key__": "one", "cls": 1}], overwrite=True, index=False)
    index_shards(f"{folder}/{PATTERN}")
    assert sk.TarDataset(f"{folder}/{PATTERN}", lengths=folder / "lengths.json").layout.sizes.tolist() == [
        1 if number == 2 else EACH for number in range(SHARDS)
    ]


def test_lengths_are_written_into_the_common_folder_however_it_is_spelled(folder):
    (folder / "other").mkdir()
    write_tar(folder / "other" / "0.tar", [{"__key__": "one", "cls": 1}], index=False)
    paths = [f"{folder}/other/../train-00.tar", f"{folder}/other/0.tar"]
    assert index_shards(paths).lengths == f"{folder}/lengths.json"
    assert sk.TarDataset(paths, lengths=folder / "lengths.json").layout.sizes.tolist() == [EACH, 1]


@pytest.mark.parametrize("cache", ["s3://bucket/cache", ""])
def test_a_cache_is_a_folder_of_this_machine(folder, tmp_path, monkeypatch, cache):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        sk.ArgumentValueError, match=f"cache: must be a folder of this machine, got '{cache}'"
    ):
        sk.TarDataset(f"{folder}/train-00.tar", cache=cache)


def test_a_folder_that_cannot_be_written_to_is_an_error(folder, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(sk.DatasetError, match=r"file/train-0\d\.tar\.skidx: cannot be written \(.*\); make"):
        index_shards(f"{folder}/{PATTERN}", out=tmp_path / "file")


def test_an_index_of_a_replaced_shard_is_replaced_without_a_warning(tmp_path):
    """A `TarDataset` would warn that it is not used, and say how to make it again."""
    files = fsspec.filesystem("memory")
    for count in (30, 60):
        files.pipe("/replaced/a.tar", write(tmp_path / "a.tar", jpeg_tiles()[: 3 * count]).read_bytes())
        stats = index_shards("memory://replaced/a.tar", upload=True)
        assert (stats.num_made, stats.num_samples) == (1, count)


def test_uploading_to_a_web_server_is_an_error(folder):
    with (
        served(folder) as server,
        pytest.raises(
            sk.DatasetError,
            match=r"train-0\d\.tar\.skidx: cannot be written by HTTP; use --out FOLDER, and upload",
        ),
    ):
        # One attempt: the other threads end at once when the server has gone.
        index_shards(f"{server.url}/{PATTERN}", upload=True, remote=sk.RemoteOptions(attempts=1))


def test_indexes_are_uploaded_next_to_the_shards_in_the_bucket(
    folder, bucket, endpoint, tmp_path, monkeypatch, command
):
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
    for name in NAMES:
        bucket.upload_file(f"{folder}/{name}", f"train/{name}")
    urls = f"s3://shards/train/{PATTERN}"
    arguments = ("index", urls, "--upload", "--jobs", 2)
    others = {"made": SHARDS, "lengths": "s3://shards/train/lengths.json", "flaw_count": 0, "flaws": []}
    expected = {"shards": SHARDS, "samples": len(NUMBERS), "files": 2 * len(NUMBERS), **others}
    assert in_json(command, *arguments) == (0, expected)
    uploaded = {one.key: one.last_modified for one in bucket.objects.all() if not one.key.endswith(".tar")}
    assert sorted(uploaded) == sorted(f"train/{name}" for name in index_names(NAMES))
    # On another machine, whose cache is empty, indexes in the bucket are not made again.
    bucket.Object(f"train/{NAMES[5]}.skidx").delete()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    assert in_json(command, *arguments) == (0, {**expected, "made": 1})
    with sk.TarDataset(
        urls, lengths="s3://shards/train/lengths.json", fetch="ranges", cache=tmp_path / "cache"
    ) as dataset:
        assert dataset.layout.sizes.tolist() == [EACH] * SHARDS
        assert dataset[77]["__key__"] == "00077"
        assert dataset.stats.downloads == 1  # the lengths; of the shards, parts alone
