"""Trains with FSDP over one dimension of a device mesh, and tensor parallelism over the other.

torchrun --standalone --nproc-per-node 4 docs/trainers/train_fsdp.py FOLDER
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from digits import Digits, Ledger, end_process_group, make_network
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import samplerkit as sk


def train(folder: Path, epochs: int, tensor_parallel: int) -> None:
    """Trains to the end, from the last checkpoint if there is one."""
    rank, replicas = dist.get_rank(), dist.get_world_size() // tensor_parallel
    mesh = init_device_mesh("cpu", (replicas, tensor_parallel), mesh_dim_names=("dp", "tp"))
    network = make_network()
    parallelize_module(network, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(network, mesh=mesh["dp"])
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)

    # Data is dealt over one dimension of the mesh: ranks that share a replica read the same batches.
    world = sk.World.from_mesh(mesh, "dp")
    loader = sk.Loader(Digits(), sk.RandomSampler(seed=7), batch_size=64 // replicas, world=world)
    ledger, step = Ledger(folder, rank), 0

    latest = folder / "latest"
    if latest.exists():
        model, optimizing = get_state_dict(network, optimizer)
        # The loader is restored in place by its state_dict and load_state_dict.
        saved = {"model": model, "optimizer": optimizing, "loader": loader, "step": step}
        dcp.load(saved, checkpoint_id=folder / latest.read_text())
        set_state_dict(network, optimizer, model_state_dict=model, optim_state_dict=optimizing)
        step = saved["step"]
        if rank == 0:
            print(
                f"continues in epoch {loader.epoch}, step {step}, as {replicas} x {tensor_parallel}",
                flush=True,
            )

    for epoch in range(loader.epoch, epochs):
        for images, labels, ids in loader:
            ledger.write(epoch, step, ids)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(images), labels)
            loss.backward()
            optimizer.step()
            step += 1
            if step % 5 == 0:
                model, optimizing = get_state_dict(network, optimizer)
                saved = {"model": model, "optimizer": optimizing, "loader": loader, "step": step}
                dcp.save(saved, checkpoint_id=folder / f"step-{step}")
                if rank == 0:
                    (folder / "latest.new").write_text(f"step-{step}")
                    (folder / "latest.new").replace(latest)
        if rank == 0:
            print(f"epoch {epoch}: {step} steps, loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="folder for checkpoints and ledgers")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--tensor-parallel", type=int, default=2, help="ranks that share a replica")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the processes share the CPU
    dist.init_process_group("gloo")
    train(options.folder, options.epochs, options.tensor_parallel)
    end_process_group()
