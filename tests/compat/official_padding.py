"""torch's own test of padding, with another `DistributedSampler` in the place of torch's.

Run as `python -m tests.compat.official_padding`: it prints a JSON line that tells, for each sampler and
number of ranks, on which ranks the test passed. The ranks are processes of a gloo group.
"""

from __future__ import annotations

import importlib
import inspect
import json
import multiprocessing
import os
import tempfile
import unittest
from pathlib import Path

import torch.distributed

from samplerkit.compat.torch import DistributedSampler

WORLD_SIZES = [1, 2, 3, 7]


class OneTooMany(DistributedSampler):
    """The planted control: a drop-in whose padding is off by one."""

    def __iter__(self):
        yield from super().__iter__()
        yield 0


class OneTooFew(DistributedSampler):
    """The planted control whose lengths are off by one where samples are dropped."""

    def __init__(self, *positional, **named):
        super().__init__(*positional, **named)
        self.num_samples -= self.drop_last
        self.total_size = self.num_samples * self.num_replicas


def ours_samplerkit_1(*positional, **named):
    """Our class with our order."""
    return DistributedSampler(*positional, algorithm="samplerkit-1", **named)


SAMPLERS = {
    "torch": torch.utils.data.DistributedSampler,
    "ours": DistributedSampler,
    "ours, samplerkit-1": ours_samplerkit_1,
    "one too many": OneTooMany,
    "one too few": OneTooFew,
}


class StandIn(unittest.TestCase):
    """What the test needs of its class: assertions, and a device, which it calls rank."""

    rank = "cpu"


def official():
    """Imports torch's module of tests: late, since it asks for variables and pytest collects this module."""
    for name, value in {"BACKEND": "gloo", "TEMP_DIR": tempfile.gettempdir(), "WORLD_SIZE": "2"}.items():
        os.environ.setdefault(name, value)
    return importlib.import_module("torch.testing._internal.distributed.distributed_test")


def passes(sampler):
    """Runs torch's test in this rank with a sampler in place of torch's; tells whether it passed."""
    made = []

    def counted(*positional, **named):
        made.append(sampler(*positional, **named))
        return made[-1]

    module = official()
    module.DistributedSampler = counted
    # Its decorators skip the test where there is no GPU for each rank.
    test = inspect.unwrap(module.DistributedTest._DistTestBase.test_DistributedSampler_padding)
    try:
        test(StandIn())
    except AssertionError:
        return False
    # It ran to its end: it makes three samplers, and the last is of a tiny dataset.
    if len(made) != 3 or len(made[-1].dataset) != max(torch.distributed.get_world_size() // 2 - 1, 1):
        raise RuntimeError(f"torch's test is another one now: it made {len(made)} samplers")
    return True


def rank_of_a_group(rank, world_size, folder):
    """Runs the test with each sampler as one rank of a group of processes; writes who passed."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size
    )
    passed = {name: passes(sampler) for name, sampler in SAMPLERS.items()}
    (folder / f"{rank}.json").write_text(json.dumps(passed))
    torch.distributed.destroy_process_group()


def main():
    results = {name: {} for name in SAMPLERS}
    official()  # a forked process then has torch's large module already
    context = multiprocessing.get_context("fork")
    for world_size in WORLD_SIZES:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            ranks = [
                context.Process(target=rank_of_a_group, args=(rank, world_size, folder))
                for rank in range(world_size)
            ]
            for rank in ranks:
                rank.start()
            for rank in ranks:
                rank.join(60)
            told = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world_size)]
        for name, by_size in results.items():
            by_size[world_size] = [rank[name] for rank in told]
    print(json.dumps(results))


if __name__ == "__main__":
    main()
