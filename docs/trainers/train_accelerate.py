"""Trains with Accelerate on any number of processes, and resumes from the last checkpoint.

torchrun --standalone --nproc-per-node 2 docs/trainers/train_accelerate.py FOLDER     (or `accelerate launch`)
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

# Imported before the process group is created. Otherwise its default arguments keep the group alive, and
# gloo's threads may abort the process at exit.
import torch.distributed.nn.functional
from accelerate import Accelerator
from digits import Digits, Ledger, accuracy, end_process_group, make_network
from torch import nn

import samplerkit as sk


def train(folder: Path, epochs: int) -> None:
    """Trains to the end, from the last checkpoint if there is one."""
    accelerator = Accelerator(cpu=True)
    # The loader deals to the ranks itself, so do not `prepare` it; register its state for checkpoints.
    # With a GPU for each process, pass device=accelerator.device.
    batch_size = 64 // accelerator.num_processes
    loader = sk.Loader(Digits(), sk.RandomSampler(seed=7), batch_size=batch_size, num_workers=1)
    accelerator.register_for_checkpointing(loader)

    network = make_network()
    model, optimizer = accelerator.prepare(network, torch.optim.Adam(network.parameters(), lr=0.01))
    ledger, step = Ledger(folder, accelerator.process_index), 0

    latest = folder / "latest"
    if latest.exists():
        accelerator.load_state(str(folder / latest.read_text()))
        step = int(latest.read_text().removeprefix("step-"))
        accelerator.print(f"continues in epoch {loader.epoch}, step {step}", flush=True)

    with loader:
        for epoch in range(loader.epoch, epochs):
            for images, labels, ids in loader:
                ledger.write(epoch, step, ids)
                optimizer.zero_grad()
                accelerator.backward(nn.functional.cross_entropy(model(images), labels))
                optimizer.step()
                step += 1
                if step % 5 == 0:
                    accelerator.save_state(str(folder / f"step-{step}"))
                    accelerator.wait_for_everyone()
                    if accelerator.is_main_process:
                        (folder / "latest.new").write_text(f"step-{step}")
                        (folder / "latest.new").replace(latest)
            accelerator.print(
                f"epoch {epoch}: {step} steps, test accuracy {accuracy(network):.3f}", flush=True
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="folder for checkpoints and ledgers")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the processes share the CPU
    train(options.folder, options.epochs)
    end_process_group()
