"""A job that uses the drop-ins as users do; each rank writes what it read.

Run as `python -m tests.ranks RANKS tests.compat.torch_job FOLDER`.
"""

import importlib.util
import json
import random
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed
from torch.utils.data import BatchSampler, RandomSampler, WeightedRandomSampler
from torch.utils.data import DistributedSampler as Torchs

import samplerkit as sk
from samplerkit.compat.partially_shuffle import DistributedSamplerViaLocallyShuffle
from samplerkit.compat.torch import DistributedSampler, distributed
from tests.compat.partially_shuffle.folders import Dataset, items_of
from tests.compat.webdataset.shards import loader, numbers, received

FACTORY = Path(__file__).parents[2] / "docs" / "examples" / "build_dataloader.py"
SAMPLES, EPOCHS = 103, 3
SAMPLERS = {
    "weighted, own generator": lambda: WeightedRandomSampler(
        [1.0, 2.0, 3.0] * 20, 51, generator=torch.Generator().manual_seed(torch.distributed.get_rank())
    ),
    "batches": lambda: BatchSampler(RandomSampler(range(SAMPLES)), 8, drop_last=False),
}


def factory():
    """Imports the example of the documentation, which is no package."""
    specification = importlib.util.spec_from_file_location("build_dataloader", FACTORY)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def read(loader, epochs=EPOCHS):
    batches = []
    for epoch in range(epochs):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        batches.append([batch.tolist() for batch in loader])
    return batches


def by_the_factory(example, sampler):
    """Training, evaluation and one long epoch, by the example with one of the two classes in it."""
    example.DistributedSampler = sampler
    config = {"samples": SAMPLES}
    built = {
        "train": example.build_dataloader(config, 8, dist=True, workers=1, seed=7, training=True),
        "evaluate": example.build_dataloader(config, 8, dist=True, workers=1, training=False),
        "merged": example.build_dataloader(
            config, 8, dist=True, training=True, merge_all_iters_to_one_epoch=True, total_epochs=4
        ),
        "alone": example.build_dataloader(config, 8, dist=False, training=False),
    }
    return {name: read(loader) for name, (_, loader, _) in built.items()}


def dealt(make, **chosen):
    sampler = distributed(make(), **chosen)
    epochs = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        epochs.append(list(sampler))
    return epochs


def disagreement(read):
    """Returns the message of the error if ranks read different orders."""
    try:
        list(read)
    except sk.DisagreementError as error:
        return str(error)
    return None


def by_files(folder):
    """An epoch of PartiallyShuffle, and its error if ranks list their files in different orders."""
    dataset = Dataset(sorted(folder.glob("*.npz")))
    sampler = DistributedSamplerViaLocallyShuffle(
        dataset, dataset.file_reader("npz"), shuffle_buffer=60, batch_size=8, seed=3
    )
    sampler.set_epoch(2)
    read = {"items": items_of(sampler), "ranks": sampler.num_replicas, "rank": sampler.rank}
    # As with os.listdir, which lists files in another order on each machine.
    dataset.files = dataset.files[sampler.rank :] + dataset.files[: sampler.rank]
    return {**read, "disagreement": disagreement(sampler)}


def by_shards(folder):
    """Two epochs of the drop-in for webdataset, with workers, and one of equal steps."""
    urls = f"{folder}/many-*.tar"
    dataset, equal = (numbers(urls, folder, equal_steps=steps).shuffle(20) for steps in (None, "pad"))
    batches = loader(dataset, num_workers=2)
    return {"epochs": [received(batches), received(batches)], "equal": received(loader(equal, num_workers=2))}


def main() -> None:
    folder, results = Path(sys.argv[1]), {}
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    # As in real jobs, the process-wide generators of the ranks differ.
    torch.manual_seed(rank)
    random.seed(rank)
    np.random.seed(rank)  # noqa: NPY002  # the generator that users draw from
    before = torch.get_rng_state()

    def torchs(*positional, **named):
        named.pop("algorithm", None)
        return Torchs(*positional, **named)

    example = factory()
    results["factory, torch"] = by_the_factory(example, torchs)
    results["factory, ours"] = by_the_factory(example, DistributedSampler)
    results["dealt"] = {name: dealt(make) for name, make in SAMPLERS.items()}
    results["whole"] = {name: dealt(SAMPLERS[name], num_replicas=1, rank=0) for name in SAMPLERS}
    torch.set_rng_state(before)
    results["plain"] = list(RandomSampler(range(SAMPLES)))
    others = distributed(WeightedRandomSampler([1.0, 2.0 + rank, 3.0] * 20, 50))
    results["other draws"] = disagreement(others)
    resumed, sampler = distributed(range(8)), distributed(range(8))
    next(iter(sampler))
    if rank == 1:
        resumed.load_state_dict(sampler.state_dict())
    results["other position"] = disagreement(resumed)
    results["files"] = by_files(folder / "files")
    results["shards"] = by_shards(folder)
    torch.distributed.barrier()
    # An evaluation on rank 0 alone: nothing waits for ever.
    results["alone"] = list(distributed(range(9), agreement_seconds=0.2)) if rank == 0 else None
    (folder / f"{rank}.json").write_text(json.dumps(results))
    torch.distributed.destroy_process_group()
