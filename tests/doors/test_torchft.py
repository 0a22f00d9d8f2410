"""torchft: processes leave and join, and each step reads the same samples as without."""

import json
from collections import defaultdict
from importlib import import_module
from itertools import chain

import samplerkit as sk
from tests.trainers.jobs import EXAMPLES, Job
from tests.trainers.restarted import SAMPLES

NEEDS = ("torchft", "scikit-learn")
GLOBAL_BATCH, EPOCHS, STEPS = 48, 2, 60
PATIENCE = 240


def test_each_step_has_its_samples_while_replicas_leave_and_join(tmp_path):
    torchft = import_module("torchft._torchft")
    lighthouse = torchft.LighthouseServer(
        bind="[::]:0", min_replicas=2, join_timeout_ms=1000, heartbeat_timeout_ms=2000
    )
    variables = {"TORCHFT_LIGHTHOUSE": lighthouse.address(), "DIGITS_KILL": "2:8,1:20,0:45"}
    try:
        with Job(tmp_path, **variables) as job:
            started = [
                job.start(EXAMPLES / "train_torchft.py", tmp_path / "run", str(number)) for number in range(3)
            ]
            # Fewer than two do not continue, so a replica that returns joins before the next one is killed.
            assert job.end(started[2], PATIENCE)[0] == -9
            assert job.end(started[1], PATIENCE)[0] == -9
            back = job.start(EXAMPLES / "train_torchft.py", tmp_path / "run", "1")
            assert job.end(started[0], PATIENCE)[0] == -9
            new = job.start(EXAMPLES / "train_torchft.py", tmp_path / "run", "3")
            for replica in (back, new):
                code, printed = job.end(replica, PATIENCE)
                assert code == 0, printed
                assert f"{STEPS} steps, test accuracy" in printed
    finally:
        lighthouse.shutdown()

    received = defaultdict(dict)
    for path in (tmp_path / "run").glob("rank-*.jsonl"):
        for line in map(json.loads, path.read_text().splitlines()):
            received[line["step"]][int(path.stem.removeprefix("rank-"))] = line["ids"]
    assert sorted(received) == list(range(STEPS))
    who = [sorted(received[step]) for step in range(STEPS)]
    # How many share the steps before the first kill is a matter of who was up first.
    assert 2 in who[7]
    assert who[8:] == [[0, 1]] * 37 + [[1, 3]] * 15
    orders = [sk.RandomSampler(seed=7).order(SAMPLES, epoch)[:].tolist() for epoch in range(EPOCHS)]
    for step, batches in received.items():
        epoch, number = divmod(step, STEPS // EPOCHS)
        due = orders[epoch][number * GLOBAL_BATCH : (number + 1) * GLOBAL_BATCH]
        pads = orders[epoch][: -len(due) % len(batches)]
        assert sorted(chain.from_iterable(batches.values())) == sorted(due + pads), step
        assert len(set(map(len, batches.values()))) == 1
