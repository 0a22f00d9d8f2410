"""webdataset's ImageNet example in a job of several ranks, by the drop-in and by webdataset itself.

Run as `python -m tests.ranks RANKS tests.compat.webdataset.job FOLDER PATTERN`, with `theirs` behind it for
webdataset itself; each rank writes what its loops received.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import torch.distributed
import webdataset as theirs
from torch.utils.data import DataLoader

import samplerkit.compat.webdataset as ours
from tests.compat.webdataset.shards import preproc

WORKERS, BATCH, EPOCHS = 4, 16, 2
SAMPLES = 200


def example(dataset, field="data"):
    """The pipeline of webdataset's documentation."""
    return (
        dataset.shuffle(1000)
        .decode("pil")
        .rename(**{"image": "jpg;png", field: "json"})
        .map_dict(image=preproc)
        .to_tuple("image", field)
    )


def renamed(dataset):
    """The same for webdataset 1.0, which takes no field of the name `data`."""
    return example(dataset, "about")


def read_or_told(dataset):
    """The epochs, or the last line of the error that there is in place of them."""
    try:
        return epochs_of(dataset, 1)
    except (TypeError, ValueError) as error:
        lines = [line for line in str(error).splitlines() if "Error: " in line]
        return (lines or [str(error)])[-1].strip()


def epochs_of(dataset, count=EPOCHS):
    """Reads some epochs with workers: the ids of each batch, and the shape of the images."""
    loader = DataLoader(dataset, batch_size=BATCH, num_workers=WORKERS)
    result = []
    for _ in range(count):
        batches = []
        for images, data in loader:
            assert images.shape[1:] == (3, 24, 24)
            batches.append(data["id"].tolist())
        result.append(batches)
    return result


def by_theirs(pattern, each):
    """Reads by all ways that people have; `each` is how many samples a worker has to read."""
    warnings.simplefilter("ignore")
    split = {"shardshuffle": 100, "nodesplitter": theirs.split_by_node}
    again = {"resampled": True, "nodesplitter": None, "shardshuffle": False}
    datasets = {
        "as documented": example(theirs.WebDataset(pattern, **split)),
        "without a splitter": renamed(theirs.WebDataset(pattern, shardshuffle=100)),
        "split by node": renamed(theirs.WebDataset(pattern, **split)),
        "split by node, no check": renamed(theirs.WebDataset(pattern, empty_check=False, **split)),
        "resampled": renamed(theirs.WebDataset(pattern, **again)).with_epoch(each),
    }
    return {f"webdataset, {name}": read_or_told(dataset) for name, dataset in datasets.items()}


def main() -> None:
    """Writes what this rank has read."""
    folder, pattern = Path(sys.argv[1]), sys.argv[2]
    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    if sys.argv[3:] == ["theirs"]:
        results = by_theirs(pattern, SAMPLES // (ranks * WORKERS))
    else:
        results = {
            "ours": epochs_of(example(ours.WebDataset(pattern))),
            "ours, equal steps": epochs_of(example(ours.WebDataset(pattern, equal_steps="pad")), 1),
        }
    (folder / f"{rank}.json").write_text(json.dumps(results))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
