"""Runs the drop-in for PartiallyShuffle in a process of its own.

python -m tests.compat.partially_shuffle.job read FOLDER      prints what each of two ranks reads
python -m tests.compat.partially_shuffle.job leave FOLDER     ends in the middle of an epoch
python -m tests.ranks 2 tests.compat.partially_shuffle.job ranks FOLDER RESULTS     reads as a rank of the job
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch.distributed

import samplerkit as sk
from samplerkit.compat.partially_shuffle import DistributedSamplerViaLocallyShuffle
from tests.compat.partially_shuffle.folders import Dataset, items_of, make_sampler


def leave(folder):
    dataset = listed(folder)
    dataset.seconds = 0.4
    sampler = make_sampler(dataset)
    iterator = iter(sampler)
    next(iterator)
    # Neither is let go of: the interpreter ends while a file is being read.
    sys.modules["__main__"].kept = sampler, iterator
    print("left")


def ranks(folder, results):
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    dataset = listed(folder)
    sampler = DistributedSamplerViaLocallyShuffle(
        dataset, dataset.file_reader("npz"), shuffle_buffer=60, batch_size=8, seed=3
    )
    sampler.set_epoch(2)
    told = {"items": items_of(sampler), "ranks": sampler.num_replicas, "rank": sampler.rank}
    # As with os.listdir, which lists files in another order on each machine.
    dataset.files = dataset.files[rank:] + dataset.files[:rank]
    try:
        items_of(sampler)
    except sk.DisagreementError as error:
        told["disagreement"] = str(error)
    (results / f"{rank}.json").write_text(json.dumps(told))
    torch.distributed.destroy_process_group()


def listed(folder):
    return Dataset(sorted(folder.glob("*.npz")))


def main():
    {"leave": leave, "ranks": ranks}[sys.argv[1]](*map(Path, sys.argv[2:]))


if __name__ == "__main__":
    main()
