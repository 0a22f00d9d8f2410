"""Trains on a folder of images, a subfolder for each class, in the order of a samplerkit sampler.

python docs/examples/train_image_folder.py my_images
python docs/examples/train_image_folder.py            (makes a small folder of handwritten digits)

Needs Pillow; without a folder, scikit-learn as well.
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import samplerkit as sk

SIDE = 16
"""Images are scaled to this many pixels each way."""


class ImageFolder(Dataset[tuple[torch.Tensor, int]]):
    """An ordinary map-style dataset: it knows nothing of samplers."""

    def __init__(self, folder: Path) -> None:
        self.classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
        # Sorted, so that a sample has the same id on every machine.
        found = [(path, name) for name in self.classes for path in sorted((folder / name).iterdir())]
        self.paths = [path for path, _ in found]
        # Samplers that look at labels, PKSampler for one, find them under this name, as torchvision has it.
        self.targets = [self.classes.index(name) for _, name in found]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        from PIL import Image  # noqa: PLC0415  # here, so that only who reads images needs Pillow

        with Image.open(self.paths[index]) as image:
            grey = np.asarray(image.convert("L").resize((SIDE, SIDE)), dtype=np.float32)
        return torch.from_numpy(grey / 255)[None], self.targets[index]


def train(folder: Path) -> None:
    """Trains a small network and prints its accuracy on every fifth image."""
    torch.set_num_threads(1)  # so small a network gains nothing from more
    torch.manual_seed(0)
    dataset = ImageFolder(folder)
    numbers = np.arange(len(dataset))
    print(f"{len(dataset)} images of {len(dataset.classes)} classes")

    # A chain: the child keeps four fifths of the images, the parent shuffles these and deals them to the
    # ranks of the job (here one). Any sampler can stand here: sk.PKSampler(8) draws 8 images of each class.
    sampler = sk.DistributedSampler(shuffle=sk.Shuffle.GLOBAL, seed=7)
    sampler.add_child(sk.SubsetSampler(numbers[numbers % 5 != 0]))
    loader = DataLoader(dataset, batch_size=32, num_workers=2, sampler=sk.TorchSampler(sampler, dataset))
    held_out = sk.TorchSampler(sk.SubsetSampler(numbers[numbers % 5 == 0]), dataset)

    features = nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()
    )
    model = nn.Sequential(features, nn.Flatten(), nn.LazyLinear(len(dataset.classes)))
    model(torch.zeros(1, 1, SIDE, SIDE))  # LazyLinear learns its size
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for epoch in range(5):
        for images, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), targets)
            loss.backward()
            optimizer.step()
        right = 0
        with torch.no_grad():
            for images, targets in DataLoader(dataset, batch_size=100, sampler=held_out):
                right += int((model(images).argmax(dim=1) == targets).sum())
        print(f"epoch {epoch}: test accuracy {right / len(held_out):.3f}")


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
    if len(sys.argv) > 1:
        train(Path(sys.argv[1]))
    else:
        with TemporaryDirectory() as temporary:
            write_digits(Path(temporary))
            train(Path(temporary))
