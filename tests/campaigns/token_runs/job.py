"""A training job over windows of tokens: each rank writes the tokens that its loop received.

Run as `python -m tests.ranks RANKS tests.campaigns.token_runs.job FOLDER RUN SEQ_LEN [--kill STEP]`.
The checkpoint `state.json` is saved whenever a step ends with a pool, where the length may change.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path

import torch
import torch.distributed

import samplerkit as sk

BLOCK, POOL, TOKENS_A_STEP = 32, 3, 96


def main() -> None:
    """Trains until the end of the second epoch, or until this job is killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("run")
    parser.add_argument("seq_len", type=int)
    parser.add_argument("--kill", type=int)
    given = parser.parse_args()
    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    data = sk.TokenDataset(
        [given.folder / "a.npy", given.folder / "b.npy"], given.seq_len, block_len=BLOCK, seed=9
    )
    batch_size = TOKENS_A_STEP // given.seq_len // ranks
    loader = sk.Loader(data, sk.BlockSampler(POOL, seed=5), batch_size=batch_size, num_workers=1)
    checkpoint = given.folder / "state.json"
    if checkpoint.exists():
        loader.load_state_dict(json.loads(checkpoint.read_text()))
    steps = 0
    with loader, (given.folder / f"{given.run}.{rank}.jsonl").open("w") as ledger:
        while loader.epoch < 2:
            epoch = loader.epoch
            for batch in loader:
                pads = loader.pads(loader.step - 1)
                inputs = batch[~torch.from_numpy(pads)][:, :-1].reshape(-1).tolist()
                place = loader.state_dict()
                ledger.write(json.dumps({"epoch": epoch, "tokens": inputs}) + "\n")
                ledger.flush()
                torch.distributed.all_reduce(torch.ones(1))
                steps += 1
                if steps == given.kill:
                    # All ranks are here: none has begun the step behind the one that is saved.
                    os.kill(os.getpid(), signal.SIGKILL)
                saves = place["position"] * given.seq_len % (BLOCK * POOL) == 0
                if saves and rank == 0:
                    written = checkpoint.with_suffix(".new")
                    written.write_text(json.dumps(place))
                    written.replace(checkpoint)
                torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
