"""Ray: a worker of Ray Train is killed; Ray Data makes a catalogue and packs shards, and continues."""

from pathlib import Path

import pytest

import samplerkit as sk
from samplerkit.storage.catalogue.making import make_catalogue, parts_of
from samplerkit.storage.tar.pack import pack_shard
from tests.storage.catalogue.kinds import PARQUET
from tests.trainers.jobs import EXAMPLES, ROOT, Job, output_of
from tests.trainers.ledgers import Ledger
from tests.trainers.restarted import SAMPLES, check_exactly_once
from tests.waiting import wait_until

NEEDS = ("ray", "scikit-learn")


def test_a_worker_is_killed_and_ray_resumes_from_the_last_checkpoint_that_it_knows(tmp_path):
    printed = output_of(tmp_path, EXAMPLES / "train_ray.py", tmp_path, seconds=400, DIGITS_KILL="1:33")
    assert (tmp_path / "killed-1-33").exists(), printed
    assert "epoch 1: 46 steps" in printed
    ledger = Ledger.read(tmp_path, SAMPLES)
    assert ledger.ranks == [2, 2]
    # A checkpoint that was reported last may not have reached Ray when the worker dies.
    first = min(line.step for line in ledger.replayed)
    assert first in {20, 25, 30}
    check_exactly_once(ledger, pads=[1, 1])


EXAMPLE = ROOT / "docs" / "examples" / "catalogue_on_ray.py"
SIZES = tuple(range(3, 23))


@pytest.fixture(autouse=True)
def cache_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache-home"))


def test_a_catalogue_is_made_by_tasks_and_a_killed_job_resumes(tmp_path):
    check_resumes_after_a_kill(tmp_path, EXAMPLE, "catalogue")


def check_resumes_after_a_kill(tmp_path, *command):
    """Kills a command when two of ten parts are written, and starts it again."""
    pattern, out = PARQUET.written(tmp_path / "data", SIZES), tmp_path / "train.skcat"
    call = (*command, pattern, out, "--part-files", "2")
    parts = Path(f"{out}.parts")
    with Job(tmp_path) as job:
        process = job.start(*call)
        wait_until(lambda: len(list(parts.glob("*.skcat"))) >= 2, seconds=300)
        process.kill()
    before = {path: path.stat().st_mtime_ns for path in parts.glob("*.skcat")}
    assert not out.exists()
    printed = output_of(tmp_path, *call, seconds=300)
    assert f"{sum(SIZES)} samples in {len(SIZES)} files" in printed
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(list(parts.glob("*.skcat"))) == len(parts_of(pattern, 2))
    make_catalogue(pattern, f"{tmp_path}/here.skcat")
    assert out.read_bytes() == Path(f"{tmp_path}/here.skcat").read_bytes()
    assert len(sk.ParquetDataset(out)) == sum(SIZES)


def test_shards_are_packed_by_tasks_and_existing_ones_are_kept(tmp_path):
    source, shards = tmp_path / "source", tmp_path / "shards"
    source.mkdir()
    for number in range(50):
        (source / f"{number:02}.txt").write_text(f"text {number}")
    first = [{"__key__": f"{number:02}", "txt": f"text {number}".encode()} for number in range(20)]
    shards.mkdir()
    before = Path(pack_shard(first, f"{shards}/train-000000.tar")).stat().st_mtime_ns
    output_of(tmp_path, EXAMPLE, "pack", source, shards, "--samples", "20", seconds=300)
    assert (shards / "train-000000.tar").stat().st_mtime_ns == before
    dataset = sk.TarDataset(f"{shards}/*.tar").decode().to_tuple("txt")
    assert [text for (text,) in dataset] == [f"text {number}" for number in range(50)]
