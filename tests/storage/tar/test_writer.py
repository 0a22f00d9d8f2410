"""The writer, and packing: whole shards or none, the same bytes everywhere, also on a full disk."""

import random
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.tar import pack
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.pack import pack_folder
from samplerkit.storage.tar.writer import TarWriter
from tests.cli.processes import lines_of, run_example
from tests.storage.tar.shards import read_by_webdataset, write_tar


def test_values_are_written_so_that_decode_gives_them_back(tmp_path):
    sample = {
        "__key__": "a/b",
        "__url__": "left out",
        "txt": "text é",
        "cls": 7,
        "index": np.int64(12),
        "json": {"x": [1, None]},
        "meta.json": [],
        "txt.gz": "more text é",
        "meta.json.gz": [1],
        "cls.gz": 7,
        "npy": np.arange(6).reshape(2, 3),
        "npz": {"x": np.ones(3), "y": np.zeros((2, 2))},
        "bin": bytearray(b"\0\1"),
        "raw": memoryview(b"\2"),
    }
    (path,) = write_tar(f"{tmp_path}/x-%d.tar", [sample])
    read = TarDataset(path).decode()[0]
    assert read.pop("__url__") == path
    sample.pop("__url__")
    assert list(read) == list(sample)
    for arrays in (sample, read):
        arrays["npy"] = arrays["npy"].tolist()
        arrays["npz"] = {name: array.tolist() for name, array in arrays["npz"].items()}
    # As Python compares them: 12 equals np.int64(12), and bytes equal a bytearray.
    assert read == {**sample, "raw": b"\2"}


def test_a_shard_that_remains_of_more_is_warned_of(tmp_path, caplog):
    samples = [{"__key__": str(number), "bin": b"x"} for number in range(9)]
    write_tar(f"{tmp_path}/x-%d.tar", samples, samples_per_shard=2)
    assert not caplog.messages
    write_tar(f"{tmp_path}/x-%d.tar", samples, samples_per_shard=3, overwrite=True)
    (message,) = caplog.messages
    assert message.startswith(f"{tmp_path}/x-3.tar: exists already, after the 3 shards")


def test_one_tar_without_samples_is_an_empty_tar(tmp_path):
    assert write_tar(f"{tmp_path}/none.tar", []) == [f"{tmp_path}/none.tar"]
    assert len(TarDataset(pack.pack_shard([], f"{tmp_path}/task.tar"))) == 0
    assert read_by_webdataset([tmp_path / "none.tar"]) == []
    assert write_tar(f"{tmp_path}/x-%d.tar", []) == []


def test_a_closed_writer_refuses_samples_and_writes_no_more_files(tmp_path):
    writer = sk.TarWriter(tmp_path / "a.tar")
    writer.write({"__key__": "a", "txt": "1"})
    writer.close()
    dropped = sk.TarWriter(tmp_path / "b.tar")
    dropped.write({"__key__": "a", "txt": "1"})
    dropped.abort()
    for each in (writer, dropped):
        with pytest.raises(sk.DatasetError, match=r"[ab]\.tar: was closed; make a new writer"):
            each.write({"__key__": "b", "txt": "2"})
        with pytest.raises(sk.DatasetError, match="was closed"):
            each.next_shard()
        each.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "a.tar.skidx"]
    assert sk.TarDataset(tmp_path / "a.tar", cache=tmp_path / "cache").keys() == ["a"]


def test_a_new_shard_starts_before_one_would_exceed_its_bytes(tmp_path):
    samples = [{"__key__": str(number), "bin": bytes(1500)} for number in range(40)]
    samples += [{"__key__": "large", "bin": bytes(100_000)}, {"__key__": "last", "bin": b""}]
    paths = write_tar(f"{tmp_path}/x-%d.tar", samples, bytes_per_shard=20_480)
    sizes = [Path(path).stat().st_size for path in paths]
    assert [size for size in sizes if size > 20_480] == [102_400]
    assert TarDataset(paths).layout.sizes.tolist() == [9, 9, 9, 9, 4, 1, 1]


@pytest.mark.parametrize("key", ["{}", "é{}"], ids=["plain", "with a header of their own for the name"])
def test_the_end_marker_of_a_shard_counts_in_its_bytes(tmp_path, key):
    samples = ({"__key__": key.format(number), "bin": bytes(1500)} for number in range(30))
    paths = write_tar(f"{tmp_path}/x-%d.tar", samples, bytes_per_shard=25_000)
    assert {Path(path).stat().st_size for path in paths[:-1]} == {20_480}


def test_shards_may_be_named_one_by_one(tmp_path):
    with TarWriter(f"{tmp_path}/{{train,val}}.tar", samples_per_shard=3) as writer:
        for number in range(5):
            writer.write({"__key__": str(number), "cls": number})
        writer.next_shard()
        with pytest.raises(sk.ArgumentRangeError, match="names 2 shards, and more are needed"):
            writer.write({"__key__": "5", "cls": 5})
    assert [path.rsplit("/")[-1] for path in writer.paths] == ["train.tar", "val.tar"]
    assert TarDataset(writer.paths).layout.sizes.tolist() == [3, 2]


def test_a_path_without_a_number_is_one_tar_of_any_size(tmp_path):
    with TarWriter(tmp_path / "deep" / "one.tar") as writer:
        for number in range(30):
            writer.write({"__key__": f"{number:02}", "cls": number})
        assert not (tmp_path / "deep" / "one.tar").exists()
    assert writer.paths == [f"{tmp_path}/deep/one.tar"]
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["one.tar", "one.tar.skidx"]
    assert [sample["cls"] for sample in TarDataset(writer.paths).decode()] == list(range(30))
    with pytest.raises(sk.ArgumentValueError, match=r"shards: exists already, got '.*/one\.tar'"):
        TarWriter(tmp_path / "deep" / "one.tar").write({"__key__": "0", "cls": 0})


def test_members_have_no_owner_and_no_time(tmp_path):
    (path,) = write_tar(f"{tmp_path}/x-%d.tar", [{"__key__": "a", "txt": "fine"}], index=False)
    with tarfile.open(path) as archive:
        (member,) = archive.getmembers()
    assert (member.mtime, member.uid, member.uname) == (0, 0, "")
    assert not list(tmp_path.glob("*.skidx"))


def test_a_sample_that_is_refused_leaves_no_trace(tmp_path):
    with TarWriter(f"{tmp_path}/x-%d.tar") as writer:
        writer.write({"__key__": "first", "txt": "x"})
        for sample, text in (
            ({"__key__": "first", "txt": "y"}, "__key__: exists already, got 'first'; keys differ"),
            (
                {"__key__": "a", "txt": "fine", "jpg": 3},
                "jpg: cannot be encoded .there is no encoding for such a value., got 3",
            ),
            *(
                ({"__key__": key, "txt": "y"}, "__key__: cannot be the name of a file below a folder")
                for key in ("a/", "a\nb", "../a")
            ),
        ):
            with pytest.raises(sk.SamplerkitError, match=text):
                writer.write(sample)
    assert [s["__key__"] for s in read_by_webdataset([tmp_path / "x-0.tar"])] == ["first"]


def test_a_key_does_not_continue_in_the_next_shard(tmp_path):
    with TarWriter(f"{tmp_path}/x-%d.tar", samples_per_shard=1) as writer:
        writer.write({"__key__": "a", "txt": "x"})
        with pytest.raises(sk.ArgumentValueError, match="__key__: exists already, got 'a'"):
            writer.write({"__key__": "a", "cls": 1})


@pytest.fixture
def packed(tmp_path):
    """Packs files of a folder that hold a text."""

    def pack_files(names, shards, text="x"):
        for name in names:
            (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "source" / name).write_text(text)
        return pack_folder(tmp_path / "source", f"{tmp_path}/{shards}")

    return pack_files


def test_files_that_readers_ignore_are_left_out_and_no_others(packed):
    included = ["__/a.txt", "___/b.txt", "__notes__.txt", "x/__notes__/c.txt", "y/d.txt"]
    left_out = ["README", "__notes__/e.txt", "y/.hidden.txt"]
    result = packed([*included, *left_out], "out-%d.tar")
    assert result.left_out == tuple(left_out)
    assert TarDataset(result.paths).keys() == [name.removesuffix(".txt") for name in included]


def test_files_that_would_replace_each_other_and_shards_without_samples_are_refused(tmp_path):
    for name in ("a.TXT", "b.txt"):
        (tmp_path / name).write_text("x")
    with pytest.raises(sk.ArgumentRangeError, match="shards: are more than the 2 samples, got 3"):
        pack_folder(tmp_path, f"{tmp_path}/out-{{0..2}}.tar")
    with pytest.raises(sk.ArgumentTypeError, match="source: must be a path, got 5"):
        pack_folder(5, f"{tmp_path}/out-%d.tar")
    with pytest.raises(sk.ArgumentValueError, match="shards: must have one place for a number"):
        pack_folder(tmp_path, f"{tmp_path}/out-%999999999999d.tar")
    with pytest.raises(sk.ArgumentRangeError, match="bytes_per_shard: must be positive, got 0"):
        pack_folder(tmp_path, f"{tmp_path}/out-%d.tar", bytes_per_shard=0)
    (tmp_path / "a.txt").write_text("y")
    with pytest.raises(sk.DatasetError, match="two files that differ in upper and lower case only, got 'a'"):
        pack_folder(tmp_path, f"{tmp_path}/out-%d.tar")
    with pytest.raises(sk.DatasetError, match=r"is not a folder, got 's3://host/images'"):
        pack_folder("s3://me:5f3a@host/images", f"{tmp_path}/out-%d.tar")


@pytest.mark.parametrize(("samples", "sizes"), [(3, [1, 1, 1]), (10, [3, 3, 4]), (12, [4, 4, 4])])
def test_shards_of_a_given_number_have_equal_sizes(packed, samples, sizes):
    result = packed([f"{number:02}.txt" for number in range(samples)], "out-{0..2}.tar")
    assert TarDataset(result.paths).layout.sizes.tolist() == sizes


@pytest.mark.parametrize(("shards", "number"), [("out-%d.tar", 6), ("out-{0..1}.tar", 2)])
def test_shards_are_limited_in_bytes_unless_their_number_is_given(packed, monkeypatch, shards, number):
    monkeypatch.setattr(pack, "DEFAULT_BYTES", 4096)
    assert len(packed([f"{name}.txt" for name in range(6)], shards, "x" * 2000).paths) == number


def test_an_array_is_encoded_only_in_a_field_of_arrays(tmp_path):
    with TarWriter(tmp_path / "a.tar") as writer:
        with pytest.raises(sk.ArgumentTypeError, match=r"bin: cannot be encoded \(there is no encoding"):
            writer.write({"__key__": "a", "bin": np.arange(3)})
        writer.write({"__key__": "a", "npy": np.arange(3)})


DATA = random.Random(5).randbytes(300_000)
"""A tenth of a shard: 8 MiB hold two shards of ten and a part of the third one."""


def write_until_full(writer):
    for number in range(60):
        writer.write({"__key__": f"{number:02}", "bin": DATA})


def file_names(disk):
    return sorted(path.name for path in disk.iterdir())


@pytest.mark.parametrize("name", ["x-%d.tar", "x-{0..5}.tar"])
def test_a_full_disk_is_an_error_and_leaves_whole_shards_only(small_disk, name):
    writer = TarWriter(f"{small_disk}/{name}", samples_per_shard=10)
    with (
        pytest.raises(
            sk.DatasetError,
            match=rf"^{small_disk}/x-2\.tar: cannot be written \(No space left on device\); make room",
        ) as caught,
        writer,
    ):
        write_until_full(writer)
    assert caught.value.__cause__.errno == 28
    assert file_names(small_disk) == ["x-0.tar", "x-0.tar.skidx", "x-1.tar", "x-1.tar.skidx"]
    assert TarDataset(writer.paths).keys() == [f"{number:02}" for number in range(20)]


def test_an_index_without_room_leaves_a_whole_shard(small_disk):
    writer = TarWriter(f"{small_disk}/x-%d.tar")
    for number in range(400):
        writer.write({"__key__": f"{number:03}" + "k" * 90, "bin": b""})
    # Whole pages for 400 headers and the end, and nothing else.
    (small_disk / "other").write_bytes(bytes((8 << 20) - 217_088))
    problem = r"x-0\.tar\.skidx: cannot be written \(No space .*; the shard is whole: make its index by"
    with pytest.raises(sk.DatasetError, match=problem):
        writer.close()
    with pytest.raises(sk.DatasetError, match=r"x-0\.tar\.skidx: cannot be written \(No space"):
        writer.write({"__key__": "later", "bin": b""})
    assert file_names(small_disk) == ["other", "x-0.tar"]
    assert len(TarDataset(writer.paths)) == 400


def test_an_error_of_the_user_is_not_hidden_by_a_full_disk(small_disk):
    (small_disk / "other").write_bytes(bytes((8 << 20) - 4096))
    with pytest.raises(ZeroDivisionError), TarWriter(f"{small_disk}/x-%d.tar") as writer:
        writer.write({"__key__": "a", "bin": b"x" * 10})
        raise ZeroDivisionError
    assert file_names(small_disk) == ["other"]


@pytest.mark.campaign
def test_the_example_trains_on_shards_of_jpegs(tmp_path):
    first, *epochs = lines_of(run_example("train_tar_shards.py", temporary=tmp_path))
    assert first == "711 samples to train on, 173 to test, in 5 shards"
    accuracies = [float(re.fullmatch(r"epoch \d: test accuracy (\S+)", line)[1]) for line in epochs]
    assert len(accuracies) == 8
    assert accuracies[-1] > 0.9
