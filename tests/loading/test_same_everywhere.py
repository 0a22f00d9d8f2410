"""Orders and states are the same in every process, whatever its hash seed, its threads and its random state.

That they are the same in every release is what `tests/order/test_golden_vectors.py` shows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.order.golden_vectors import recorded

ROOT = Path(__file__).parents[2]

READ = """
import json, random, sys
import numpy as np, torch
import samplerkit as sk
from tests.order.golden_vectors import ordered, recorded
random.seed(5), np.random.seed(5), torch.manual_seed(5)
torch.set_num_threads(int(sys.argv[1]))
orders = [ordered(case) for case in recorded()["orders"]]
layout = sk.Layout([5, 7], ["a", "b"])
sampler = sk.DistributedSampler(shuffle="partial", partial_size=3, seed=9)
loader = sk.Loader(layout, sampler, batch_size=2, world=sk.World(2, 1))
print(json.dumps([orders, loader.state_dict(step=1), hash("samplerkit")]))
"""


def in_a_process(hash_seed, threads, *flags):
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "OMP_NUM_THREADS": threads}
    command = [sys.executable, *flags, "-c", READ, threads]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def test_another_process_gives_the_same_orders_and_the_same_state():
    """With another hash seed, more threads, and optimised."""
    plain = in_a_process("0", "1")
    orders, state, hashed = in_a_process("4294967295", "2", "-O")
    assert orders == plain[0] == [{"ids": case["ids"]} for case in recorded()["orders"]]
    assert state == plain[1]
    assert hashed != plain[2]  # the control: what follows the hash seed is another value there
