"""One rank of a job under torchrun: loops with an epoch of their own, stopped at steps around ends of epochs.

A stop is what a checkpoint is: the reader is gone, and a new one loads the state beside the loop's own epoch.
Prints, for each reader and each stop, the ids that this rank got in each epoch.
"""

from __future__ import annotations

import json
import os
import sys

import torch
import torch.distributed as dist

import samplerkit as sk
from tests.loading.test_epoch_borders import EPOCHS, READERS, SIZE, run_until

NAMES = (
    "Loader",
    "Loader with workers",
    "Loader that is ragged",
    "DeviceLoader",
    "TensorLoader",
    "TorchBatchSampler",
    "TorchSampler below torchdata",
    "TorchBatchSampler below torchdata",
    "torch's DistributedSampler below torchdata",
)


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    world = sk.World(dist.get_world_size(), dist.get_rank())
    read = {}
    for name in NAMES:
        made = lambda name=name: READERS[name](world, None)  # noqa: E731
        whole, _ = run_until(made)
        read[name] = [whole]
        # A batch has two samples of the rank's share; TorchSampler hands out single ones elsewhere.
        steps = -(-len(whole[0]) // 2) * EPOCHS
        for stop in range(1, steps):
            before, checkpoint = run_until(made, stop)
            after, _ = run_until(made, checkpoint=checkpoint)
            read[name].append([a + b for a, b in zip(before, after, strict=True)])
    print(json.dumps({"rank": world.shard_id, "size": SIZE, "read": read}), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # torchdata's threads may outlive the group


if __name__ == "__main__":
    main()
