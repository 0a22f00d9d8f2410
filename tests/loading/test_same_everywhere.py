"""Orders and states are the same in every process, whatever its hash seed, its threads and its random state.

That they are the same in every release is what `tests/order/test_golden_vectors.py` shows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

import samplerkit as sk
from tests.order.golden_vectors import ordered, recorded

ROOT = Path(__file__).parents[2]

READ = """
import json, random, sys
import numpy as np, torch
from tests.loading.test_same_everywhere import orders_and_state
random.seed(5), np.random.seed(5), torch.manual_seed(5)
torch.set_num_threads(int(sys.argv[1]))
print(json.dumps([*orders_and_state(), hash("samplerkit")]))
"""


def orders_and_state():
    layout = sk.Layout([5, 7], ["a", "b"])
    sampler = sk.DistributedSampler(shuffle="partial", partial_size=3, seed=9)
    loader = sk.Loader(layout, sampler, batch_size=2, world=sk.World(2, 1))
    return [ordered(case) for case in recorded()["orders"]], loader.state_dict(step=1)


def test_another_process_gives_the_same_orders_and_the_same_state():
    """With another hash seed, more threads, and optimised."""
    threads = str(torch.get_num_threads() + 1)
    environment = {**os.environ, "PYTHONHASHSEED": "4294967295", "OMP_NUM_THREADS": threads}
    command = [sys.executable, "-O", "-c", READ, threads]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    orders, state, hashed = json.loads(done.stdout)
    assert orders == [{"ids": case["ids"]} for case in recorded()["orders"]]
    assert [orders, state] == json.loads(json.dumps(orders_and_state()))
    assert hashed != hash("samplerkit")  # the control: what follows the hash seed is another value there
