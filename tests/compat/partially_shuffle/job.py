"""Reads as a rank of a job by the drop-in for PartiallyShuffle.

python -m tests.ranks 2 tests.compat.partially_shuffle.job FOLDER RESULTS
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch.distributed

import samplerkit as sk
from samplerkit.compat.partially_shuffle import DistributedSamplerViaLocallyShuffle
from tests.compat.partially_shuffle.folders import Dataset, items_of


def main() -> None:
    folder, results = map(Path, sys.argv[1:])
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    dataset = Dataset(sorted(folder.glob("*.npz")))
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
