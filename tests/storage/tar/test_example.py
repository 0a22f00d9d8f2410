"""The example that trains on shards runs as it is, and learns."""

from __future__ import annotations

import re

import pytest

from tests.cli.processes import run_example


@pytest.mark.campaign
def test_the_example_trains_on_shards_of_jpegs(tmp_path):
    done = run_example("train_tar_shards.py", temporary=tmp_path)
    assert done.returncode == 0, done.stderr
    first, *epochs = done.stdout.splitlines()
    assert first == "711 samples to train on, 173 to test, in 5 shards"
    accuracies = [float(re.fullmatch(r"epoch \d: test accuracy (\S+)", line)[1]) for line in epochs]
    assert len(accuracies) == 8
    assert accuracies[-1] > 0.9
