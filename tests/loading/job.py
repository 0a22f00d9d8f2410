"""A training job for tests that kill it: each rank writes what its loop received to a ledger.

Run as `torchrun --nproc-per-node RANKS -m tests.loading.job FOLDER RUN [--kill WHO:STEP]`, or by
`tests.ranks`. It reads by three loaders in turn: batches of one size, batches within a budget of tokens, and
over threads windows of tokens, which are as long as the number of ranks says. The folder holds the ledgers
`RUN.RANK.jsonl`, `RUN-tokens.RANK.jsonl` and `RUN-windows.RANK.jsonl`, a line for each batch, and the
checkpoints, saved every third step: `state.json`, `state-windows.json`, and what `state-tokens.json` names, a
folder of `torch.distributed.checkpoint`.
"""

import argparse
import json
import os
import signal
from functools import partial
from itertools import accumulate, zip_longest
from pathlib import Path

import numpy as np
import torch
import torch.distributed
import torch.distributed.checkpoint as dcp

import samplerkit as sk
from tests.numbers import Made

SAMPLES, SAVED_EVERY = 480, 3
FILES, BLOCK, POOL = (800, 1088), 32, 3
"""Tokens of two files, of a block, and blocks of a pool, at whose end windows may get another length."""


SQUARES = Made(sk.Layout([60] * 8), lambda index: (index, index * index))


class Stream:
    """One loader with its ledger and its checkpoint.

    Args:
        folder: where they are.
        run: the name of the run.
        name: of the stream.
        loader: what reads it; the ids are all of a sample but its last value.
        by_torch: whether its checkpoints are torch's.
    """

    def __init__(self, folder: Path, run: str, name: str, loader: sk.Loader, *, by_torch: bool = False):
        self.loader = loader
        self.checkpoint = folder / f"state{name}.json"
        self.by_torch = by_torch
        if self.checkpoint.exists():
            saved = json.loads(self.checkpoint.read_text())
            if by_torch:
                dcp.load({"loader": self.loader}, checkpoint_id=saved)
            else:
                self.loader.load_state_dict(saved)
        self.saved = folder / f"{run}{name}.saved"
        self.ledger = (folder / f"{run}{name}.{torch.distributed.get_rank()}.jsonl").open("w")
        self.step = 0

    def steps(self, epochs):
        """Reads the rest of the epochs, a batch at a time."""
        with self.loader, self.ledger:
            while self.loader.epoch < epochs:
                for batch in self.loader:
                    pads = self.loader.pads(self.loader.step - 1).tolist()
                    samples = [sample for sample, pad in zip(batch, pads, strict=True) if not pad]
                    received = [int(id) for sample in samples for id in sample[:-1]]
                    self.ledger.write(json.dumps({"epoch": self.loader.epoch, "ids": received}) + "\n")
                    self.ledger.flush()
                    torch.distributed.all_reduce(torch.ones(1))
                    self.step += 1
                    if self.step % SAVED_EVERY == 0:
                        self.save()
                    yield

    def save(self):
        """Replaces the checkpoint at once: a crash leaves the old one or the new one."""
        saved = {**self.loader.state_dict()}
        if self.by_torch:
            saved = str(self.saved.with_suffix(f".{self.step}"))
            dcp.save({"loader": self.loader}, checkpoint_id=saved)
        if torch.distributed.get_rank() == 0:
            temporary = self.checkpoint.with_suffix(".new")
            temporary.write_text(json.dumps(saved))
            temporary.replace(self.checkpoint)
            self.saved.write_text(str(self.step))
        torch.distributed.barrier()


def corpus(folder: Path, seq_len: int) -> sk.TokenDataset:
    """Windows of tokens that are their own places."""
    paths = [folder / f"{number}.npy" for number in range(len(FILES))]
    if torch.distributed.get_rank() == 0 and not paths[-1].exists():
        for path, end, count in zip(paths, accumulate(FILES), FILES, strict=True):
            np.save(path, np.arange(end - count, end, dtype=np.uint16))
    torch.distributed.barrier()
    return sk.TokenDataset(paths, seq_len, block_len=BLOCK, seed=9)


def kill_if_due(kill: str | None, rank: int, step: int, loader: sk.Loader) -> None:
    """Kills, at the step on the command line, this rank, one of its workers, or the whole job."""
    target, _, at = (kill or "nobody:0").partition(":")
    if rank != torch.distributed.get_world_size() - 1 or step != int(at) or target == "nobody":
        return
    if target == "worker":
        os.kill(loader.worker_pids[0], signal.SIGKILL)
        return
    if target == "job":
        # torchrun gives each rank a session of its own, so that its process group is not the whole job.
        starter = os.getppid()
        tasks = Path(f"/proc/{starter}/task").glob("*/children")
        ranks = [int(pid) for task in tasks for pid in task.read_text().split()]
        for pid in (starter, *(pid for pid in ranks if pid != os.getpid())):
            os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Reads the rest of the epochs from the last checkpoint on."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("run")
    parser.add_argument("--kill")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    loader = partial(sk.Loader, num_workers=2, persistent_workers=True)
    sampler = partial(sk.DistributedSampler, shuffle="partial", partial_size=70, seed=11)
    lengths = [5 + 7 * number % 16 for number in range(SAMPLES)]
    tokens = sk.TokenBatches(80, lengths=lengths, window=150)
    seq_len = 16 if ranks % 2 else 8
    windows = loader(
        corpus(options.folder, seq_len),
        sk.BlockSampler(POOL, seed=5),
        batch_size=BLOCK * POOL // seq_len // ranks,  # a step is a pool
        workers="threads",
        run_ahead=True,
    )
    samples = loader(SQUARES, sampler(), batch_size=24 // ranks, collate_fn=list, file_affinity=True)
    batches = loader(SQUARES, sampler(), batches=tokens, tail="split", num_workers=1, collate_fn=list)
    stream = partial(Stream, options.folder, options.run)
    streams = [stream("", samples), stream("-tokens", batches, by_torch=True), stream("-windows", windows)]
    for step, _ in enumerate(zip_longest(*(stream.steps(options.epochs) for stream in streams)), start=1):
        kill_if_due(options.kill, rank, step, samples)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
