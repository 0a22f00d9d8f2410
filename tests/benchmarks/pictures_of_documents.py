"""Draws the picture of which documents are read when: windows of two corpora, shuffled and in a mixture.

Run it with `python -m tests.benchmarks.pictures_of_documents`. It comes out the same each time, so a picture
that changes is an order that changed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import samplerkit as sk
from samplerkit.inspect.pictures.panels import LIGHT, draw_documents, new_figure
from samplerkit.inspect.pictures.plot_data import plot_data
from tests.benchmarks.pictures_of_orders import WIDTH, keep, small_png_of

NAME = "documents.png"
HEIGHT = 4.6
CORPORA = {"web-0": 60, "web-1": 60, "code": 30}
"""Documents of each file."""


def loaders(folder: Path) -> dict[str, sk.Loader]:
    """Gives the two runs, by the titles of their panels."""
    lengths = np.random.default_rng(5)
    for name, documents in CORPORA.items():
        with sk.TokenWriter(folder / name, "uint16") as writer:
            for length in np.clip(lengths.lognormal(6.5, 1.2, documents), 10, 20_000).astype(int):
                writer.write(np.zeros(length, dtype=np.uint16))
    files = {"web": [folder / "web-0", folder / "web-1"], "code": folder / "code"}
    data = sk.TokenDataset(files, 128, documents="idx", seed=1)
    alike = sk.MixtureSampler({"web": None, "code": None}, weights={"web": 1, "code": 1}, seed=7)
    samplers = {
        'RandomSampler(shuffle="infile")': sk.RandomSampler(shuffle="infile", seed=7),
        "MixtureSampler, as much code as web": alike,
    }
    return {
        title: sk.Loader(data, sampler, batch_size=4, world=sk.World(2, 0))
        for title, sampler in samplers.items()
    }


def draw() -> bytes:
    """Draws both side by side."""
    figure = new_figure(WIDTH, HEIGHT, LIGHT)
    with tempfile.TemporaryDirectory() as folder:
        draw_documents(figure, plot_data(loaders(Path(folder))), LIGHT)
    return small_png_of(figure)


def main() -> None:
    """Draws it."""
    keep(NAME, draw())


if __name__ == "__main__":
    main()
