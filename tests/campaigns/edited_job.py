"""A job that edits itself, in two epochs.

In the first one its weights change at one step, and it skips twenty others. In the second one samples leave,
and steps grow to twice their size and shrink to half of it.

Run as `python -m tests.ranks RANKS tests.campaigns.edited_job FOLDER RUN --kill POSITION`. Each
rank writes what its loop received, one line a step; the first rank saves the state after each step. With
`--kill`, every rank kills itself when that position is reached.
"""

import argparse
import json
import os
import signal
from itertools import chain
from pathlib import Path

from torch import distributed

import samplerkit as sk
from tests.numbers import Numbers

PARTS = {"web": 4000, "code": 2500, "books": 1500}
GLOBAL_BATCH, LENGTH, LANES = 24, 2400, 4
CHANGED_AT, SKIPPED_AT = 20 * GLOBAL_BATCH, 45 * GLOBAL_BATCH
BEFORE, AFTER = {"web": 0.5, "code": 0.25, "books": 0.25}, {"web": 0.25, "code": 0.625, "books": 0.125}
THINNED_AT, GROWN_AT, SHRUNK_AT = LENGTH + 480, LENGTH + 960, LENGTH + 1920
EDITS = [
    sk.Edit(at=CHANGED_AT, weights=AFTER),
    sk.Edit(at=SKIPPED_AT, skip=20 * GLOBAL_BATCH),
    sk.Edit(at=THINNED_AT, without=range(0, 6500, 3)),
    sk.Edit(at=GROWN_AT, global_batch=2 * GLOBAL_BATCH),
    sk.Edit(at=SHRUNK_AT, global_batch=GLOBAL_BATCH // 2),
]


def recipe(edits_file):
    mix = sk.MixtureSampler(
        dict.fromkeys(PARTS, sk.SequentialSampler()), LENGTH, weights=BEFORE, lanes=LANES, seed=5
    )
    return sk.Ledger(mix, edits_file=edits_file)


def run(folder, name, kill):
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    sampler, data = recipe(folder / "edits.jsonl"), Numbers(sk.Layout.tree(PARTS))
    loader = sk.Loader(data, sampler, batch_size=GLOBAL_BATCH // ranks, num_workers=1)
    saved = folder / "state.json"
    if saved.exists():
        loader.load_state_dict(json.loads(saved.read_text()))
    with (folder / f"{name}-{rank}.jsonl").open("w") as ledger:
        for batch in chain.from_iterable(loader for _ in range(loader.epoch, 2)):
            state = loader.state_dict()
            position, size = state["epoch"] * LENGTH + state["position"], ranks * len(batch)
            line = {"from": position - size, "to": position, "ids": batch.tolist()}
            ledger.write(json.dumps(line) + "\n")
            ledger.flush()
            for edit in EDITS[len(loader.sampler.edits) :]:
                # Some steps ahead, where all ranks may: at most three batches are on their way.
                if position >= edit.at - 6 * size:
                    loader.edit(edit)
            distributed.barrier()
            if rank == 0:
                (folder / "part.json").write_text(json.dumps(state))
                (folder / "part.json").replace(saved)
            distributed.barrier()
            if position == kill:
                os.kill(os.getpid(), signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("run")
    parser.add_argument("--kill", type=int)
    options = parser.parse_args()
    distributed.init_process_group("gloo")
    run(options.folder, options.run, options.kill)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
