"""The examples of the documentation run as they are; that of shards resumes when it is killed half way."""

import contextlib
import io
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter

import numpy as np
import pytest
import torch

from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.writer import TarWriter
from tests import programs
from tests.cli.processes import ROOT, environment, lines_of, pids_of, processes_of, run, run_example
from tests.programs import put_python

EXAMPLES = ROOT / "docs" / "examples"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1")


def test_own_data_trains_on_two_ranks(tmp_path):
    ours = {**environment(tmp_path), **put_python(tmp_path)}
    done = programs.run([*TORCHRUN, "--nproc-per-node", "2", str(EXAMPLES / "train_own_data.py")], env=ours)
    lines = lines_of(done)
    assert [line.split(",")[0] for line in lines] == [
        f"epoch {epoch}: 1000 samples on each of 2 ranks" for epoch in range(8)
    ]
    assert float(lines[-1].split()[-1]) > 0.9


@pytest.mark.campaign
def test_image_folder_trains_and_a_killed_run_resumes_to_the_same_network(tmp_path):
    example = [sys.executable, str(EXAMPLES / "train_image_folder.py")]
    images, whole, cut = tmp_path / "images", tmp_path / "whole.pt", tmp_path / "cut.pt"
    images.mkdir()
    runpy.run_path(example[1])["write_digits"](images)
    first, *epochs = lines_of(run((*example, str(images), str(whole)), tmp_path))
    assert first == "1797 images of 10 classes"
    assert len(epochs) == 5
    assert float(re.fullmatch(r"epoch \d: test accuracy (\S+) of 360 images", epochs[-1])[1]) > 0.9

    # Killed, it leaves its temporary folder.
    started = {"env": environment(tmp_path), "cwd": ROOT, "stdout": subprocess.DEVNULL}
    with subprocess.Popen([*example, str(images), str(cut)], **started) as process:
        state = {"epoch": 0, "position": 0}
        while process.poll() is None and (state["epoch"] < 1 or not state["position"]):
            time.sleep(0.01)
            if cut.exists():
                state = torch.load(cut, weights_only=True)["loader"]
        process.kill()
    assert state["epoch"] >= 1
    assert state["position"] > 0
    _, resumed, *rest = lines_of(run((*example, str(images), str(cut)), tmp_path))
    assert resumed == f"continues in epoch {state['epoch']}"
    assert rest == epochs[state["epoch"] :]
    one, other = (torch.load(path, weights_only=True)["model"] for path in (whole, cut))
    assert all(torch.equal(one[name], other[name]) for name in one)


def losses(folder):
    """The log of each step, in order: steps that were repeated are in it twice."""
    path = folder / "losses.jsonl"
    # A process that was killed may have left the beginning of a line.
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line[-1] == "]"]


@pytest.mark.campaign
def test_a_gpt_is_killed_on_two_ranks_resumes_on_one_with_other_weights_and_then_on_longer_windows(tmp_path):
    example = str(EXAMPLES / "train_gpt.py")
    command = [sys.executable, *TORCHRUN, "--nproc-per-node", "2", example, str(tmp_path), "--steps", "1000"]
    with subprocess.Popen(
        command, env=environment(tmp_path), cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        while process.poll() is None and len(losses(tmp_path)) < 28:
            time.sleep(0.05)
        # Ranks have sessions of their own: they are found by the folder that they name.
        while pids := pids_of(tmp_path):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    killed_at = losses(tmp_path)[-1][0]
    assert killed_at >= 28

    for end, options, first in ((60, (), "step 20"), (80, ("--seq-len", "256"), "step 60")):
        more = ("--steps", str(end), "--edit", "40:0.1", *options)
        lines = lines_of(run((sys.executable, example, str(tmp_path), *more), tmp_path))
        assert lines[0].startswith(f"{first}: 1 ranks")

    steps = losses(tmp_path)
    before, after = steps[:killed_at], steps[killed_at:]
    assert [line[0] for line in before] == list(range(1, killed_at + 1))
    assert [line[0] for line in after] == list(range(21, 81))
    # One rank takes the same steps as two: their losses differ by rounding only.
    again = zip(before[20:], after, strict=False)
    assert all(abs(one[1] - other[1]) < 1e-3 for one, other in again)
    assert [line[2:] for line in after[18:21]] == [[1, 128, 0.5]] * 2 + [[1, 128, 0.1]]
    assert before[0][1] > 5
    assert after[-1][1] < 3.4


@pytest.mark.campaign
def test_a_job_that_is_stopped_resumes_when_it_is_requeued(tmp_path):
    command = [sys.executable, str(EXAMPLES / "train_until_stopped.py"), str(tmp_path)]
    printed = []
    for lines in (70, 1000):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            ledger = tmp_path / "ledger.txt"
            while process.poll() is None:
                written = ledger.read_text().count("\n") if ledger.exists() else 0
                if written >= lines:
                    process.send_signal(signal.SIGTERM)
                    break
                time.sleep(0.01)
            printed.append(process.communicate(timeout=60)[0])
        assert process.returncode == 0
    final = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    assert [text.splitlines()[-1].split()[0] for text in (*printed, final)] == ["stopped", "stopped", "done"]
    received = Counter(ledger.read_text().splitlines())
    assert received == Counter(f"{epoch} {number}" for epoch in range(3) for number in range(600))


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
    lines = lines_of(run_example(*command(shards, out), temporary=tmp_path))
    assert lines[0] == f"{SHARDS} shards, {len(reports)} of them finished before"
    assert lines[-1] == SUMMARY
    assert len(lines) == 2 + SHARDS - len(reports)
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    assert_is_complete(out)
    # The third run has nothing to do, and the same summary.
    again = lines_of(run_example(*command(shards, out), temporary=tmp_path))
    assert again == [f"{SHARDS} shards, {SHARDS} of them finished before", SUMMARY]


def test_without_shards_it_makes_its_own(tmp_path):
    lines = lines_of(run_example("etl.py", temporary=tmp_path))
    assert lines[-1] == "200 samples read, 195 written, 5 dropped, 0 shards failed"
