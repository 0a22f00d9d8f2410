"""The demo, from real data to a trained model, as a user runs it."""

import json
import signal
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
import yaml

import samplerkit as sk
from samplerkit.cli.demo import EPOCHS, RESUMED_EPOCHS, counted
from samplerkit.cli.demo_training import MODES, write_config
from tests.cli.processes import DEMO, ROOT, environment, processes_of, run
from tests.waiting import wait_until

SAMPLES = 1437  # every fifth of 1,797 is held out
FILES = 16


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """One run, for all tests of what it printed."""
    temporary = tmp_path_factory.mktemp("demo")
    done = run(DEMO, temporary)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    rows = {row["mode"]: row for row in result["rows"]}
    return {"config": result["config"], "rows": rows, "remaining": list(temporary.iterdir())}


@pytest.mark.campaign
def test_global_learns_and_files_costs_accuracy_on_sorted_files_which_it_opens_rarely(demo):
    rows = demo["rows"]
    assert tuple(rows) == MODES
    assert rows["global"]["accuracy"] >= 95
    assert rows["files"]["accuracy"] < rows["global"]["accuracy"] - 5
    assert rows["partial"]["accuracy"] < rows["global"]["accuracy"] - 1
    for rank in range(2):
        opened = {mode: row["files_opened"][rank] for mode, row in rows.items()}
        # 16 equal files over 2 lanes: ceil(16 / 2) + 1, and one more where the pad wraps.
        assert 1 <= opened["files"]["low"] <= opened["files"]["high"] <= FILES / 2 + 2
        assert opened["global"]["low"] > 10 * FILES
    assert demo["remaining"] == []  # in the temporary folder


@pytest.mark.campaign
@pytest.mark.parametrize("mode", MODES)
def test_two_ranks_received_the_order_that_the_config_says_and_one_pad(demo, mode):
    """`num_shards: auto` came from the running job, and the order is the same on each run."""
    row = demo["rows"][mode]
    counts = {"seen": SAMPLES + 1, "repeated": 1, "missing": 0}
    assert {name: row[name] for name in counts} == {
        name: {"low": count, "high": count} for name, count in counts.items()
    }
    text = demo["config"].replace("shuffle: adaptive", f"shuffle: {mode}")
    written = yaml.safe_load(text)
    layout = sk.Layout(written.pop("dataset")["lengths"])  # the files were deleted with the temporary folder
    config = sk.load_config(written)
    expected = blake2b(digest_size=8)
    for epoch in range(EPOCHS):
        for rank in range(2):
            order = config.sampler.order(layout, epoch, world=sk.World(2, rank))
            expected.update(np.asarray(order).astype("<i8").tobytes())
    assert row["orders"] == [expected.hexdigest()]


@pytest.mark.campaign
def test_a_failing_rank_ends_the_command_with_its_traceback(tmp_path):
    """The config has wrong lengths of files, which only a rank notices."""
    temporary, kept = tmp_path / "temporary", tmp_path / "kept"
    temporary.mkdir()
    kept.mkdir()
    write_config(kept, [SAMPLES - FILES + 1, *[1] * (FILES - 1)])
    done = run((*DEMO, "--keep", str(kept)), temporary)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "digits-00.npz: has 90 samples, but 1422 were given" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("samplerkit: rank ")
    assert processes_of(tmp_path) == []
    assert list(temporary.iterdir()) == []


@pytest.mark.campaign
def test_an_interrupt_leaves_no_process_and_no_file(tmp_path):
    command = subprocess.Popen(
        DEMO, env=environment(tmp_path), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with command:
        wait_until(lambda: len([*tmp_path.glob("*/*.0.jsonl")]) > 1)  # so the ranks are at work
        assert len(processes_of(tmp_path, patience=0)) >= 3
        command.send_signal(signal.SIGINT)
        command.communicate(timeout=20)
    assert command.returncode != 0
    assert processes_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


THREADS = """
import os
from pathlib import Path
import torch
from torch.nn.parallel import DistributedDataParallel
from samplerkit.cli import demo_training as training

def train():
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()

def gloo():
    return [path for path in Path("/proc/self/task").glob("*/comm") if "gloo" in path.read_text()]

store = f"file://{os.environ['TMPDIR']}/store"
torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
train()
before = len(gloo())
torch.distributed.destroy_process_group()
print(before > 0, len(gloo()))
"""


@pytest.mark.campaign
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are read from /proc")
def test_no_thread_of_gloo_outlives_the_process_group(tmp_path):
    """Such a thread may abort a rank that has finished: it takes the GIL while Python ends."""
    done = run((sys.executable, "-c", THREADS), tmp_path)
    assert done.stdout.split() == ["True", "0"], done.stderr


@pytest.mark.campaign
def test_a_killed_rank_costs_nothing_but_the_steps_since_the_checkpoint(tmp_path):
    done = run((sys.executable, "-m", "samplerkit.cli.main", "demo", "--resume", "--json"), tmp_path)
    assert done.returncode == 0, done.stderr
    event = json.loads(done.stdout)
    assert (event["delivered"], event["lost"], event["repeated"]) == (4 * SAMPLES, 0, 0)
    first, second = event["runs"]
    assert (first["ranks"], second["ranks"]) == (3, 2)
    assert 0 < first["replayed"] <= 4 * 48
    assert first["received"] + second["received"] - first["replayed"] == 4 * SAMPLES
    assert event["accuracy"] > 75
    assert not list(tmp_path.iterdir())
    assert not processes_of(tmp_path)


def test_the_resume_demo_counts_what_is_lost_and_what_is_repeated(tmp_path):
    for run_name, ranks, ids in (("first", 3, [0, 1]), ("second", 2, [1, 2])):
        for rank in range(ranks):
            line = json.dumps({"epoch": 0, "ids": ids, "pads": [rank > 0] * 2})
            (tmp_path / run_name).mkdir(exist_ok=True)
            (tmp_path / run_name / f"partial-7.{rank}.jsonl").write_text(f"{line}\n{line if rank else ''}")
    ledger = counted(tmp_path, saved_step=1, num_samples=4)
    assert (ledger["delivered"], ledger["repeated"]) == (4, 1)
    assert ledger["lost"] == 1 + (RESUMED_EPOCHS - 1) * 4
