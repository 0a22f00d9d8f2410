"""Trains on tar shards of JPEG images in WebDataset's format, read in a fully random order, resumable.

python docs/examples/train_tar_shards.py "shards/train-{000..127}.tar"
python docs/examples/train_tar_shards.py          (makes shards from two photographs)

A sample is a `.jpg` and a `.cls` with its class. Needs Pillow; without shards, scikit-learn as well.
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import io
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import nn

import samplerkit as sk
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.writer import TarWriter

EPOCHS = 8


def is_held_out(key: str) -> bool:
    """Every fifth sample is a test sample, in every run."""
    return sum(key.encode()) % 5 == 0


def is_for_training(key: str) -> bool:
    """All other samples."""
    return not is_held_out(key)


def train(shards: str, cache: Path | None = None) -> None:
    """Trains a small network, and prints its accuracy on the test samples."""
    torch.set_num_threads(1)  # more threads would not help such a small network
    torch.manual_seed(0)
    # Lazy: no image is read. Keys come from the index, so this selection reads none either.
    images = TarDataset(shards, cache=cache).decode("torchrgb").rename(image="jpg;jpeg;png")
    pairs = images.to_tuple("image", "cls")
    training, held_out = (pairs.select(chosen, by="key") for chosen in (is_for_training, is_held_out))
    print(
        f"{len(training)} samples to train on, {len(held_out)} to test, in {training.layout.num_files} shards"
    )

    # All modes work on shards, including GLOBAL, since samples are read at random. Under torchrun each rank
    # reads its part; save loader.state_dict() in your checkpoint.
    loader = sk.Loader(training, sk.RandomSampler(seed=7), batch_size=32, num_workers=1)
    test = sk.Loader(held_out, sk.SequentialSampler(), batch_size=64, tail="ragged")
    features = nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU()
    )
    model = nn.Sequential(features, nn.Flatten(), nn.LazyLinear(2))
    model(training[0][0][None])  # LazyLinear needs a batch to find its size
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for epoch in range(EPOCHS):
        for batch, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch), labels).backward()
            optimizer.step()
        with torch.no_grad():
            right = sum(int((model(batch).argmax(dim=1) == labels).sum()) for batch, labels in test)
        print(f"epoch {epoch}: test accuracy {right / len(held_out):.3f}")


def write_tiles(pattern: str) -> None:
    """Writes tiles of scikit-learn's two photographs, a temple and a flower, as JPEG files in shards."""
    from PIL import Image  # noqa: PLC0415  # here, so that only who makes images needs it
    from sklearn.datasets import load_sample_images  # noqa: PLC0415

    side = 24
    with TarWriter(pattern, samples_per_shard=200) as writer:
        for label, photo in enumerate(load_sample_images().images):
            for top in range(0, photo.shape[0] - side, side):
                for left in range(0, photo.shape[1] - side, side):
                    stream = io.BytesIO()
                    tile = np.ascontiguousarray(photo[top : top + side, left : left + side])
                    Image.fromarray(tile).save(stream, "JPEG")
                    key = f"photo{label}/{top:03}_{left:03}"
                    writer.write({"__key__": key, "jpg": stream.getvalue(), "cls": label})


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(sys.argv[1])
    else:
        with TemporaryDirectory() as temporary:
            write_tiles(f"{temporary}/tiles-%03d.tar")
            train(f"{temporary}/tiles-*.tar", cache=Path(temporary) / "cache")
