"""The example that makes shards of shards: every sample once, also when it is killed half way."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter

import numpy as np
import pytest

from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.writer import TarWriter
from tests.cli.processes import ROOT, environment, processes_of, run_example

SHARDS, SAMPLES = 8, 16

images = pytest.importorskip("PIL.Image")


def jpeg(number, width, height):
    """A JPEG whose grey level is its number."""
    stream = io.BytesIO()
    array = np.full((height, width, 3), 20 + number, dtype=np.uint8)
    images.fromarray(array).save(stream, "JPEG", quality=95)
    return stream.getvalue()


@pytest.fixture(name="shards", scope="module")
def fixture_shards(tmp_path_factory):
    """Shards of JPEGs, every ninth of which is cut off, and a shard of broken ones only."""
    folder = tmp_path_factory.mktemp("etl") / "raw"
    with TarWriter(f"{folder}/raw-%03d.tar", samples_per_shard=SAMPLES) as writer:
        for number in range(SHARDS * SAMPLES):
            width, height = 1200 + number, 900 if number % 2 else 40
            data = jpeg(number, width, height)
            is_broken = number % 9 == 4 or number // SAMPLES == SHARDS - 1
            jpg = data[: len(data) // 2] if is_broken else data
            writer.write({"__key__": f"dir/{number:04}", "jpg": jpg, "cls": number % 10})
    return folder


WHOLE = [n for n in range(SHARDS * SAMPLES) if n % 9 != 4 and n // SAMPLES != SHARDS - 1]


def command(shards, out):
    pattern = f"{shards}/raw-{{000..{SHARDS - 1:03}}}.tar"
    return ("etl.py", pattern, out, "--side", "100", "--processes", "2")


def assert_is_complete(out):
    """Every complete sample is there once, smaller and with its fields, and nothing else."""
    dataset = TarDataset(f"{out}/*.tar", cache=out.parent / "cache").decode("pil")
    seen = Counter(sample["__key__"] for sample in dataset)
    assert seen == Counter(f"dir/{number:04}" for number in WHOLE)
    for sample in dataset:
        number = int(sample["__key__"][4:])
        width, height = 1200 + number, 900 if number % 2 else 40
        assert sample["json"] == {"width": width, "height": height}
        assert sample["cls"] == number % 10
        assert max(sample["jpg"].size) == 100
        assert abs(int(np.asarray(sample["jpg"]).mean()) - 20 - number) <= 2
    suffixes = Counter(path.suffix for path in out.iterdir())
    assert suffixes == {".json": SHARDS, ".tar": SHARDS, ".skidx": SHARDS}
    reports = [json.loads(path.read_text()) for path in out.glob("*.json")]
    assert all(report["read"] == SAMPLES == report["written"] + report["dropped"] for report in reports)


SUMMARY = (
    f"{SHARDS * SAMPLES} samples read, {len(WHOLE)} written, {SHARDS * SAMPLES - len(WHOLE)} dropped, "
    "0 shards failed"
)


def test_a_run_that_is_killed_half_way_resumes_and_loses_and_repeats_nothing(shards, tmp_path):
    out = tmp_path / "small"
    name, *arguments = command(shards, out)
    example = ROOT / "docs" / "examples" / name
    # A killed process cannot remove the folder of its sockets.
    with (
        tempfile.TemporaryDirectory(prefix="killed-") as sockets,
        subprocess.Popen(
            [sys.executable, example, *arguments],
            env={**environment(tmp_path), "TMPDIR": sockets},
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        ) as process,
    ):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            assert process.poll() is None
            if len(list(out.glob("*.json"))) >= 2:
                # The session holds its workers too; stopped, they stay at the shards in progress.
                os.killpg(process.pid, signal.SIGSTOP)
                if list(out.glob(".raw-*.work")):
                    break
                os.killpg(process.pid, signal.SIGCONT)
            time.sleep(0.005)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert processes_of(out) == []
    reports = list(out.glob("*.json"))
    finished = {path: path.stat().st_mtime_ns for one in reports for path in out.glob(f"{one.stem}.*")}
    assert 2 <= len(reports) < SHARDS
    assert list(out.glob(".raw-*.work")), "no shard was in progress when it was killed"
    done = run_example(*command(shards, out), temporary=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"{SHARDS} shards, {len(reports)} of them finished before"
    assert lines[-1] == SUMMARY
    assert len(lines) == 2 + SHARDS - len(reports)
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    assert_is_complete(out)
    # The third run has nothing to do, and the same summary.
    again = run_example(*command(shards, out), temporary=tmp_path)
    assert again.stdout.splitlines() == [f"{SHARDS} shards, {SHARDS} of them finished before", SUMMARY]


def test_without_shards_it_makes_its_own(tmp_path):
    done = run_example("etl.py", temporary=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "200 samples read, 195 written, 5 dropped, 0 shards failed"
