"""A training job under torchrun, for tests that kill it: each rank writes what its loop received to a ledger.

Run as `torchrun --nproc-per-node RANKS -m tests.loading.job FOLDER RUN [--kill WHO:STEP]`. The folder holds
the ledgers `RUN.RANK.jsonl`, a line for each batch, and the checkpoint `state.json`, saved every third step.
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

SAMPLES, SAVED_EVERY = 480, 3


class Squares:
    """Sample i is (i, i squared)."""

    layout = sk.Layout([60] * 8)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return index, index * index


def save(folder: Path, state: dict) -> None:
    """Replaces the checkpoint at once: a crash leaves the old one or the new one."""
    temporary = folder / "state.json.new"
    temporary.write_text(json.dumps(state))
    temporary.replace(folder / "state.json")


def strike(kill: str | None, rank: int, step: int, loader: sk.Loader) -> None:
    """Kills what the command line says, when it is time: this rank, one of its workers, or the whole job."""
    who, _, at = (kill or "nobody:0").partition(":")
    if rank != torch.distributed.get_world_size() - 1 or step != int(at) or who == "nobody":
        return
    if who == "worker":
        os.kill(loader.worker_pids[0], signal.SIGKILL)
        return
    if who == "job":
        # torchrun gives each rank a session of its own, so that its process group is not the whole job.
        torchrun = os.getppid()
        tasks = Path(f"/proc/{torchrun}/task").glob("*/children")
        ranks = [int(pid) for task in tasks for pid in task.read_text().split()]
        for pid in (torchrun, *(pid for pid in ranks if pid != os.getpid())):
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
    rank = torch.distributed.get_rank()
    batch_size = 24 // torch.distributed.get_world_size()
    sampler = sk.DistributedSampler(shuffle="partial", partial_size=70, seed=11)
    loader = sk.Loader(
        Squares(),
        sampler,
        batch_size=batch_size,
        num_workers=1,
        persistent_workers=True,
        tail="pad",
        collate_fn=list,
    )
    checkpoint = options.folder / "state.json"
    if checkpoint.exists():
        loader.load_state_dict(json.loads(checkpoint.read_text()))
    step = 0
    with loader, (options.folder / f"{options.run}.{rank}.jsonl").open("w") as ledger:
        while loader.epoch < options.epochs:
            for batch in loader:
                pads = loader.pads(loader.step - 1).tolist()
                received = [index for (index, _), pad in zip(batch, pads, strict=True) if not pad]
                ledger.write(json.dumps({"epoch": loader.epoch, "ids": received}) + "\n")
                ledger.flush()
                torch.distributed.all_reduce(torch.ones(1))
                step += 1
                if step % SAVED_EVERY == 0:
                    if rank == 0:
                        save(options.folder, {**loader.state_dict()})
                        (options.folder / f"{options.run}.saved").write_text(str(step))
                    torch.distributed.barrier()
                strike(options.kill, rank, step, loader)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
