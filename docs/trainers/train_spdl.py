"""Trains with an SPDL pipeline whose source is the ids of a loader; SPDL reads and decodes in threads.

python docs/trainers/train_spdl.py FOLDER
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from digits import Digits
from loop import start
from spdl.pipeline import PipelineBuilder

import samplerkit as sk

EPOCHS = 2


def ids_of(loader: sk.Loader) -> Iterator[np.ndarray]:
    """The source: yields the ids of each remaining batch of the epoch."""
    return (loader.ids(step) for step in range(loader.steps_left))


def main() -> None:
    """Trains to the end."""
    loop, digits = start(), Digits()
    # This loader reads no data: it deals ids, and has the state after any step.
    loader = sk.Loader(digits, sk.RandomSampler(seed=7), batch_size=32)
    if loop.data is not None:
        loader.load_state_dict(loop.data)

    def read(ids: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return digits.images[ids], digits.labels[ids], torch.from_numpy(ids)

    while (epoch := loader.epoch) < EPOCHS:
        # Four batches at a time, in the order of the input.
        builder = PipelineBuilder().add_source(ids_of(loader))
        builder = builder.pipe(read, concurrency=4, output_order="input").add_sink(8)
        pipeline = builder.build(num_threads=4)
        with pipeline.auto_stop():
            for step, batch in enumerate(pipeline, 1):
                if loop.train(epoch, *batch):
                    # SPDL reads ids ahead of this loop: save the state after the steps of this loop.
                    loop.save(loader.state_dict(step=step))
        loader.load_state_dict(loader.state_dict(step=loader.steps_left))
    loop.end()


if __name__ == "__main__":
    main()
