"""Trains with an SPDL pipeline, whose source is a loader's ids: SPDL reads and decodes in threads of its own.

python docs/trainers/train_spdl.py FOLDER
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from digits import Digits
from loop import begun
from spdl.pipeline import PipelineBuilder

import samplerkit as sk

EPOCHS = 2


def ids_of(loader: sk.Loader) -> Iterator[np.ndarray]:
    """The source: the ids of each batch that is left in the epoch."""
    return (loader.ids(step) for step in range(loader.steps_left))


def main() -> None:
    """Trains to the end."""
    loop, digits = begun(), Digits()
    # It reads nothing here: it deals, and knows what a state says after any step.
    loader = sk.Loader(digits, sk.RandomSampler(seed=7), batch_size=32)
    if loop.data is not None:
        loader.load_state_dict(loop.data)

    def read(ids: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return digits.images[ids], digits.labels[ids], torch.from_numpy(ids)

    while (epoch := loader.epoch) < EPOCHS:
        # Four at a time; without the order of the input, batches would change places.
        builder = PipelineBuilder().add_source(ids_of(loader))
        builder = builder.pipe(read, concurrency=4, output_order="input").add_sink(8)
        pipeline = builder.build(num_threads=4)
        with pipeline.auto_stop():
            for step, batch in enumerate(pipeline, 1):
                if loop.train(epoch, *batch):
                    # SPDL has asked for more ids than this loop has seen: the state is that after our steps.
                    loop.save(loader.state_dict(step=step))
        loader.load_state_dict(loader.state_dict(step=loader.steps_left))
    loop.end()


if __name__ == "__main__":
    main()
