"""Trains on a folder of images with a subfolder per class: balanced, augmented, resumable.

python docs/examples/train_image_folder.py my_images [checkpoint.pt]
python docs/examples/train_image_folder.py            (makes a small folder of handwritten digits)

With a checkpoint, you can stop it at any time and run the same command again: it resumes with the remaining
samples, each augmented as in an uninterrupted run. Needs Pillow; without a folder also scikit-learn.
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

import samplerkit as sk

SIDE = 16
"""Images are scaled to this width and height in pixels."""

SAVE_EVERY = 20
"""Steps between checkpoints."""


class ImageFolder(Dataset[tuple[torch.Tensor, int]]):
    """An ordinary map-style dataset: it knows nothing of samplers."""

    def __init__(self, folder: Path, *, augment: bool) -> None:
        self.classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
        # Sorted, so that a sample has the same id on every machine.
        items = [(path, name) for name in self.classes for path in sorted((folder / name).iterdir())]
        self.paths = [path for path, _ in items]
        # Samplers that need labels, such as PKSampler, find them by this name, which is torchvision's.
        self.targets = [self.classes.index(name) for _, name in items]
        self.augment = augment

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        from PIL import Image  # noqa: PLC0415  # here, so that only who reads images needs Pillow

        with Image.open(self.paths[index]) as image:
            grey = np.asarray(image.convert("L").resize((SIDE, SIDE)), dtype=np.float32)
        if self.augment:
            # The generator of this draw: an image that is drawn twice is shifted in two ways, and a resumed
            # run shifts like an uninterrupted one. For transforms that take no generator, such as those of
            # torchvision, use seed_draws=True of the loader instead.
            top, left = sk.draw_rng().integers(0, 3, 2)
            grey = np.pad(grey, 1)[top : top + SIDE, left : left + SIDE]
        return torch.from_numpy(grey / 255)[None], self.targets[index]


def train(folder: Path, checkpoint: Path, epochs: int = 5) -> None:
    """Trains, from the checkpoint if there is one; prints the accuracy on every fifth image."""
    torch.set_num_threads(1)  # more threads would not help such a small network
    torch.manual_seed(0)
    images = ImageFolder(folder, augment=True)
    numbers, classes = np.arange(len(images)), np.array(images.targets)
    print(f"{len(images)} images of {len(images.classes)} classes", flush=True)

    # A chain: the child keeps four fifths of the images; the parent draws from these, and has a weight for
    # each of them. All classes are drawn equally often, however many images they have.
    kept = numbers[numbers % 5 != 0]
    balanced = sk.WeightedRandomSampler(1 / np.bincount(classes)[classes[kept]], seed=7)
    balanced.add_child(sk.SubsetSampler(kept))
    # The loader deals the order to the ranks of the job (here one).
    loader = sk.Loader(images, balanced, batch_size=32, num_workers=2)
    # `ragged`: each image exactly once, without padding, so the accuracy is exact on any number of ranks.
    # Ranks may differ by a step: sum their counts after the loop, not in it.
    held_out = sk.Loader(
        ImageFolder(folder, augment=False),
        sk.SubsetSampler(numbers[numbers % 5 == 0]),
        batch_size=100,
        tail="ragged",
    )

    features = nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()
    )
    model = nn.Sequential(features, nn.Flatten(), nn.LazyLinear(len(images.classes)))
    model(torch.zeros(1, 1, SIDE, SIDE))  # LazyLinear needs a batch to find its size
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

    def save() -> None:
        # One file, so that model and order always fit together. In a distributed job, rank 0 writes it.
        parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        with checkpoint.with_suffix(".new").open("wb") as file:
            torch.save({**parts, "loader": loader.state_dict()}, file)
            os.fsync(file.fileno())  # on disk before it is renamed
        checkpoint.with_suffix(".new").replace(checkpoint)  # atomic: the old file or the new one

    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        print(f"continues in epoch {loader.epoch}", flush=True)
    with loader, held_out:
        while loader.epoch < epochs:
            epoch = loader.epoch
            for pixels, targets in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(pixels), targets)
                loss.backward()
                optimizer.step()
                if loader.step % SAVE_EVERY == 0:
                    save()
            right = seen = 0
            with torch.no_grad():
                for pixels, targets in held_out:
                    right += int((model(pixels).argmax(dim=1) == targets).sum())
                    seen += len(targets)
            print(f"epoch {epoch}: test accuracy {right / seen:.3f} of {seen} images", flush=True)
            save()


def write_digits(folder: Path) -> None:
    """Writes scikit-learn's handwritten digits as small images."""
    from PIL import Image  # noqa: PLC0415
    from sklearn.datasets import load_digits  # noqa: PLC0415

    digits = load_digits()
    for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        (folder / str(label)).mkdir(exist_ok=True)
        image = Image.fromarray((pixels * 15.9375).astype(np.uint8))
        image.save(folder / str(label) / f"{number:04}.png")


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        if len(sys.argv) > 1:
            images_folder = Path(sys.argv[1])
        else:
            images_folder = Path(temporary, "digits")
            images_folder.mkdir()
            write_digits(images_folder)
        train(images_folder, Path(sys.argv[2]) if len(sys.argv) > 2 else Path(temporary, "checkpoint.pt"))
