"""The examples of the documentation run as they are."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from tests.cli.processes import ROOT, run

EXAMPLES = ROOT / "docs" / "examples"


def test_own_data_trains_on_two_ranks(tmp_path):
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1")
    done = run((*torchrun, "--nproc-per-node", "2", str(EXAMPLES / "train_own_data.py")), tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        f"epoch {epoch}: 1000 samples on each of 2 ranks" for epoch in range(8)
    ]
    assert float(lines[-1].split()[-1]) > 0.9


@pytest.mark.campaign
def test_image_folder_trains(tmp_path):
    done = run((sys.executable, str(EXAMPLES / "train_image_folder.py")), tmp_path)
    assert done.returncode == 0, done.stderr
    first, *epochs = done.stdout.splitlines()
    assert first == "1797 images of 10 classes"
    accuracies = [float(re.fullmatch(r"epoch \d: test accuracy (\S+)", line)[1]) for line in epochs]
    assert len(accuracies) == 5
    assert accuracies[-1] > 0.85


@pytest.mark.campaign
def test_a_job_that_is_stopped_goes_on_when_it_is_requeued(tmp_path):
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
