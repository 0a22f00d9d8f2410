"""webdataset's ImageNet example in a job of several ranks, by the drop-in.

Run as `python -m tests.ranks RANKS tests.compat.webdataset.job FOLDER PATTERN`; each rank writes what its
loops received.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch.distributed
from torch.utils.data import DataLoader

from samplerkit.compat.webdataset import WebDataset
from tests.compat.webdataset.shards import cropped

SAMPLES = 200


def epochs_of(dataset, count):
    """Reads some epochs by the pipeline of webdataset's documentation: the ids of each batch."""
    dataset = (
        dataset.shuffle(1000)
        .decode("pil")
        .rename(image="jpg;png", data="json")
        .map_dict(image=cropped)
        .to_tuple("image", "data")
    )
    loader = DataLoader(dataset, batch_size=16, num_workers=4)
    result = []
    for _ in range(count):
        batches = []
        for images, data in loader:
            assert images.shape[1:] == (3, 24, 24)
            batches.append(data["id"].tolist())
        result.append(batches)
    return result


def main() -> None:
    """Writes what this rank has read."""
    folder, pattern = Path(sys.argv[1]), sys.argv[2]
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    results = {
        "ours": epochs_of(WebDataset(pattern), 2),
        "ours, equal steps": epochs_of(WebDataset(pattern, equal_steps="pad"), 1),
    }
    (folder / f"{rank}.json").write_text(json.dumps(results))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
