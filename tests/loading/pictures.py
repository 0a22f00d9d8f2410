"""A dataset of pictures with random transforms, and ways to read it that tell where each pixel came from."""

from __future__ import annotations

import json
import os
import random
import signal

import numpy as np
import torch

import samplerkit as sk

SIZE, BATCH = 40, 4
SAMPLER = sk.WeightedRandomSampler(1.0 / (1.0 + np.arange(SIZE)), num_samples=46, seed=11)
"""Rare and frequent samples; 46 draws leave a rest with any number of ranks."""


def transformed(picture):
    """What people's transforms do: noise by torch, a crop by numpy, a flip by Python's generator."""
    top, left = np.random.randint(0, 4, 2)  # noqa: NPY002
    picture = picture[top : top + 4, left : left + 4] + torch.randn(4, 4)
    return picture.flip(1) if random.random() < 0.5 else picture


def jittered(picture, rng):
    """The same with a generator that is handed over."""
    top, left = rng.integers(0, 4, 2)
    return picture[top : top + 4, left : left + 4] + torch.from_numpy(rng.standard_normal((4, 4)))


class Pictures:
    """Sample i is a picture of i, taken through both."""

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        picture = picture_of(index)
        return index, as_text(transformed(picture)), as_text(jittered(picture, sk.draw_rng()))


def picture_of(index):
    return torch.full((8, 8), float(index), dtype=torch.float64)


def as_text(picture):
    return picture.numpy().astype("<f8").tobytes().hex()


def loader(ranks=1, rank=0, workers=0, **options):
    """A loader of rank `rank` of `ranks` that seeds draws and hands out lists."""
    dataset = options.pop("dataset", Pictures())
    sampler = options.pop("sampler", SAMPLER)
    return sk.Loader(
        dataset,
        sampler,
        world=sk.World(ranks, rank),
        num_workers=workers,
        **{"batch_size": BATCH, "collate_fn": list, "seed_draws": True, **options},
    )


def position(reader, place, start=0):
    """The position of a sample of the batch handed out last, by arithmetic of our own; pads are behind 46."""
    ranks, rank = reader.world.num_shards, reader.world.shard_id
    return start + ((reader.step - 1) * reader.batch_size + place) * ranks + rank


def by_position(reader, start=0):
    """Reads the rest of an epoch; gives what was read by its position."""
    return {position(reader, place, start): sample for batch in reader for place, sample in enumerate(batch)}


def run_job(folder, run, ranks, rank, workers, killed_after=None):
    """A training job of one rank: goes on from the checkpoint, and writes a line for each sample.

    It saves a checkpoint after its second step, and kills itself after some step if that is wanted.
    """
    reader = loader(ranks, rank, workers)
    saved = folder / "state.json"
    start = 0
    # A rank that starts late must not take what another one of the same job has saved already.
    if killed_after is None and saved.exists():
        state = json.loads(saved.read_text())
        reader.load_state_dict(state)
        start = state["position"]
    with reader, (folder / f"{run}.{rank}.jsonl").open("w") as ledger:
        for batch in reader:
            for place, sample in enumerate(batch):
                ledger.write(json.dumps([position(reader, place, start), *sample]) + "\n")
            ledger.flush()
            if reader.step == 2 and killed_after is not None:
                saved.write_text(json.dumps(reader.state_dict()))
            if reader.step == killed_after:
                os.kill(os.getpid(), signal.SIGKILL)


def written(folder, run):
    """What the ranks of a run have written, by position."""
    found = {}
    for path in folder.glob(f"{run}.*.jsonl"):
        for line in path.read_text().splitlines():
            where, *sample = json.loads(line)
            assert where not in found
            found[where] = tuple(sample)
    return found
