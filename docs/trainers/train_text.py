"""Trains on texts of different lengths, in batches with a token budget, with DistributedDataParallel.

torchrun --standalone --nproc-per-node 2 docs/trainers/train_text.py FOLDER

`--plain` trains in batches of equal size instead, to compare.
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

# Imported before the process group is created. Otherwise its default arguments keep the group alive, and
# gloo's threads may abort the process at exit.
import torch.distributed.nn.functional
from digits import Ledger, end_process_group
from texts import BATCHES, COLLATE, NO_TARGET, Reader, Texts, loss_on_new_texts, loss_sum
from torch.nn.parallel import DistributedDataParallel

import samplerkit as sk

PLAIN = 40
"""The batch size with which a batch has about as many letters as the budget allows."""


def make_loader(texts: Texts, *, plain: bool) -> sk.Loader:
    """Makes the loader, which depends neither on the rank nor on the number of ranks."""
    if plain:
        return sk.Loader(texts, sk.RandomSampler(seed=7), batch_size=PLAIN, collate_fn=COLLATE)
    # One batch per rank and step, from the lengths of the dataset. The last batches are split, so that each
    # text is read exactly once and all ranks take equally many steps.
    return sk.Loader(texts, sk.RandomSampler(seed=7), batches=BATCHES, tail="split", collate_fn=COLLATE)


def letters_of_all(loader: sk.Loader, targets: torch.Tensor) -> int:
    """Returns the number of letters that all ranks read in the current step."""
    if loader.batches is not None:
        return loader.tokens(loader.step - 1)  # every rank can compute it
    count = (targets != NO_TARGET).sum()
    dist.all_reduce(count)
    return int(count)


def train(folder: Path, epochs: int, *, plain: bool = False) -> None:
    """Trains to the end, from the last checkpoint if there is one."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    network = Reader()
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    ledger, step = Ledger(folder, rank), 0

    with make_loader(Texts(), plain=plain) as loader:
        checkpoint = folder / "checkpoint.pt"
        if checkpoint.exists():
            saved = torch.load(checkpoint, weights_only=True)
            network.load_state_dict(saved["network"])
            optimizer.load_state_dict(saved["optimizer"])
            loader.load_state_dict(saved["loader"])
            step = saved["step"]
            if rank == 0:
                print(f"continues in epoch {loader.epoch}, step {step}, on {ranks} ranks", flush=True)

        for epoch in range(loader.epoch, epochs):
            begin, read, padded = time.perf_counter(), 0, torch.tensor(0)
            for batch in loader:
                ledger.write(epoch, step, batch["id"])
                letters = letters_of_all(loader, batch["targets"])
                # DDP averages the gradients of the ranks. With each rank's mean loss that average would be
                # wrong, since ranks have different numbers of letters. So each adds its part of one mean.
                loss = loss_sum(model(batch["letters"]), batch["targets"]) * ranks / letters
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                with (folder / f"losses-{rank}.jsonl").open("a") as file:
                    file.write(json.dumps([step, loss.item()]) + "\n")
                read += letters
                padded += batch["letters"].numel()
                step += 1
                if step % 5 == 0 and rank == 0:
                    state = {
                        "network": network.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "loader": loader.state_dict(),  # the same on all ranks
                        "step": step,
                    }
                    with (folder / "checkpoint.new").open("wb") as file:
                        torch.save(state, file)
                        os.fsync(file.fileno())  # on disk before it is renamed
                    (folder / "checkpoint.new").replace(checkpoint)  # atomic: the old file or the new one
            dist.all_reduce(padded)
            if rank == 0:
                seconds = time.perf_counter() - begin
                spent = f"{read} letters, {int(padded)} with padding, {seconds:.1f} s"
                loss = loss_on_new_texts(network)
                print(f"epoch {epoch}: {step} steps, {spent}, loss on new texts {loss:.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="folder for checkpoints and ledgers")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--plain", action="store_true", help="batches of equal size")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the processes share the CPU
    dist.init_process_group("gloo")  # "nccl" with a GPU for each process
    train(options.folder, options.epochs, plain=options.plain)
    end_process_group()
