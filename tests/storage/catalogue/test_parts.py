"""Catalogues in parts become the same file, however they are made; damaged files are named errors."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.storage.catalogue.making import join_parts, make_catalogue, make_part, parts_of
from samplerkit.storage.tar.pack import pack_shard
from samplerkit.storage.tar.write_indexes import index_shard
from tests.cli.configs import in_json
from tests.storage.catalogue.kinds import FILES, PARQUET, TAR
from tests.storage.crowd import Child
from tests.storage.formats import test_parquet
from tests.testing import test_contract as of_files

SIZES = (5, 3, 0, 4, 1, 2, 6)


def counted(ledger, most):
    """A reader that records the files that it counts, and is killed after `most` files."""

    class Counting:
        def __call__(self, path):
            return {"id": np.load(path)["id"]}

        def count(self, path):
            lines = ledger.read_text().split() if ledger.exists() else []
            if len(lines) == most:
                os.kill(os.getpid(), signal.SIGKILL)
            ledger.write_text("\n".join([*lines, path]))
            return len(np.load(path)["id"])

    return Counting()


def test_parts_joined_in_any_order_are_the_catalogue_of_one_machine(kind, tmp_path):
    pattern = kind.written(tmp_path / "data", SIZES)
    whole, steps = f"{tmp_path}/whole.skcat", []
    make_catalogue(pattern, whole, kind.reader, part_files=3, progress=lambda _, *done: steps.append(done))
    assert sorted(set(steps)) == [(done, len(SIZES)) for done in range(len(SIZES) + 1)]
    parts = [make_part(files, f"{tmp_path}/parts", kind.reader) for files in reversed(parts_of(pattern, 3))]
    assert len(parts) == 3
    join_parts(parts, f"{tmp_path}/joined.skcat")
    assert Path(f"{tmp_path}/joined.skcat").read_bytes() == Path(whole).read_bytes()
    assert not Path(f"{whole}.parts").exists()


def test_a_killed_process_resumes_and_reads_no_file_of_a_finished_part_again(tmp_path):
    pattern, ledger, out = FILES.written(tmp_path / "data", SIZES), tmp_path / "seen", f"{tmp_path}/all.skcat"

    def make(most):
        return make_catalogue(pattern, out, counted(ledger, most), part_files=2, threads=1).num_files

    child = Child(make, 5)  # two parts of two files are done, and a file of the third
    child.process.join(60)
    assert child.process.exitcode == -signal.SIGKILL
    assert not Path(out).exists()
    before = ledger.read_text().split()
    assert len(before) == 5
    assert Child(make, -1).result() == len(SIZES)
    again = ledger.read_text().split()[5:]
    assert [Path(path).name for path in again] == ["4.npz", "5.npz", "6.npz"]
    assert len(sk.FileDataset(out, "npz")) == sum(SIZES)


def test_an_existing_part_is_reused_and_a_damaged_one_is_made_again(tmp_path):
    (files,) = parts_of(FILES.written(tmp_path / "data"))
    ledger = tmp_path / "seen"
    path = make_part(files, f"{tmp_path}/parts", counted(ledger, -1), threads=1)
    whole = Path(path).read_bytes()
    assert make_part(files, f"{tmp_path}/parts", counted(ledger, -1), threads=1) == path
    assert len(ledger.read_text().split()) == len(files)
    Path(path).write_bytes(whole[:-7])
    make_part(files, f"{tmp_path}/parts", counted(ledger, -1), threads=1)
    assert Path(path).read_bytes() == whole


def test_parts_of_different_catalogues_are_refused(tmp_path):
    parts = {
        kind.name: make_part(parts_of(kind.written(tmp_path / kind.name))[0], f"{tmp_path}", kind.reader)
        for kind in (TAR, PARQUET)
    }
    with pytest.raises(ArgumentValueError, match="are of several kinds, got 'tar and parquet'"):
        join_parts(parts.values(), f"{tmp_path}/all.skcat")
    with pytest.raises(ArgumentValueError, match="name a file twice"):
        join_parts([parts["tar"], parts["tar"]], f"{tmp_path}/all.skcat")
    with pytest.raises(DatasetError, match="no such catalogue"):
        join_parts([f"{tmp_path}/none.skcat"], f"{tmp_path}/all.skcat")
    with pytest.raises(ArgumentValueError, match=r"must end in \.skcat"):
        join_parts(parts.values(), f"{tmp_path}/all.bin")
    with pytest.raises(ArgumentTypeError, match="out: must be"):
        join_parts(parts.values(), tmp_path / "all.skcat")
    with pytest.raises(ArgumentValueError, match="neither tar shards nor Parquet"):
        make_catalogue(FILES.written(tmp_path / "npz"), f"{tmp_path}/all.skcat")
    with pytest.raises(DatasetError, match=r"^files: no file matches"):
        make_catalogue(f"{tmp_path}/none*", f"{tmp_path}/all.skcat")


@pytest.mark.parametrize("wrong", ["threads", "part_files"])
def test_no_threads_and_no_files_of_a_part_are_refused(tmp_path, wrong):
    """Without threads, a call that waits for them would never end."""
    pattern = FILES.written(tmp_path / "data")
    with pytest.raises(sk.ArgumentRangeError, match=f"{wrong}: must be positive, got 0"):
        make_catalogue(pattern, f"{tmp_path}/all.skcat", "npz", **{wrong: 0})


def test_one_shard_is_packed_and_indexed_once(tmp_path):
    shard = f"{tmp_path}/train-000003.tar"
    samples = [{"__key__": f"{number}", "cls": number} for number in range(5)]
    assert pack_shard(samples, shard) == shard
    before = Path(shard).stat().st_mtime_ns
    pack_shard([{"__key__": "others"}], shard)
    assert Path(shard).stat().st_mtime_ns == before
    index = Path(f"{shard}.skidx")
    index.unlink()
    pack_shard([{"__key__": "others"}], shard)  # as after a task that was killed before its index
    assert index.exists()
    index.unlink()
    assert index_shard(shard).num_samples == 5
    written = index.stat().st_mtime_ns
    assert index_shard(shard).num_samples == 5
    assert index.stat().st_mtime_ns == written


def test_parts_and_the_joined_catalogue_may_be_in_a_bucket(kind, tmp_path):
    pytest.importorskip("fsspec", reason="fsspec is not installed: nothing remote here")
    pattern, bucket = kind.written(tmp_path, SIZES), f"memory://catalogue-{tmp_path.name}"
    parts = [make_part(files, f"{bucket}/parts", kind.reader) for files in parts_of(pattern, 3)]
    assert parts == [make_part(files, f"{bucket}/parts", kind.reader) for files in parts_of(pattern, 3)]
    join_parts(parts, f"{bucket}/all.skcat")
    assert len(kind.open(f"{bucket}/all.skcat")) == sum(SIZES)


def test_the_command_makes_a_catalogue_and_joins_some(command, printed, refused, tmp_path):
    for name in "ab":
        out, files = tmp_path / f"{name}.skcat", FILES.written(tmp_path / name)
        text = printed("catalogue", files, "--out", out, "--reader", "npz")
        assert text == f"{out}: 12 samples in 4 files, 640 bytes\n"
    code, joined = in_json(command, "catalogue", tmp_path / "?.skcat", "--out", tmp_path / "all.skcat")
    assert (code, joined["files"]) == (0, 8)
    assert len(sk.FileDataset(tmp_path / "all.skcat", "npz")) == 24
    problem = refused("catalogue", f"{tmp_path}/a/*.npz", "--out", tmp_path / "c.skcat")
    assert "neither tar shards nor Parquet" in problem


WRITTEN_NS = 1_700_000_000 * 10**9


class OfCatalogue:
    """The same files, and a catalogue of them.

    All have the same time of change, so that damage shows in the size, the digest or the content.
    """

    suffix = ""
    reader: str | None = None

    def write(self, folder):
        files = super().write(folder)
        self._set_times(folder)
        make_catalogue(f"{folder}/*{self.suffix}", f"{folder}/all.skcat", self.reader)
        return files

    def make(self, folder):
        self._set_times(folder)
        return self.opened(f"{folder}/all.skcat")

    def victim(self, folder):
        return max(Path(folder).glob(f"*{self.suffix}"), key=lambda path: path.stat().st_size)

    def _set_times(self, folder):
        for path in Path(folder).glob(f"*{self.suffix}"):
            os.utime(path, ns=(WRITTEN_NS, WRITTEN_NS))


class TestParquet(OfCatalogue, test_parquet.TestParquet):
    """Row groups: footers are read when the first of their file is."""

    suffix, opened = ".parquet", sk.ParquetDataset


class TestFiles(OfCatalogue, of_files.TestFiles):
    """Files with a reader."""

    suffix, reader = ".npy", "npy"

    def opened(self, path):
        return sk.FileDataset(path, "npy")


class TestShards(OfCatalogue, of_files.TestShards):
    """Tar shards, whose indexes are made when they are opened."""

    suffix = ".tar"

    def opened(self, path):
        dataset = sk.TarDataset(path, checksums=True, progress=False)
        return dataset.decode().to_tuple("json").map(of_files._first)


_OF_DAMAGE = {
    "test_damaged_data_raises_an_error_that_names_the_file",
    "test_truncated_or_missing_data_raises_an_error_that_names_the_file",
}
assert {*of_files.LAWS} > _OF_DAMAGE  # the others test the dataset, which is the one of the files
for _law in {*of_files.LAWS} - _OF_DAMAGE:
    for _contract in (TestParquet, TestFiles, TestShards):
        setattr(_contract, _law, None)
