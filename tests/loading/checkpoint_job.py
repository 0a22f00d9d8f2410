"""A training job that keeps model and loader in one `torch.distributed.checkpoint`.

Run as `python -m tests.ranks RANKS tests.loading.checkpoint_job FOLDER RUN BATCH_SIZE`, to the end or for
`--steps` steps. Each rank writes what its loop received to the ledger `RUN.RANK.jsonl`. The checkpoint is
saved every third step. The model counts how often it has learned from each sample; at the end that goes to
`learned.json`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
import torch.distributed
import torch.distributed.checkpoint as dcp

import samplerkit as sk
from tests.numbers import Numbers

SAMPLES, EPOCHS, SAVED_EVERY = 480, 2, 3


class Tally(torch.nn.Module):
    """A model that is nothing but the number of times it has learned from each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("times", torch.zeros(SAMPLES, dtype=torch.int64))

    def learn(self, samples: list[int]) -> None:
        """Adds what all ranks have received in this step."""
        seen = torch.bincount(torch.tensor(samples, dtype=torch.int64), minlength=SAMPLES)
        torch.distributed.all_reduce(seen)
        self.times += seen


def main() -> None:
    """Reads on from the last checkpoint, to the end of the epochs or for some steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("run")
    parser.add_argument("batch_size", type=int)
    parser.add_argument("--steps", type=int)
    options = parser.parse_args()
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    layout = sk.Layout([60] * 8)
    sampler = sk.DistributedSampler(shuffle="partial", partial_size=70, seed=11)
    model, step = Tally(), 0
    latest = options.folder / "latest"
    with (
        sk.Loader(Numbers(layout), sampler, batch_size=options.batch_size, num_workers=1) as loader,
        (options.folder / f"{options.run}.{rank}.jsonl").open("w") as ledger,
    ):
        if latest.exists():
            dcp.load({"loader": loader, "model": model}, checkpoint_id=options.folder / latest.read_text())
        while loader.epoch < EPOCHS and step != options.steps:
            for batch in loader:
                received = batch[torch.from_numpy(~loader.pads(loader.step - 1))].tolist()
                ledger.write(json.dumps({"epoch": loader.epoch, "ids": received}) + "\n")
                ledger.flush()
                model.learn(received)
                step += 1
                if step % SAVED_EVERY == 0:
                    name = f"{options.run}-{step}"
                    dcp.save({"loader": loader, "model": model}, checkpoint_id=options.folder / name)
                    if rank == 0:
                        (options.folder / "latest.new").write_text(name)
                        (options.folder / "latest.new").replace(latest)
                        (options.folder / f"{options.run}.saved").write_text(str(step))
                if step == options.steps:
                    break
    if rank == 0:
        (options.folder / "learned.json").write_text(json.dumps(model.times.tolist()))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
