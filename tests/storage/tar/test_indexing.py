"""`samplerkit index`: indexes and lengths next to the shards; existing ones are not made again."""

from __future__ import annotations

import json
import sys
import threading

import pytest

import samplerkit as sk
from samplerkit.cli.main import main
from samplerkit.storage.tar.indexing import index_shards
from tests.storage.remote.server import served
from tests.storage.tar.remote_shards import EACH, NAMES, NUMBERS, PATTERN, SHARDS
from tests.storage.tar.shards import write_tar


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
    assert (stats.num_made, stats.num_flaws, stats.flaws) == (SHARDS, 0, ())
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
        sk.ArgumentValueError,
        match=rf"--lengths: exists already, for other shards, got '{folder}/lengths.json'; use",
    ):
        index_shards(f"{folder}/train-{{03..05}}.tar")
    assert len(index_files(folder)) == 5, "the error comes before the work"
    other = tmp_path / "other.json"
    assert index_shards(f"{folder}/train-{{03..05}}.tar", lengths=str(other)).lengths == str(other)
    assert json.loads(other.read_text())["lengths"] == dict.fromkeys(NAMES[3:6], EACH)
    # A few of the same shards, and more of them, are no other shards.
    write_tar(folder / "train-02.tar", [{"__key__": "one", "cls": 1}], overwrite=True, index=False)
    index_shards(folder / "train-02.tar")
    assert json.loads((folder / "lengths.json").read_text())["lengths"] == {
        **dict.fromkeys(NAMES[:4], EACH),
        "train-02.tar": 1,
    }
    index_shards(f"{folder}/{PATTERN}")
    assert sk.TarDataset(f"{folder}/{PATTERN}", lengths=folder / "lengths.json").layout.sizes.tolist() == [
        1 if number == 2 else EACH for number in range(SHARDS)
    ]


def test_a_folder_that_cannot_be_written_to_is_an_error(folder, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(sk.DatasetError, match=r"file/train-0\d\.tar\.skidx: cannot be written \(.*\); make"):
        index_shards(f"{folder}/{PATTERN}", out=tmp_path / "file")


def test_uploading_to_a_web_server_is_an_error(folder):
    with (
        served(folder) as server,
        pytest.raises(
            sk.DatasetError,
            match=r"train-0\d\.tar\.skidx: cannot be written by HTTP; use --out FOLDER, and upload",
        ),
    ):
        index_shards(f"{server.url}/{PATTERN}", upload=True)


def test_indexes_are_uploaded_next_to_the_shards_in_the_bucket(
    folder, bucket, endpoint, tmp_path, monkeypatch, capsys
):
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
    for name in NAMES:
        bucket.upload_file(f"{folder}/{name}", f"train/{name}")
    urls = f"s3://shards/train/{PATTERN}"
    arguments = ["samplerkit", "index", urls, "--upload", "--json", "--jobs", "2"]
    monkeypatch.setattr(sys, "argv", arguments)

    def indexed():
        with pytest.raises(SystemExit) as end:
            main()
        output, errors = capsys.readouterr()
        assert (end.value.code, errors) == (0, "")
        return json.loads(output)

    others = {"made": SHARDS, "lengths": "s3://shards/train/lengths.json", "flaw_count": 0, "flaws": []}
    assert indexed() == {"shards": SHARDS, "samples": len(NUMBERS), "files": 2 * len(NUMBERS), **others}
    uploaded = {one.key: one.last_modified for one in bucket.objects.all() if not one.key.endswith(".tar")}
    assert sorted(uploaded) == sorted(f"train/{name}" for name in index_names(NAMES))
    # On another machine, whose cache is empty, indexes in the bucket are not made again.
    bucket.Object(f"train/{NAMES[5]}.skidx").delete()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    assert indexed()["made"] == 1
    with sk.TarDataset(
        urls, lengths="s3://shards/train/lengths.json", fetch="ranges", cache=tmp_path / "cache"
    ) as dataset:
        assert dataset.layout.sizes.tolist() == [EACH] * SHARDS
        assert dataset[77]["__key__"] == "00077"
        assert dataset.stats.downloads == 1  # the lengths; of the shards, parts alone
