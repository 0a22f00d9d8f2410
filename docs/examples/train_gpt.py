"""Trains a small GPT on two corpora that every Python has, and changes nearly everything in mid-run.

torchrun --standalone --nproc-per-node 2 docs/examples/train_gpt.py FOLDER --steps 160
python docs/examples/train_gpt.py FOLDER --steps 320 --edit 240:0.2
python docs/examples/train_gpt.py FOLDER --steps 400 --edit 240:0.2 --seq-len 256

The first makes the corpora. Kill it whenever you like: each command goes on from the last checkpoint, on any
number of ranks. At step 240 the share of code becomes 0.2, and from step 320 on windows are twice as long.
No token of a pass over a corpus is lost or repeated. `--plot loss.png` draws what was learned (matplotlib).
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import argparse
import ast
import json
import os
import sysconfig
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import samplerkit as sk

TOKENS_A_STEP = 2048
"""Of all ranks together, however long windows are."""

BLOCK_LEN = 1024
"""A multiple of every length of windows to come."""

POOL = 8
"""Blocks: every 8,192 tokens, four steps, a run may go on with another length of windows."""

SAVE_EVERY = 20
END = 256
"""The token behind a document; the others are its bytes."""

MAX_BYTES = 2_000_000
"""Of a corpus."""


def write_corpora(folder: Path) -> None:
    """Writes the sources of the standard library, and its docstrings and manual, as two corpora."""
    code: list[str] = []
    prose = list(topics.values())
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("[a-z]*/*.py")):
        if {"test", "site-packages", "lib2to3"} & {*path.parts}:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        code.append(text)
        named = (ast.Module, ast.ClassDef, ast.FunctionDef)
        nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, named))
        prose += [told for node in nodes if (told := ast.get_docstring(node)) and len(told) > 80]
    for name, documents in (("code", code), ("prose", prose)):
        written = 0
        with sk.TokenWriter(folder / name, "uint16") as writer:
            for document in documents:
                data = document.encode()[: MAX_BYTES - written]
                writer.write([*data, END])
                written += len(data)
                if written >= MAX_BYTES:
                    break


class GPT(nn.Module):
    """A small transformer that tells the next byte, the same in every process."""

    def __init__(self, width: int = 96, layers: int = 3, longest: int = BLOCK_LEN) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens = nn.Embedding(END + 1, width)
        self.places = nn.Embedding(longest, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, END + 1)

    def forward(self, tokens: torch.Tensor, places: torch.Tensor, cu_seqlens: torch.Tensor) -> torch.Tensor:
        """Gives scores of shape (batch, S, tokens)."""
        # Which document each token of the batch, laid flat, is of: tokens look back in their own only.
        flat = torch.arange(tokens.numel())
        documents = torch.searchsorted(cu_seqlens.long(), flat, right=True).view(tokens.shape)
        seen = (documents[:, :, None] == documents[:, None, :]).tril()[:, None]
        hidden = self.tokens(tokens) + self.places(places)
        for layer in self.layers:
            hidden = layer(hidden, seen)
        return self.out(self.norm(hidden))


class Layer(nn.Module):
    """Attention within documents, and a network of each token for itself."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.queries = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """Takes hidden values of shape (batch, S, width), and who sees whom: (batch, 1, S, S)."""
        parts = self.queries(self.norms[0](hidden)).unflatten(-1, (3 * self.heads, -1)).transpose(1, 2)
        attended = functional.scaled_dot_product_attention(*parts.chunk(3, dim=1), attn_mask=seen)
        hidden = hidden + self.out(attended.transpose(1, 2).flatten(2))
        return hidden + self.narrow(functional.gelu(self.wide(self.norms[1](hidden))))


def make_loader(folder: Path, seq_len: int, edit: tuple[int, float] | None, ranks: int) -> sk.Loader:
    """Makes the loader: no rank is in its order, and no length of windows."""
    data = sk.TokenDataset(
        {name: str(folder / name) for name in ("code", "prose")},
        seq_len,
        block_len=BLOCK_LEN,
        seed=7,
        documents="idx",
        outputs=["tokens", "labels", "loss_mask", "position_ids", "cu_seqlens"],
    )
    # A mixture of blocks, half of each corpus; a ledger around it counts blocks, too.
    mixture = sk.MixtureSampler({"code": None, "prose": None}, weights={"code": 0.5, "prose": 0.5}, seed=7)
    edits = []
    if edit is not None:
        step, share = edit
        weights = {"code": share, "prose": 1 - share}
        edits = [sk.Edit(at=step * TOKENS_A_STEP // BLOCK_LEN, weights=weights)]
    sampler = sk.BlockSampler(POOL, seed=7)
    sampler.add_child(sk.Ledger(mixture, edits))
    return sk.Loader(data, sampler, batch_size=TOKENS_A_STEP // seq_len // ranks, tail="drop")


def train(folder: Path, steps: int, seq_len: int, edit: tuple[int, float] | None) -> None:
    """Trains up to a step, from the last checkpoint on if there is one."""
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    network = GPT()
    model = DistributedDataParallel(network) if ranks > 1 else network
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.002)
    checkpoint, step = folder / "checkpoint.pt", 0
    with make_loader(folder, seq_len, edit, ranks) as loader:
        if checkpoint.exists():
            saved = torch.load(checkpoint, weights_only=True)
            network.load_state_dict(saved["network"])
            optimizer.load_state_dict(saved["optimizer"])
            loader.load_state_dict(saved["loader"])
            step = saved["step"]
        if rank == 0:
            print(f"step {step}: {ranks} ranks, windows of {seq_len} tokens", flush=True)
        while step < steps:
            for batch in loader:
                loss = learn(model, optimizer, batch, ranks)
                share = 0.5 if edit is None or step < edit[0] else edit[1]
                step += 1
                if rank == 0:
                    with (folder / "losses.jsonl").open("a") as file:
                        file.write(json.dumps([step, loss, ranks, seq_len, share]) + "\n")
                    if step % SAVE_EVERY == 0:
                        print(f"step {step}: loss {loss:.3f}", flush=True)
                        state = {
                            "network": network.state_dict(),
                            "optimizer": optimizer.state_dict(),
                            "loader": loader.state_dict(),  # the same on every rank
                            "step": step,
                        }
                        torch.save(state, folder / "checkpoint.new")
                        (folder / "checkpoint.new").replace(checkpoint)  # at once: the old one or the new one
                if step == steps:
                    break


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, batch: dict[str, Any], ranks: int) -> float:
    """Takes a step; gives the mean loss of all ranks' tokens."""
    scores = model(batch["tokens"], batch["position_ids"], batch["cu_seqlens"])
    losses = functional.cross_entropy(scores.flatten(0, 1), batch["labels"].flatten(), reduction="none")
    # The token behind a document is of another one: nothing tells it.
    masked = losses * batch["loss_mask"].flatten()
    sums = torch.stack([masked.detach().sum(), batch["loss_mask"].sum()])
    if ranks > 1:
        dist.all_reduce(sums)
    # DDP takes the mean of the ranks' gradients, and ranks hold different numbers of tokens that count.
    optimizer.zero_grad()
    (masked.sum() * ranks / sums[1]).backward()
    optimizer.step()
    return float(sums[0] / sums[1])


def plot(folder: Path, picture: Path) -> None:
    """Draws the loss by step, with what changed on the way; of steps that were taken again the last."""
    from matplotlib.figure import Figure  # noqa: PLC0415  # an extra

    told = {line[0]: line for line in map(json.loads, (folder / "losses.jsonl").read_text().splitlines())}
    steps = sorted(told)
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(steps, [told[step][1] for step in steps], linewidth=0.6, alpha=0.5)
    latest = [[told[near][1] for near in steps[max(0, at - 9) : at + 1]] for at in range(len(steps))]
    axes.plot(steps, [sum(few) / len(few) for few in latest], color="C0")
    before: list[Any] = []
    for step in steps:
        _, loss, *now = told[step]
        if now != before:
            ranks, seq_len, share = now
            told_now = f"{ranks} rank{'s'[: ranks > 1]}, S = {seq_len}\n{share:.0%} code"
            axes.axvline(step, color="grey", linewidth=0.8, linestyle="--")
            axes.annotate(told_now, (step, loss), (step + 4, axes.get_ylim()[1]), va="top", fontsize=8)
        before = now
    axes.set_xlabel("step of 2,048 tokens")
    axes.set_ylabel("loss a byte, nats")
    figure.savefig(picture, dpi=100)


def edit_of(text: str) -> tuple[int, float]:
    """Reads STEP:SHARE."""
    step, share = text.split(":")
    return int(step), float(share)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="of corpora, checkpoints and losses")
    parser.add_argument("--steps", type=int, default=160, help="train up to this step")
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument(
        "--edit", type=edit_of, metavar="STEP:SHARE", help="the share of code from this step on"
    )
    parser.add_argument("--plot", type=Path, help="draw the losses, and train nothing")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the processes share the machine
    if options.plot:
        plot(options.folder, options.plot)
        raise SystemExit
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    if os.environ.get("RANK", "0") == "0" and not (options.folder / "prose.idx").exists():
        write_corpora(options.folder)
    if dist.is_initialized():
        dist.barrier()
    train(options.folder, options.steps, options.seq_len, options.edit)
    if dist.is_initialized():
        dist.destroy_process_group()
